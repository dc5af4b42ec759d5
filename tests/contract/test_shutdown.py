"""Starting and stopping the server's thread: states, taken ports, and open requests that end with it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from engine.engine import Engine
from engine.errors import PortInUse, UnsafeBinding
from engine.events import ServerStateChanged
from server.config import ServerSettings
from server.thread import ServerThread, bind
from tests.contract.conftest import ENDLESS, READY_S, Live, chat_body
from tests.contract.raw import RawRequest
from tests.waiting import wait_until

CHAT = "/v1/chat/completions"


@pytest.fixture
def own(narrow: Live, serve: Callable[..., Live]) -> Live:
    """A server of the test's own over the narrow engine; ``narrow`` waits for the engine to be idle afterwards."""
    return serve(narrow.engine)


def _endless(**more: object) -> dict[str, object]:
    return chat_body(max_tokens=ENDLESS, ignore_eos=True, **more)


def test_states_are_announced(engine: Engine) -> None:
    seen: list[ServerStateChanged] = []
    subscription = engine.events.subscribe(seen.append, ServerStateChanged)  # type: ignore[arg-type]
    thread = ServerThread(engine, ServerSettings(PORT=0))
    assert (thread.state, thread.address, thread.error) == ("stopped", None, None)
    thread.start()
    address = thread.wait_ready(READY_S)
    assert (thread.state, thread.address) == ("running", address)
    thread.stop(5)
    assert (thread.state, thread.address) == ("stopped", None)
    thread.stop(5)
    subscription.close()
    assert [(event.state, event.address) for event in seen] == [
        ("starting", None),
        ("running", address),
        ("stopped", None),
    ]


def test_it_can_be_started_again(own: Live) -> None:
    own.thread.stop(5)
    own.thread.start(own.port)
    assert own.thread.wait_ready(READY_S) == own.address
    assert own.chat().status_code == 200


def test_starting_twice_is_starting_once(own: Live) -> None:
    own.thread.start()
    assert own.thread.wait_ready(READY_S) == own.address


def test_stopping_before_it_runs(engine: Engine) -> None:
    thread = ServerThread(engine, ServerSettings(PORT=0))
    thread.stop(5)
    thread.start()
    thread.stop(5)
    assert thread.state == "stopped"


def test_what_was_closed_does_not_start_again(engine: Engine) -> None:
    thread = ServerThread(engine, ServerSettings(PORT=0))
    thread.start()
    thread.wait_ready(READY_S)
    thread.close(5)
    thread.start()
    assert thread.state == "stopped" and thread.address is None


def test_a_taken_port_is_named(engine: Engine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        thread = ServerThread(engine, ServerSettings(PORT=port))
        thread.start()
        with pytest.raises(PortInUse) as caught:
            thread.wait_ready(READY_S)
    assert str(port) in caught.value.message
    assert thread.state == "error"
    assert thread.error is not None
    assert str(port) in thread.error
    # Another port helps.
    thread.start(0)
    thread.wait_ready(READY_S)
    assert thread.error is None
    thread.stop(5)


def test_binding_beyond_this_machine_without_a_key(engine: Engine) -> None:
    thread = ServerThread(engine, ServerSettings(HOST="0.0.0.0", PORT=0))
    thread.start()
    with pytest.raises(UnsafeBinding):
        thread.wait_ready(READY_S)
    insecure = ServerThread(engine, ServerSettings(HOST="0.0.0.0", PORT=0), insecure=True)
    insecure.start()
    insecure.wait_ready(READY_S)
    insecure.stop(5)


def test_an_open_stream_ends_with_an_event(own: Live) -> None:
    with RawRequest(own, CHAT, _endless(stream=True)) as request:
        request.read_until(b'"content"')
        own.thread.stop(5)
        assert own.thread.state == "stopped"
        rest = request.read_all()
    error, done = [line for line in rest.split(b"\n") if b"data: " in line][-2:]
    assert json.loads(error[error.index(b"{") :]) == {
        "error": {
            "message": "The server is being stopped. Send the request again once it is back.",
            "type": "server_error",
            "code": "server_stopping",
            "retry_after": 10,
        }
    }
    assert done == b"data: [DONE]"
    wait_until(lambda: own.engine.generation.stats().queue_pending == 0, "the stream's lane to be free")


def test_open_requests_of_every_kind_end(own: Live, narrow: Live) -> None:
    with ExitStack() as stack:
        written = stack.enter_context(RawRequest(own, CHAT, _endless(stream=True)))
        written.read_until(b'"content"')
        queued = stack.enter_context(RawRequest(own, CHAT, _endless()))
        queued_stream = stack.enter_context(RawRequest(own, CHAT, _endless(stream=True)))
        wait_until(lambda: own.engine.generation.stats().queue_waiting == 2, "two to be queued")
        own.thread.stop(5)
        assert own.thread.state == "stopped"
        for request in (queued, queued_stream):
            answer = request.read_all()
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"server_stopping" in answer
            assert b"retry-after: 10" in answer.lower()
    wait_until(lambda: own.engine.generation.stats().queue_pending == 0, "all lanes to be free")
    # The engine has nothing to do with it: another server on it goes on answering.
    assert narrow.chat().status_code == 200


def test_a_client_that_reads_nothing_holds_nothing_up(
    narrow: Live, serve: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    def bind_with_small_buffers(host: str, port: int) -> socket.socket:
        listener = bind(host, port)
        # Connections inherit it: without it the system would take megabytes before a send has to wait.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return listener

    monkeypatch.setattr("server.thread.bind", bind_with_small_buffers)
    own = serve(narrow.engine)
    body = chat_body(stream=True, max_tokens=400, ignore_eos=True, logprobs=True, top_logprobs=20)
    with RawRequest(own, CHAT, body, receive_buffer=4096):
        wait_until(lambda: own.engine.generation.stats().in_flight == 1, "the answer to be written")
        # It is written to its end, many times what the connection's buffers hold, so the route is stuck in a send.
        wait_until(lambda: own.engine.generation.stats().in_flight == 0, "the answer to be finished", 120)
        own.thread.stop(5)
        assert own.thread.state == "stopped"


def test_an_idle_connection_does_not_hold_it_up(own: Live) -> None:
    with own.http() as client:
        assert client.get("/api/health").status_code == 200
        own.thread.stop(5)
        assert own.thread.state == "stopped"


def test_no_thread_is_left(own: Live) -> None:
    own.chat()
    own.thread.stop(5)
    assert not [t for t in threading.enumerate() if t.name == "server" and t is own.thread._run.thread and t.is_alive()]  # type: ignore[union-attr]

"""Connections that come and go: what a client can leave behind, and how many there may be."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from server import connections as server_connections
from server.connections import Connection, room
from server.thread import bind
from tests.contract.conftest import ENDLESS, Live, chat_body
from tests.contract.raw import RawRequest
from tests.waiting import wait_until

NOT_ON_WINDOWS = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit of open files")
ROOT = Path(__file__).resolve().parents[2]
HEALTH = b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 500


@pytest.fixture
def own(live: Live, serve: Callable[..., Live]) -> Live:
    return serve(live.engine)


def _connect(live: Live) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", live.port), 30)
    connection.settimeout(30)
    return connection


def _held(live: Live) -> int:
    """Sockets of this process that are the server's ends of connections, in whatever state."""
    return sum(
        1
        for each in psutil.Process().net_connections("tcp")
        if each.laddr and each.laddr.port == live.port and each.status != psutil.CONN_LISTEN
    )


def _read_all(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def _read_answer(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data or not data.endswith(b"}"):
        piece = connection.recv(65536)
        assert piece, data
        data += piece
    return data


def test_a_kept_connection_that_its_client_closes_is_gone(own: Live) -> None:
    with ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(_connect(own))
            connection.sendall(HEALTH)
            assert _read_answer(connection).startswith(b"HTTP/1.1 200")
        assert _held(own) == 20
    wait_until(lambda: _held(own) == 0, "the server's ends to be closed")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /api/health HTTP/1.1\r\nHost: 127",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
        TLS_HELLO,
        H2_PREFACE,
        H2_PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        HEALTH * 5,
    ],
    ids=["nothing", "half a head", "half a body", "TLS", "HTTP/2", "HTTP/2 with settings", "pipelined"],
)
@pytest.mark.parametrize("half_closed", [False, True], ids=["closed", "half-closed"])
def test_what_a_client_leaves_behind_is_gone(own: Live, sent: bytes, half_closed: bool) -> None:
    with _connect(own) as connection:
        connection.sendall(sent)
        if half_closed:
            connection.shutdown(socket.SHUT_WR)
            try:
                _read_all(connection)
            except ConnectionResetError:
                pass
            wait_until(lambda: all(s != psutil.CONN_ESTABLISHED for s in _states(own)), "the server to let go")
    wait_until(lambda: _held(own) == 0, "the server's end to be closed")


def _states(live: Live) -> list[str]:
    return [each.status for each in psutil.Process().net_connections("tcp") if each.laddr.port == live.port]


def test_an_idle_event_socket_that_its_client_closes_is_gone(own: Live) -> None:
    with _connect(own) as connection:
        connection.sendall(
            b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 101")
    wait_until(lambda: _held(own) == 0, "the server's end to be closed")


def test_a_client_that_leaves_with_a_request_behind_a_stream_holds_nothing(
    narrow: Live, serve: Callable[..., Live]
) -> None:
    body = chat_body(max_tokens=ENDLESS, ignore_eos=True, stream=True)
    own = serve(narrow.engine)
    with RawRequest(own, "/v1/chat/completions", body) as request:
        request.read_until(b'"content"')
        request._socket.sendall(HEALTH)
        assert "Connections._serve" in _tasks(own)
    wait_until(lambda: narrow.engine.generation.stats().queue_pending == 0, "the lane to be free")
    wait_until(lambda: "Connections._serve" not in _tasks(own), "its tasks to be over")


def _tasks(live: Live) -> str:
    run = live.thread._run
    assert run is not None
    assert run._loop is not None
    return " ".join(str(task.get_coro()) for task in asyncio.all_tasks(run._loop))


def test_http_2_is_not_spoken(own: Live) -> None:
    with _connect(own) as connection:
        connection.sendall(H2_PREFACE)
        assert _read_all(connection).startswith(b"HTTP/1.1 505")
    for host, status in ((b"127.0.0.1", b"200"), (b"evil.example", b"403")):
        with _connect(own) as connection:
            connection.sendall(
                b"GET /v1/models HTTP/1.1\r\nHost: " + host + b"\r\nConnection: Upgrade, HTTP2-Settings\r\n"
                b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
            )
            assert connection.recv(4096).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    "length", [b"Content-Length: 62914560", b"Transfer-Encoding: chunked"], ids=["told", "chunked"]
)
def test_a_refused_upload_is_answered_at_once_and_its_answer_seen(
    own: Live, monkeypatch: pytest.MonkeyPatch, length: bytes
) -> None:
    """How long it may go on sending is no time that its answer waits."""
    monkeypatch.setattr(server_connections, "LINGER_S", 3600.0)
    with _connect(own) as connection:
        connection.sendall(b"POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n" + length + b"\r\n\r\n")
        answer = _read_answer(connection)
        assert answer.startswith(b"HTTP/1.1 404")
        assert b"connection: close" in answer.lower()
        # It goes on sending, as a client does that looks at the answer last; nothing resets the connection.
        connection.sendall(b"x" * 8_000_000)
        assert connection.recv(10) == b""
    wait_until(lambda: _held(own) == 0, "the server's end to be closed")


def test_a_small_refused_body_leaves_the_connection_usable(own: Live) -> None:
    with _connect(own) as connection:
        for _ in range(2):
            connection.sendall(b"POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}")
            answer = _read_answer(connection)
            assert answer.startswith(b"HTTP/1.1 404")
            assert b"connection: close" not in answer.lower()


@pytest.mark.parametrize("target", [b"?", b"?a=b", b"http://[::1/v1/models", b"http://127.0.0.1"])
def test_a_target_that_leads_nowhere(own: Live, target: bytes, caplog: pytest.LogCaptureFixture) -> None:
    for upgrade in (b"", UPGRADE):
        with _connect(own) as connection:
            connection.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + upgrade + b"\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 404")
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"Sec-WebSocket-Protocol: \xff, a", b"400"),
        (b"Sec-WebSocket-Extensions: \xff", b"101"),
        (b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=x; foo", b"101"),
        (b"Sec-WebSocket-Extensions: permessage-deflate", b"101"),
    ],
)
def test_odd_handshakes_are_answered(own: Live, header: bytes, status: bytes) -> None:
    with _connect(own) as connection:
        connection.sendall(b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n" + UPGRADE + header + b"\r\n\r\n")
        answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b"deflate" not in answer


def test_two_lengths_are_refused_and_nothing_behind_them_is_read(own: Live) -> None:
    with _connect(own) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 6\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HEALTH
        )
        answer = _read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1
    assert b"invalid_parameter" in answer


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (HEALTH, 200),
        (b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\n{", 400),
        (b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 404),
        (TLS_HELLO, 400),
        (H2_PREFACE, 505),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 200),
        (
            b"GET /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            405,
        ),
        (
            b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            400,
        ),
    ],
)
def test_every_answer_protects_itself(own: Live, request_: bytes, status: int) -> None:
    with _connect(own) as connection:
        connection.sendall(request_)
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(4096)
    head = data.partition(b"\r\n\r\n")[0].lower()
    assert head.startswith(b"http/1.1 %d" % status)
    assert head.count(b"\r\nx-content-type-options: nosniff") == 1
    assert head.count(b"\r\ncross-origin-resource-policy: same-origin") == 1
    assert b"\r\ncontent-security-policy: frame-ancestors 'none'" in head


def test_at_the_limit_the_longest_silent_one_is_closed(
    live: Live, serve: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_connections, "MAX_CONNECTIONS", 4)
    own = serve(live.engine)
    with ExitStack() as stack:
        held = []
        for _ in range(9):
            held.append(connection := stack.enter_context(_connect(own)))
            connection.sendall(HEALTH)
            assert _read_answer(connection).startswith(b"HTTP/1.1 200")
        wait_until(lambda: _held(own) <= 4, "room to be made")
        # The newest still works, the oldest was let go.
        held[-1].sendall(HEALTH)
        assert _read_answer(held[-1]).startswith(b"HTTP/1.1 200")
        assert held[0].recv(10) == b""


def test_at_the_limit_a_half_sent_request_gives_way_and_a_stream_does_not(
    narrow: Live, serve: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_connections, "MAX_CONNECTIONS", 3)
    own = serve(narrow.engine)
    with RawRequest(own, "/v1/chat/completions", chat_body(max_tokens=ENDLESS, ignore_eos=True, stream=True)) as stream:
        stream.read_until(b'"content"')
        with _connect(own) as half:
            half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
            for _ in range(4):
                with _connect(own) as other:
                    other.sendall(HEALTH)
                    assert _read_answer(other).startswith(b"HTTP/1.1 200")
        stream.read_until(b'"content"')


def test_a_client_that_reads_nothing_is_cut_while_the_server_runs(
    narrow: Live, serve: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    def bind_with_small_buffers(host: str, port: int) -> socket.socket:
        listener = bind(host, port)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return listener

    monkeypatch.setattr("server.thread.bind", bind_with_small_buffers)
    monkeypatch.setattr(server_connections, "SWEEP_S", 0.05)
    monkeypatch.setattr(server_connections, "SEND_STALL_S", 0.5)
    own = serve(narrow.engine)
    body = chat_body(stream=True, max_tokens=ENDLESS, ignore_eos=True, logprobs=True, top_logprobs=20)
    with RawRequest(own, "/v1/chat/completions", body, receive_buffer=4096):
        wait_until(lambda: own.engine.generation.stats().in_flight == 1, "the answer to be written")
        wait_until(lambda: own.engine.generation.stats().in_flight == 0, "its lane to be free")
        wait_until(lambda: _held(own) == 0, "its socket to be closed")


class _Transport:
    """What a connection asks of its transport when it looks whether its client reads."""

    def __init__(self) -> None:
        self.waiting = 0
        self.aborted = False
        self.is_closing = lambda: True

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize(("left", "patience"), [(False, 300.0), (True, 5.0)])
def test_a_client_that_takes_nothing_is_cut(left: bool, patience: float) -> None:
    async def steps() -> list[bool]:
        reader = asyncio.StreamReader()
        if left:
            reader.feed_eof()
        transport = _Transport()
        writer = asyncio.StreamWriter(transport, None, reader, asyncio.get_running_loop())  # type: ignore[arg-type]
        connection = Connection(None, None, None, reader, writer)  # type: ignore[arg-type]
        connection._put = 1000
        seen = []
        # Seconds since the beginning, and bytes that wait.
        for now, waiting in [
            (0.0, 900),
            (patience - 1, 900),
            (patience - 0.5, 500),  # it has taken some
            (2 * patience - 1, 500),
            (2 * patience - 0.5, 500),
        ]:
            transport.waiting = waiting
            connection.abort_if_stalled(now)
            seen.append(transport.aborted)
        return seen

    assert asyncio.run(steps()) == [False, False, False, False, True]


def test_out_of_files_it_says_so_once_and_goes_on(
    own: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The system refuses 300 accepts; then there are files again."""
    refusals = iter(range(300))
    real = socket.socket.accept

    def accept(listener: socket.socket) -> tuple[socket.socket, object]:
        if listener.getsockname()[1] == own.port and next(refusals, None) is not None:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(listener)

    monkeypatch.setattr(server_connections, "ACCEPT_RETRY_S", 0.0)
    monkeypatch.setattr(socket.socket, "accept", accept)
    with caplog.at_level(logging.WARNING), _connect(own) as connection:
        connection.sendall(HEALTH)
        assert _read_answer(connection).startswith(b"HTTP/1.1 200")
    assert next(refusals, None) is None
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["connections cannot be taken: [Errno 24] Too many open files"]


@NOT_ON_WINDOWS
@pytest.mark.parametrize(
    ("soft", "connections"), [(1024, 768), (8192, 2048), (256, 128), (64, 32), (None, 2048), (600, 344)]
)
def test_room_leaves_files_for_the_program(monkeypatch: pytest.MonkeyPatch, soft: int | None, connections: int) -> None:
    import resource

    soft = resource.RLIM_INFINITY if soft is None else soft
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert room() == connections


_MANY = """
import resource, socket, sys, json
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
from pathlib import Path
from engine.config import EngineSettings
from engine.engine import Engine
from engine.library.database import Library
from server.config import ServerSettings
from server.thread import ServerThread
engine = Engine(EngineSettings(), Library.open(Path(sys.argv[1])))
engine.start()
thread = ServerThread(engine, ServerSettings(PORT=0))
thread.start()
print(json.dumps(thread.wait_ready(30)), flush=True)
sys.stdin.read()
thread.stop(5)
engine.stop(10)
"""


@NOT_ON_WINDOWS
def test_1100_connections_come_and_go_at_a_limit_of_1024_files(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _MANY, str(tmp_path / "library.db")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        port = int(json.loads(process.stdout.readline()).removesuffix("/v1").rsplit(":", 1)[1])
        for _ in range(1100):
            with socket.create_connection(("127.0.0.1", port), 30) as connection:
                connection.sendall(HEALTH)
                assert _read_answer(connection).startswith(b"HTTP/1.1 200")
        # And 1,100 that stay: the server remains within its files, and answers.
        with ExitStack() as stack:
            for _ in range(1100):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            newest = stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            newest.settimeout(30)
            newest.sendall(HEALTH)
            assert _read_answer(newest).startswith(b"HTTP/1.1 200")
            assert psutil.Process(process.pid).num_fds() < 900
    finally:
        process.communicate("", 60)
    assert process.returncode == 0

"""The event socket: who may connect, what comes over it, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from engine.engine import Engine
from engine.events import Event, ModelDownloadError, ModelLoadError, ModelsChanged, SaeDownloadError
from server.management import events as events_module
from server.management import machine_feed
from server.management.events import DROPPED, Outbox
from server.management.machine_feed import MachineFeed
from tests.conftest import EngineMaker
from tests.server.management.conftest import House
from tests.server.management.sockets import Refused
from tests.waiting import wait_until

PAGE = "https://app.example"


def listeners(engine: Engine) -> int:
    return len(engine.events._listeners)


def failed(number: int) -> ModelLoadError:
    return ModelLoadError(number, "m", "model_load_failed", "No.")


def test_an_event_is_one_json_object(bare: House) -> None:
    with bare.socket() as events:
        bare.engine.events.publish(ModelLoadError(3, "naïve", "load_cancelled", "Stopped."))
        assert events.next() == {
            "event": "model:load:error",
            "data": {
                "model_id": 3,
                "model_name": "naïve",
                "error": {"code": "load_cancelled", "message": "Stopped."},
            },
        }
        bare.engine.events.publish(ModelsChanged())
        assert events.next() == {"event": "models:changed", "data": {}}


def test_whatever_failed_says_so_in_the_same_shape(bare: House) -> None:
    with bare.socket() as events:
        bare.engine.events.publish(ModelDownloadError(3, "m", "download_failed", "It broke off."))
        bare.engine.events.publish(SaeDownloadError("sae-1", "download_cancelled", "Download cancelled by user"))
        assert [events.next() for _ in range(2)] == [
            {
                "event": "model:download:error",
                "data": {
                    "model_id": 3,
                    "model_name": "m",
                    "error": {"code": "download_failed", "message": "It broke off."},
                },
            },
            {
                "event": "sae:download:error",
                "data": {
                    "sae_id": "sae-1",
                    "error": {"code": "download_cancelled", "message": "Download cancelled by user"},
                },
            },
        ]


def test_every_client_hears_everything_in_order(bare: House) -> None:
    with bare.socket() as one, bare.socket() as two:
        for number in range(100):
            bare.engine.events.publish(failed(number))
        for events in (one, two):
            assert [events.next()["data"]["model_id"] for _ in range(100)] == list(range(100))


def test_what_a_client_says_is_thrown_away(bare: House) -> None:
    with bare.socket() as events:
        events.say("x" * 10_000)
        events.say('{"event": "system:join"}')
        bare.engine.events.publish(failed(1))
        assert events.next()["data"]["model_id"] == 1


def test_a_client_that_says_too_much_is_left(bare: House) -> None:
    before = listeners(bare.engine)
    with bare.socket() as events:
        events.say("x" * 100_000)
        assert events.wait_closed() == 1009
    wait_until(lambda: listeners(bare.engine) == before, "its subscription to be gone")


def test_a_client_that_leaves_is_forgotten(bare: House) -> None:
    before = listeners(bare.engine)
    polite, rude = bare.socket(), bare.socket()
    assert listeners(bare.engine) == before + 2
    polite.close()
    wait_until(lambda: listeners(bare.engine) == before + 1, "the polite one to be forgotten")
    rude.leave()
    wait_until(lambda: listeners(bare.engine) == before, "the rude one to be forgotten")
    with bare.socket() as events:
        bare.engine.events.publish(failed(1))
        assert events.next()["data"]["model_id"] == 1


def test_there_are_only_so_many(make_engine: EngineMaker, serve: Callable[..., House]) -> None:
    house = serve(make_engine(None), MAX_EVENT_SOCKETS=2)
    before = listeners(house.engine)
    with house.socket(), house.socket() as two:
        with pytest.raises(Refused) as caught:
            house.socket()
        assert caught.value.status == 503
        error = caught.value.json()["error"]
        assert error["code"] == "TOO_MANY_EVENT_SOCKETS"
        assert error["details"] == {"max_event_sockets": 2, "remedy": "Close one, or raise MAX_EVENT_SOCKETS."}
        # A place that becomes free is taken.
        two.close()
        wait_until(lambda: listeners(house.engine) == before + 1, "its subscription to be gone")
        with house.socket() as three:
            house.engine.events.publish(failed(1))
            assert three.next()["data"]["model_id"] == 1


def test_an_event_is_written_as_json_once_for_all(bare: House, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []
    dump = events_module.wire

    def counting(data: dict[str, object]) -> dict[str, object]:
        written.append(data)
        return dump(data)

    monkeypatch.setattr(events_module, "wire", counting)
    with ExitStack() as stack:
        sockets = [stack.enter_context(bare.socket()) for _ in range(5)]
        for number in range(10):
            bare.engine.events.publish(failed(number))
        for socket in sockets:
            assert [socket.next()["data"]["model_id"] for _ in range(10)] == list(range(10))
    assert len([data for data in written if "error" in data]) == 10  # type: ignore[operator]


def test_it_ends_with_the_server(bare: House) -> None:
    before = listeners(bare.engine)
    with bare.socket() as events:
        bare.thread.stop(5)
        assert bare.thread.state == "stopped"
        assert events.wait_closed() == 1001
    # The server's own figures end with it; what an engine without a server listens with stays.
    assert listeners(bare.engine) == before - 1
    bare.engine.events.publish(failed(1))  # nobody listens, and nothing breaks


def test_a_client_that_reads_nothing_holds_nothing_up(bare: House) -> None:
    before = listeners(bare.engine)
    with bare.socket(receive_buffer=4096):
        for number in range(2000):
            bare.engine.events.publish(ModelLoadError(number, "m" * 10_000, "c", "x"))
        bare.api.ok("GET", "/api/monitoring")
        bare.thread.stop(5)
        assert bare.thread.state == "stopped"
    wait_until(lambda: listeners(bare.engine) == before - 1, "its subscription to be gone")


def test_an_event_that_json_cannot_hold_is_left_out(bare: House, caplog: pytest.LogCaptureFixture) -> None:
    with bare.socket() as events:
        bare.engine.events.publish(ModelLoadError(object(), "m", "c", "x"))  # type: ignore[arg-type]
        bare.engine.events.publish(failed(2))
        assert events.next()["data"]["model_id"] == 2
    assert "model:load:error" in caplog.text


def test_the_outbox_keeps_the_newest_and_counts_the_rest() -> None:
    async def run() -> tuple[list[Event], int, list[Event], int]:
        outbox = Outbox(asyncio.get_running_loop(), limit=3)
        for number in range(5):
            outbox.put(failed(number))
        first, dropped = await outbox.take()
        outbox.put(failed(9))
        second, more = await outbox.take()
        return first, dropped, second, more

    first, dropped, second, more = asyncio.run(run())
    assert [event.model_id for event in first if isinstance(event, ModelLoadError)] == [2, 3, 4]
    assert dropped == 2
    assert (len(second), more) == (1, 0)


def test_the_outbox_outlives_its_loop() -> None:
    async def make() -> Outbox:
        return Outbox(asyncio.get_running_loop())

    asyncio.run(make()).put(failed(1))


# --- the machine ------------------------------------------------------------------------------------------------------


def test_the_machine_is_told_about_at_once_and_again(bare: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_feed, "INTERVAL_S", 0.01)
    with bare.socket(machine=True) as events:
        for _ in range(3):
            message = events.next()
            assert message["event"] == "system:metrics"
        figures = message["data"]
        assert set(figures) == {
            "gpu_utilization",
            "gpu_memory_used_mb",
            "gpu_memory_total_mb",
            "gpu_temperature",
            "gpus",
            "cpu_percent",
            "memory_used_mb",
            "memory_total_mb",
            "process_memory_mb",
        }
        assert figures["memory_total_mb"] == round(psutil.virtual_memory().total / 1e6, 1)
        assert 10 < figures["process_memory_mb"] < figures["memory_total_mb"]
        with bare.socket(machine=True) as late:
            assert late.wait_for("system:metrics")["memory_total_mb"] == figures["memory_total_mb"]


def test_the_machine_is_read_only_while_somebody_listens(bare: House, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds: list[MachineFeed] = []
    monkeypatch.setattr(machine_feed, "INTERVAL_S", 0.01)
    joined = MachineFeed.join

    def join(feed: MachineFeed, listener: Callable[[Event], None]) -> Callable[[], None]:
        feeds.append(feed)
        return joined(feed, listener)

    monkeypatch.setattr(MachineFeed, "join", join)
    with bare.socket(machine=True) as one, bare.socket(machine=True) as two:
        one.wait_for("system:metrics")
        two.wait_for("system:metrics")
        assert feeds[0] is feeds[1]
        assert feeds[0].running
        one.close()
        two.wait_for("system:metrics")
        assert feeds[0].running
    wait_until(lambda: not feeds[0].running, "the reading to end")
    with bare.socket(machine=True) as again:
        again.wait_for("system:metrics")
        assert feeds[0].running


# --- guards -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(make_engine: EngineMaker, serve: Callable[..., House]) -> House:
    return serve(make_engine(None), API_KEY="sesame", CORS_ORIGINS=[PAGE])


def refusal(house: House, path: str = "/api/events", **options: object) -> tuple[int, str]:
    with pytest.raises(Refused) as caught:
        house.socket(path, **options)
    error = caught.value.json()["error"]
    return caught.value.status, error["code"]


@pytest.mark.parametrize("path", ["/api/events", "/api/events?key=wrong", "/api/events?key=", "/api/events?Key=sesame"])
def test_without_the_key(guarded: House, path: str) -> None:
    before = listeners(guarded.engine)
    assert refusal(guarded, path) == (401, "INVALID_API_KEY")
    assert refusal(guarded, path, headers={"Authorization": "Bearer wrong"}) == (401, "INVALID_API_KEY")
    assert listeners(guarded.engine) == before


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/api/events", {"Authorization": "Bearer sesame"}),
        ("/api/events", {"X-Api-Key": "sesame"}),
        ("/api/events?key=sesame", {}),
        ("/api/events?key=sesame", {"Origin": PAGE}),
        ("/api/events?key=wrong", {"X-Api-Key": "sesame"}),
    ],
)
def test_with_the_key(guarded: House, path: str, headers: dict[str, str]) -> None:
    with guarded.socket(path, headers=headers) as events:
        guarded.engine.events.publish(failed(1))
        assert events.next()["data"]["model_id"] == 1


def test_the_key_in_the_address_is_for_the_socket_alone(guarded: House) -> None:
    guarded.api.refused(401, "INVALID_API_KEY", "GET", "/api/monitoring?key=sesame")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1", "https://app.example.evil"])
def test_pages_that_are_not_on_the_list(guarded: House, bare: House, origin: str) -> None:
    assert refusal(guarded, "/api/events?key=sesame", headers={"Origin": origin}) == (403, "ORIGIN_NOT_ALLOWED")
    assert refusal(bare, headers={"Origin": origin}) == (403, "ORIGIN_NOT_ALLOWED")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:8000"])
def test_hosts_that_are_not_ours(bare: House, host: str) -> None:
    assert refusal(bare, host=host) == (403, "HOST_NOT_ALLOWED")


def test_other_addresses_take_no_socket(bare: House) -> None:
    assert refusal(bare, "/api/nothing") == (404, "NOT_FOUND")
    assert refusal(bare, "/nothing") == (404, "NOT_FOUND")
    assert refusal(bare, "/v1/nothing") == (404, "not_found")
    assert refusal(bare, "/api/monitoring") == (422, "VALIDATION_ERROR")
    assert refusal(bare, "/v1/models") == (400, "invalid_parameter")
    assert refusal(bare, "//v1//models") == (400, "invalid_parameter")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/api/sweeps/1/cancel"])
def test_a_socket_to_a_route_that_takes_only_posts(
    bare: House, guarded: House, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As a GET is answered, on every path and with every guard."""
    plain = bare.api.http.get(path)
    assert plain.status_code == 405
    assert refusal(bare, path) == (405, plain.json()["error"]["code"])
    assert refusal(guarded, path)[0] == 401
    assert refusal(bare, path, host="evil.example")[0] == 403
    assert refusal(bare, path, headers={"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert "Traceback" not in caplog.text
    assert "failed" not in caplog.text


def test_a_plain_request_is_told_to_upgrade(bare: House) -> None:
    error = bare.api.refused(422, "VALIDATION_ERROR", "GET", "/api/events")
    assert "WebSocket" in error["message"]


def test_every_event_is_described() -> None:
    page = (Path(__file__).parents[3] / "docs" / "events.md").read_text(encoding="utf-8")
    names = [event.name for event in Event.__subclasses__() if event.__module__.startswith("engine")]
    assert len(names) > 10
    assert [name for name in [*names, DROPPED] if f"`{name}`" not in page] == []

"""Requests that wait for their model: bounded like all that wait, free to leave, and told why it did not come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from engine.actions.models.importing import import_local_model
from engine.engine import Engine
from engine.events import Event, ModelLoadComplete, ModelLoadError, ModelLoadProgress
from engine.generation.prepared import PreparedRequest
from engine.generation.request import GenerationRequest
from engine.library.records import ModelStatus
from engine.models.hardware import devices
from tests.conftest import CheckpointMaker
from tests.contract.conftest import ENDLESS, MODEL, Live, chat_body, start_engine, stop_engine
from tests.contract.raw import RawRequest
from tests.contract.stage import CHAT, TEXT
from tests.waiting import wait_until

OTHER = "tiny-qwen2"


@pytest.fixture
def two(own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker) -> Live:
    """``tiny-llama`` loaded, ``tiny-qwen2`` in the library, three places to wait."""
    engine = own_engine(checkpoint("llama"), MAX_PENDING_REQUESTS=3)
    import_local_model(engine.library, engine.events, checkpoint("qwen2"))
    return serve(engine)


@contextmanager
def held_load(engine: Engine) -> Iterator[Callable[[], None]]:
    """A load goes no further than its first step, until the end or until what is given is called."""
    go_on = threading.Event()
    subscription = engine.events.subscribe(lambda event: go_on.wait(60), ModelLoadProgress)
    try:
        yield go_on.set
    finally:
        subscription.close()
        go_on.set()


def waiting(live: Live, count: int) -> None:
    wait_until(lambda: live.engine.generation.stats().queue_waiting == count, f"{count} waiting requests")


def test_who_waits_for_a_model_counts(two: Live) -> None:
    with ThreadPoolExecutor(3) as pool, held_load(two.engine):
        first = [pool.submit(two.chat, model=OTHER) for _ in range(3)]
        waiting(two, 3)
        assert two.engine.generation.stats().queue_pending == 3
        for refused in (two.chat(model=OTHER), two.chat(model=OTHER, stream=True), two.text(model=OTHER)):
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "queue_full"
            assert int(refused.headers["Retry-After"]) >= 1
        with two.http() as client:
            vector = client.post("/v1/embeddings", json={"model": OTHER, "input": "x"})
        assert vector.json()["error"]["code"] == "queue_full"
        # The model that is still there has lanes, so nobody waits for those.
        assert two.chat().status_code == 200
    assert [each.result(120).status_code for each in first] == [200] * 3
    two.wait_idle()


def test_who_has_waited_for_a_model_is_not_overtaken(
    own_engine: Callable[..., Engine],
    serve: Callable[..., Live],
    checkpoint: CheckpointMaker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model is there, two requests that waited for it are being prepared, and others arrive meanwhile."""
    engine = own_engine(None, MAX_LANES=1, MAX_PENDING_REQUESTS=2)
    import_local_model(engine.library, engine.events, checkpoint("llama", max_positions=65536))
    live = serve(engine)
    prepare, go_on, held = engine.generation.prepare, threading.Event(), threading.Semaphore(2)

    def slowly(request: GenerationRequest) -> PreparedRequest:
        if held.acquire(blocking=False):
            assert go_on.wait(60)
        return prepare(request)

    monkeypatch.setattr(engine.generation, "prepare", slowly)
    with ThreadPoolExecutor(2) as pool:
        first = [pool.submit(live.chat) for _ in range(2)]
        wait_until(lambda: not held._value, "both to be prepared")
        assert engine.generation.stats().queue_waiting == 2
        with RawRequest(live, CHAT, chat_body(max_tokens=ENDLESS, ignore_eos=True)):
            wait_until(lambda: engine.generation.stats().in_flight == 1, "the free lane to be taken")
            late = live.chat()
            assert (late.status_code, late.json()["error"]["code"]) == (503, "queue_full")
            go_on.set()
            wait_until(lambda: len(engine._scheduler._waiting) == 2, "both to wait for the lane")
        assert [each.result(120).status_code for each in first] == [200, 200]
    live.wait_idle()


def test_who_leaves_frees_the_place(two: Live) -> None:
    with held_load(two.engine) as release:
        with ExitStack() as clients:
            for path in (CHAT, TEXT, CHAT):
                body = chat_body(model=OTHER) if path == CHAT else {"model": OTHER, "prompt": "x"}
                clients.enter_context(RawRequest(two, path, body))
            waiting(two, 3)
            wait_until(lambda: two.engine.shelf.loading is not None, "the load")
        waiting(two, 0)
        # The load that they began is still under way, and whoever comes now joins it.
        assert two.engine.shelf.loading is not None
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(two.chat, model=OTHER)
            waiting(two, 1)
            release()
            assert late.result(120).status_code == 200
    two.wait_idle()


def test_a_load_that_is_cancelled_is_told_to_all_who_wait(two: Live) -> None:
    heard: list[Event] = []
    subscription = two.engine.events.subscribe(heard.append, ModelLoadError)
    with ThreadPoolExecutor(2) as pool:
        with held_load(two.engine):
            asked = [pool.submit(two.chat, model=OTHER) for _ in range(2)]
            waiting(two, 2)
            wait_until(two.engine.loader.cancel, "a load to cancel")
        for each in asked:
            response = each.result(120)
            assert response.status_code == 409
            assert response.json()["error"]["code"] == "load_cancelled"
            assert response.json()["error"]["message"].startswith("Could not load 'tiny-qwen2': ")
    subscription.close()
    assert [event.data()["error"]["code"] for event in heard] == ["load_cancelled"]
    assert heard[0].data().keys() == {"model_id", "model_name", "error"}
    assert heard[0].data()["error"].keys() == {"code", "message"}


def test_a_load_that_takes_too_long(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    engine = own_engine(None, MODEL_LOAD_TIMEOUT=0.05)
    import_local_model(engine.library, engine.events, checkpoint("llama"))
    live = serve(engine)
    with held_load(engine):
        response = live.chat()
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "model_loading"
        assert response.headers["Retry-After"] == "15"
        assert "0.05 seconds" in response.json()["error"]["message"]
        assert engine.generation.stats().queue_pending == 0
    wait_until(lambda: engine.shelf.resident is not None, "the model")
    assert live.chat().status_code == 200


def test_another_model_during_an_unload(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    engine = own_engine(checkpoint("llama", max_positions=65536), GRACEFUL_UNLOAD_TIMEOUT=120)
    import_local_model(engine.library, engine.events, checkpoint("qwen2"))
    live = serve(engine)
    with RawRequest(live, CHAT, chat_body(max_tokens=ENDLESS, ignore_eos=True, stream=True)) as holder:
        holder.read_until(b'"content"')
        unloading = engine.loader.unload()
        for stream in (False, True):
            refused = live.chat(model=OTHER, stream=stream)  # A199
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "model_busy"
            assert int(refused.headers["Retry-After"]) >= 1
        holder.leave()
    unloading.result(60)
    assert live.chat(model=OTHER).status_code == 200


def test_too_little_memory_for_another_model(two: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    resident = two.engine.shelf.resident
    assert resident is not None
    # What the resident model would give back counts as free, so neither is enough.
    object.__setattr__(resident.info, "memory_bytes", 0)
    monkeypatch.setattr(devices, "available_memory", lambda device: 1000)
    for stream in (False, True):
        refused = two.chat(model=OTHER, stream=stream)
        assert refused.status_code == 503  # A184
        error = refused.json()["error"]
        assert (error["code"], error["type"]) == ("insufficient_memory", "server_error")  # A184
        assert error["message"].startswith("Could not load 'tiny-qwen2': ")  # A184
        assert "cpu" in error["message"]  # A184: the figures of each device
        assert " MB" in error["message"]
        assert refused.headers["Retry-After"] == "30"
    assert two.engine.shelf.resident is resident
    assert two.chat().status_code == 200  # A184


def test_each_load_is_told_from_its_start_to_its_end(two: Live) -> None:
    heard: list[str] = []
    kinds = (ModelLoadProgress, ModelLoadComplete, ModelLoadError)
    subscription = two.engine.events.subscribe(lambda event: heard.append(event.name), *kinds)
    assert two.chat(model=OTHER).status_code == 200
    wait_until(lambda: heard[-1:] == ["model:load:complete"], "the last word")
    assert heard[0] == "model:load:progress"  # A296
    assert set(heard) == {"model:load:progress", "model:load:complete"}
    subscription.close()


def test_after_a_restart(tmp_path: Path, serve: Callable[..., Live], checkpoint: CheckpointMaker) -> None:
    library = tmp_path / "kept.db"
    engine = start_engine(checkpoint("llama"), library)
    import_local_model(engine.library, engine.events, checkpoint("qwen2"))
    resident = engine.shelf.resolve(MODEL)
    engine.library.models.update(resident.id, locked=True)
    assert resident.status is ModelStatus.LOADED
    # The program ends without unloading.
    stop_engine(engine)
    engine = start_engine(None, library)
    try:
        live = serve(engine)
        row = engine.shelf.resolve(MODEL)
        assert (row.status, row.locked) == (ModelStatus.READY, False)  # A191
        with live.http() as client:
            listed = [item["id"] for item in client.get("/v1/models").json()["data"]]
        assert listed == [MODEL, OTHER]  # A191
        assert live.chat(model=OTHER).status_code == 200
        live.thread.stop(5)
    finally:
        stop_engine(engine)

"""A running server over a real socket, on the tiny model. One engine serves the whole session; servers are cheap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from openai import OpenAI

from engine.actions.models.importing import import_local_model
from engine.config import EngineSettings
from engine.engine import Engine
from engine.library.database import Library
from server.config import ServerSettings
from server.thread import ServerThread
from tests.conftest import CheckpointMaker
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.contract.stage import Stage

MODEL = "tiny-llama"

READY_S = 30.0
LONG = 1500
"""Tokens of an answer that is still being written when a test looks: the tiny model's window is 2,048."""

ENDLESS = 60_000
"""Tokens of an answer that only ends by being cancelled: minutes of work on the ``narrow`` engine."""


@dataclass(frozen=True)
class Live:
    """A running server, its engine, and the ways a client reaches it."""

    engine: Engine
    thread: ServerThread
    address: str

    @property
    def base(self) -> str:
        """The address without ``/v1``."""
        return self.address.removesuffix("/v1")

    @property
    def port(self) -> int:
        return int(self.base.rsplit(":", 1)[1])

    def sdk(self, **options: Any) -> OpenAI:
        """The official client, without retries: a test wants to see the first answer."""
        return OpenAI(**{"base_url": self.address, "api_key": "any", "max_retries": 0, "timeout": 120, **options})

    def http(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.base, timeout=120, **options)

    def chat(
        self, client: httpx.Client | None = None, headers: dict[str, str] | None = None, **body: Any
    ) -> httpx.Response:
        """One chat request with a short greedy answer unless ``body`` says otherwise."""
        return self._post("/v1/chat/completions", client, headers, chat_body(**body))

    def text(
        self, client: httpx.Client | None = None, headers: dict[str, str] | None = None, **body: Any
    ) -> httpx.Response:
        """One text completion, as :meth:`chat`."""
        return self._post("/v1/completions", client, headers, text_body(**body))

    def _post(
        self, path: str, client: httpx.Client | None, headers: dict[str, str] | None, body: dict[str, Any]
    ) -> httpx.Response:
        if client is not None:
            return client.post(path, json=body, headers=headers)
        with self.http() as own:
            return own.post(path, json=body, headers=headers)

    def wait_idle(self) -> None:
        """Until nothing waits and no lane runs."""
        wait_until(lambda: self.engine.generation.stats().queue_pending == 0, "an idle queue")


def chat_body(**changes: Any) -> dict[str, Any]:
    """A small valid chat body; a field set to ``...`` is left out."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "the quick brown fox"}],
        "max_tokens": 8,
        "temperature": 0,
        **changes,
    }
    return {key: value for key, value in body.items() if value is not ...}


def text_body(**changes: Any) -> dict[str, Any]:
    """A small valid text completion body; a field set to ``...`` is left out."""
    body = {"model": MODEL, "prompt": "the quick brown fox", "max_tokens": 8, "temperature": 0, **changes}
    return {key: value for key, value in body.items() if value is not ...}


def start_engine(folder: Path | None, library: Path, **settings: Any) -> Engine:
    """A started engine with its own library; with ``folder`` imported and loaded."""
    engine = Engine(EngineSettings(**{"DTYPE": "float32", "CPU_THREADS": 1, **settings}), Library.open(library))
    engine.start()
    if folder is not None:
        record = import_local_model(engine.library, engine.events, folder)
        engine.loader.load(record.id).result(120)
    return engine


def stop_engine(engine: Engine) -> None:
    stopped = engine.stop(30)
    engine.library.close()
    assert stopped, "the engine could not be stopped within 30 seconds"


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Iterator[Engine]:
    """The session's engine, with the tiny Llama loaded as ``tiny-llama``."""
    running = start_engine(tiny_checkpoint, tmp_path_factory.mktemp("contract") / "millm.db")
    yield running
    stop_engine(running)


@pytest.fixture(scope="session")
def live(engine: Engine) -> Iterator[Live]:
    """The session's server, with default guards."""
    thread = ServerThread(engine, ServerSettings(PORT=0))
    thread.start()
    yield Live(engine, thread, thread.wait_ready(READY_S))
    thread.stop(5)


@pytest.fixture(scope="session")
def narrow_engine(tmp_path_factory: pytest.TempPathFactory, checkpoint: CheckpointMaker) -> Iterator[Engine]:
    """One lane, three places in the queue, and a window so wide that answers can be endless."""
    running = start_engine(
        checkpoint("llama", max_positions=65536),
        tmp_path_factory.mktemp("narrow") / "millm.db",
        MAX_LANES=1,
        MAX_PENDING_REQUESTS=3,
    )
    yield running
    stop_engine(running)


@pytest.fixture(scope="session")
def narrow(narrow_engine: Engine) -> Iterator[Live]:
    """The server of the narrow engine."""
    thread = ServerThread(narrow_engine, ServerSettings(PORT=0))
    thread.start()
    yield Live(narrow_engine, thread, thread.wait_ready(READY_S))
    thread.stop(5)


@pytest.fixture(scope="session")
def steered_engine(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Iterator[Engine]:
    """Ten lanes, the tiny Llama, and SAEs that come and go with each test."""
    running = start_engine(tiny_checkpoint, tmp_path_factory.mktemp("steered") / "millm.db", MAX_LANES=10)
    yield running
    stop_engine(running)


@pytest.fixture(scope="session")
def steered(steered_engine: Engine) -> Iterator[Live]:
    """The server of the steered engine."""
    thread = ServerThread(steered_engine, ServerSettings(PORT=0))
    thread.start()
    yield Live(steered_engine, thread, thread.wait_ready(READY_S))
    thread.stop(5)


@pytest.fixture
def stage(steered: Live, tmp_path: Path) -> Iterator[Stage]:
    """The steered server with nothing attached and no profiles, before and after."""
    from tests.contract.stage import Stage

    made = Stage(steered, tmp_path)
    yield made
    made.clear()


@pytest.fixture(scope="session")
def gguf_engine(tmp_path_factory: pytest.TempPathFactory, gguf_file: Path) -> Iterator[Engine]:
    """The tiny Llama as a GGUF file, run by llama.cpp. Keys and values are as exact as the weights: a random model's
    logits lie so close together that the rounding of 16 bits would change its words.
    """
    running = start_engine(
        gguf_file,
        tmp_path_factory.mktemp("gguf-library") / "millm.db",
        GGUF_KV_CACHE_TYPE="f32",
        GGUF_FLASH_ATTENTION=False,
    )
    yield running
    stop_engine(running)


@pytest.fixture(scope="session")
def gguf(gguf_engine: Engine) -> Iterator[Live]:
    """The server of the GGUF engine. The bare name ``tiny-llama`` means its one model."""
    thread = ServerThread(gguf_engine, ServerSettings(PORT=0))
    thread.start()
    yield Live(gguf_engine, thread, thread.wait_ready(READY_S))
    thread.stop(5)


@pytest.fixture
def gguf_stage(gguf: Live, tmp_path: Path) -> Iterator[Stage]:
    """The GGUF server with nothing attached and no profiles, before and after."""
    from tests.contract.stage import Stage

    made = Stage(gguf, tmp_path)
    yield made
    made.clear()


@pytest.fixture
def own_engine(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """A function that starts an engine for one test; arguments as of ``start_engine`` without the library."""
    engines: list[Engine] = []

    def start(folder: Path | None, **settings: Any) -> Engine:
        engines.append(start_engine(folder, tmp_path / f"library-{len(engines)}.db", **settings))
        return engines[-1]

    yield start
    for running in engines:
        stop_engine(running)


@pytest.fixture
def serve() -> Iterator[Callable[..., Live]]:
    """A function that serves an engine with settings of the test's own."""
    threads: list[ServerThread] = []

    def start(engine: Engine, *, insecure: bool = False, **settings: Any) -> Live:
        thread = ServerThread(engine, ServerSettings(**{"PORT": 0, **settings}), insecure=insecure)
        threads.append(thread)
        thread.start()
        return Live(engine, thread, thread.wait_ready(READY_S))

    yield start
    for thread in threads:
        thread.stop(5)


@pytest.fixture(autouse=True)
def _leave_idle(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test hands a busy engine to the next: whatever it started must have ended or been cancelled."""
    yield
    for name in ("live", "narrow", "steered", "gguf"):
        if name in request.fixturenames:
            request.getfixturevalue(name).wait_idle()

"""Fixtures of the whole suite: an environment fit for two cores and no hub, tiny checkpoints, real engines on them."""

from __future__ import annotations

import os

# Before torch, transformers or Qt are imported anywhere.
os.environ.update(
    OMP_WAIT_POLICY="PASSIVE",
    GOMP_SPINCOUNT="0",
    HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
)
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.actions.models.importing import import_local_model
from engine.config import EngineSettings
from engine.engine import Engine
from engine.library.database import Library
from tests.gguf_files import build_gguf
from tests.hub import StandInHub, serving
from tests.tiny import build_checkpoint

CheckpointMaker = Callable[..., Path]
EngineMaker = Callable[..., Engine]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> CheckpointMaker:
    """A function from a family (and options of ``build_checkpoint``) to a checkpoint folder, built once per session."""
    built: dict[str, Path] = {}

    def make(family: str = "llama", **options: object) -> Path:
        key = f"{family}-{sorted(options.items())!r}"
        if key not in built:
            built[key] = build_checkpoint(tmp_path_factory.mktemp("checkpoint") / f"tiny-{family}", family, **options)  # type: ignore[arg-type]
        return built[key]

    return make


@pytest.fixture(scope="session")
def tiny_checkpoint(checkpoint: CheckpointMaker) -> Path:
    """The tiny Llama most tests run on; its folder, and so its library name, is ``tiny-llama``."""
    return checkpoint("llama")


@pytest.fixture(scope="session")
def gguf_file(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny Llama's own weights as a float32 GGUF file; its library name is ``tiny-llama:F32``."""
    return build_gguf(tiny_checkpoint, tmp_path_factory.mktemp("gguf") / "tiny-llama-F32.gguf")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    """A hub on loopback that this test's downloads come from."""
    with serving(monkeypatch) as running:
        yield running


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    """An empty library of its own."""
    opened = Library.open(tmp_path / "millm.db")
    yield opened
    opened.close()


@pytest.fixture
def make_engine(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Iterator[EngineMaker]:
    """A function that starts an engine with a library of its own and, unless told otherwise, the tiny model loaded."""
    started: list[tuple[Engine, Library]] = []

    def make(folder: Path | None = tiny_checkpoint, *, load: bool = True, **settings: object) -> Engine:
        opened = Library.open(tmp_path_factory.mktemp("library") / "millm.db")
        engine = Engine(EngineSettings(**{"DTYPE": "float32", "CPU_THREADS": 1, **settings}), opened)  # type: ignore[arg-type]
        started.append((engine, opened))
        engine.start()
        if folder is not None:
            record = import_local_model(opened, engine.events, folder)
            if load:
                engine.loader.load(record.id).result(120)
        return engine

    yield make
    for engine, opened in started:
        stopped = engine.stop(30)
        opened.close()
        assert stopped, "the engine could not be stopped within 30 seconds"

"""The tiny Llama on both engines, with the same float32 weights and float32 keys and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import EngineSettings
from engine.models.backends.llamacpp.backend import LlamaCppBackend
from engine.models.backends.llamacpp.placement import place
from engine.models.backends.transformers_backend import TransformersBackend
from engine.models.hardware.devices import DevicePlacement
from engine.models.inspection.gguf_file import inspect_gguf

BackendMaker = Callable[..., LlamaCppBackend]


def load(path: Path, **settings: Any) -> LlamaCppBackend:
    """A backend without an engine around it. Exact attention and exact keys and values, unless told otherwise."""
    exact = {"CPU_THREADS": 1, "GGUF_KV_CACHE_TYPE": "f32", "GGUF_FLASH_ATTENTION": False}
    placement = place(
        inspect_gguf(path), EngineSettings(**{**exact, **settings}), available=1 << 40, threads=1, gpu_supported=False
    )
    return LlamaCppBackend.load(placement, lambda share, stage: None)


@pytest.fixture(scope="session")
def reference(tiny_checkpoint: Path) -> TransformersBackend:
    """The transformers backend."""
    placement = DevicePlacement(torch.device("cpu"), torch.float32, "test")
    return TransformersBackend.load(tiny_checkpoint, placement, lambda share, stage: None)


@pytest.fixture(scope="module")
def backend(gguf_file: Path) -> Iterator[LlamaCppBackend]:
    """The llama.cpp backend of one test module."""
    made = load(gguf_file)
    yield made
    made.close()


@pytest.fixture
def make_backend(gguf_file: Path) -> Iterator[BackendMaker]:
    """A function that loads a backend with settings of the test's own."""
    made: list[LlamaCppBackend] = []

    def make(**settings: Any) -> LlamaCppBackend:
        made.append(load(gguf_file, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()

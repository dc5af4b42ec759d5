"""What several tests of actions start from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gguf_files import build_gguf, quantise


@pytest.fixture(scope="session")
def gguf_file(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Callable[[str], Path]:
    """A function from a tag (``F32`` or one of the quantiser's) to the tiny Llama in that format."""
    folder = tmp_path_factory.mktemp("gguf")
    source = build_gguf(tiny_checkpoint, folder / "tiny-F32.gguf")

    def make(tag: str) -> Path:
        target = folder / f"tiny-{tag}.gguf"
        return target if target.exists() else quantise(source, target, tag)

    return make


@pytest.fixture(scope="session")
def gguf_bytes(gguf_file: Callable[[str], Path]) -> Callable[[str], bytes]:
    """As ``gguf_file``, the bytes."""
    return lambda tag: gguf_file(tag).read_bytes()

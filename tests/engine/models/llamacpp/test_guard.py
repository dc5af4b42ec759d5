"""Files that llama.cpp itself gives up on, by ending the process: the load is refused, and the program goes on."""

from __future__ import annotations

import logging
import struct
from pathlib import Path

import pytest

from engine.errors import LoadCancelled, ModelLoadFailed
from engine.models.backends.llamacpp.guard import guarded
from engine.models.inspection.gguf_file import inspect_gguf
from tests.engine.models.llamacpp.conftest import load


def changed(source: Path, target: Path, key: str, layout: str, value: float) -> Path:
    """``source`` with another number in its header."""
    data = bytearray(source.read_bytes())
    place = data.index(key.encode()) + len(key) + 4
    struct.pack_into(layout, data, place, value)
    target.write_bytes(data)
    return target


@pytest.mark.parametrize(
    ("key", "layout", "value", "said"),
    [
        # The first is noticed while the header is read, the second while the first tokens are.
        ("llama.block_count", "<I", 600, "LLAMA_MAX_LAYERS"),
        ("llama.attention.layer_norm_rms_epsilon", "<f", -1.0, "eps >= 0.0f"),
    ],
)
def test_what_would_end_the_process_ends_the_load(
    gguf_file: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    key: str,
    layout: str,
    value: float,
    said: str,
) -> None:
    hostile = changed(gguf_file, tmp_path / "hostile-F32.gguf", key, layout, value)
    assert inspect_gguf(hostile).label == "F32"  # its header is sound, as far as that goes
    with caplog.at_level(logging.CRITICAL), pytest.raises(ModelLoadFailed) as caught:
        load(hostile)
    assert caught.value.message.startswith("llama.cpp gave up on hostile-F32.gguf: ") and said in caught.value.message
    assert "/" not in caught.value.message.split(said)[0] and caught.value.remedy
    # Nothing is held up by it.
    backend = load(gguf_file)
    assert backend.extend(backend.new_store(), [1, 2, 3]).shape == (400,)
    backend.close()


def test_what_a_load_gives_and_raises_comes_through() -> None:
    def cancelled() -> int:
        raise LoadCancelled("enough")

    assert guarded(lambda: 7, "x") == 7
    with pytest.raises(LoadCancelled, match="enough"):
        guarded(cancelled, "x")

"""How long a context is made, and what a setting can make impossible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineSettings
from engine.errors import EngineUnsupported, LoadCancelled, ModelLoadFailed
from engine.models.backends.backend import Steering
from engine.models.backends.llamacpp.backend import LlamaCppBackend
from engine.models.backends.llamacpp.model import LlamaModel
from engine.models.backends.llamacpp.placement import GgufPlacement, bytes_per_token, need, place, wants_gpu
from engine.models.inspection.gguf_file import GgufReport

GB = 1_000_000_000


def report(**changes: Any) -> GgufReport:
    """An 8 B model in four bits: 4.7 GB of weights, 131,072 bytes of KV a token in 16 bits."""
    facts: dict[str, Any] = {
        "path": Path("/x/big-Q4_K_M.gguf"),
        "files": (Path("/x/big-Q4_K_M.gguf"),),
        "label": "Q4_K_M",
        "quantization": "Q4",
        "name": "big",
        "architecture": "llama",
        "context_length": 131_072,
        "vocab_size": 128_256,
        "n_layers": 32,
        "d_model": 4096,
        "kv_width": 1024,
        "params": 8_000_000_000,
        "disk_size_bytes": 4_700_000_000,
        "estimated_memory_bytes": 5_640_000_000,
        "has_chat_template": True,
        "pipeline_tag": "text-generation",
        **changes,
    }
    return GgufReport(**facts)


def placed(found: GgufReport, available: int, **settings: Any) -> GgufPlacement:
    return place(found, EngineSettings(**settings), available=available, threads=3, gpu_supported=False)


@pytest.mark.parametrize(("kv_type", "expected"), [("f16", 131_072), ("f32", 262_144), ("q8_0", 69_632)])
def test_bytes_of_a_token(kv_type: str, expected: int) -> None:
    assert bytes_per_token(report(), kv_type) == expected


def test_the_window_is_the_files_own_up_to_the_setting() -> None:
    assert placed(report(), 64 * GB).window == 32_768
    assert placed(report(), 64 * GB, GGUF_CONTEXT_LENGTH=0).window == 131_072
    assert placed(report(context_length=8192), 64 * GB).window == 8192
    assert placed(report(), 64 * GB, GGUF_CONTEXT_LENGTH=2048).window == 2048


def test_short_memory_shortens_the_window_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    # 8 − 4.7 − 0.47 − 0.064 GB leave 2.766 GB: 21,102 tokens, in steps of 256.
    assert placed(report(), 8 * GB).window == 20_992
    assert "from 32768 to 20992 tokens" in caplog.text


def test_a_small_model_has_room_for_several_answers() -> None:
    # 30 layers × 2 × 192 values of 2 bytes: 23,040 bytes a token, 512 MB hold 22,222 of them.
    small = report(n_layers=30, kv_width=192, context_length=8192, disk_size_bytes=98_000_000)
    found = placed(small, 64 * GB)
    assert (found.window, found.cells) == (8192, 22_016)
    assert placed(small, 64 * GB, MAX_LANES=1).cells == 8192
    assert placed(report(), 64 * GB).cells == 32_768


def test_the_least_it_needs() -> None:
    found = need(report(), EngineSettings())
    assert (found.weights, found.kv_tokens, found.kv) == (4_700_000_000, 4096, 536_870_912)
    assert found.working == 470_000_000 + 64_000_000


def test_a_call_holds_a_token_of_every_sequence() -> None:
    for lanes in (1, 8, 256):
        found = placed(report(), 64 * GB, MAX_LANES=lanes, PREFILL_CHUNK=1)
        assert found.batch >= found.sequences > lanes or found.sequences == 256


def test_what_a_setting_makes_impossible() -> None:
    with pytest.raises(EngineUnsupported, match="flash attention"):
        placed(report(), 64 * GB, GGUF_KV_CACHE_TYPE="q8_0", GGUF_FLASH_ATTENTION=False)
    for device in ("cuda", "mps"):
        with pytest.raises(EngineUnsupported, match="CPU only"):
            wants_gpu(EngineSettings(DEVICE=device), supported=False)
    assert wants_gpu(EngineSettings(), supported=True) and not wants_gpu(EngineSettings(), supported=False)
    assert not wants_gpu(EngineSettings(DEVICE="cpu"), supported=True)


def test_layers_that_cannot_be_reached() -> None:
    Steering().check_layer(0)
    only_vectors = Steering(reads=False, rows=False, control=True, reason="2 of 4 layers can be read")
    only_vectors.check_layer(1)
    with pytest.raises(EngineUnsupported, match="layer 0"):
        only_vectors.check_layer(0)
    with pytest.raises(EngineUnsupported, match="2 of 4"):
        Steering(reads=False, rows=False, reason="2 of 4 layers can be read").check_layer(3)


def test_a_load_that_fails_or_is_cancelled_leaves_nothing(gguf_file: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 100)
    with pytest.raises(ModelLoadFailed, match=r"broken\.gguf"):
        LlamaModel.load(broken, 0, lambda share, stage: None)

    def cancel(share: float, stage: str) -> None:
        raise LoadCancelled("The load was cancelled.")

    with pytest.raises(LoadCancelled):
        LlamaCppBackend.load(placed(report(path=gguf_file), 64 * GB, GGUF_CONTEXT_LENGTH=256), cancel)

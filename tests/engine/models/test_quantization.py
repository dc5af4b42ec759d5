"""At which level a checkpoint can be held. What needs a GPU is tested up to the library's own call."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.errors import UnsupportedQuantization
from engine.models.inspection.quantization import Precision, check_quantization


def check(level: str | None, device: str = "cpu", *, stored_as: str | None = None, installed: bool = True) -> Precision:
    return check_quantization("tiny", level, stored_as=stored_as, device_type=device, installed=installed)


@pytest.mark.parametrize(
    ("level", "device", "expected"),
    [
        (None, "cpu", Precision(None)),
        ("FP32", "cpu", Precision("FP32")),
        ("FP16", "cpu", Precision("FP16")),
        ("FP16", "mps", Precision("FP16")),
        ("Q8", "cuda", Precision("Q8", 8)),
        ("Q4", "cuda", Precision("Q4", 4)),
    ],
)
def test_what_runs(level: str | None, device: str, expected: Precision) -> None:
    assert check(level, device) == expected


@pytest.mark.parametrize(
    ("level", "device", "installed", "words"),
    [
        ("Q2", "cuda", True, "2 bits"),
        ("Q2", "cpu", True, "2 bits"),
        ("Q4", "cpu", True, "NVIDIA GPU only, and this one goes to cpu"),
        ("Q8", "mps", True, "goes to mps"),
        ("Q4", "cuda", False, "bitsandbytes is not installed"),
        ("Q5", "cuda", True, "no such level"),
    ],
)
def test_what_is_refused(level: str, device: str, installed: bool, words: str) -> None:
    with pytest.raises(UnsupportedQuantization, match=words) as caught:
        check(level, device, installed=installed)
    assert caught.value.remedy and "'tiny'" in caught.value.message and level in caught.value.message


def test_a_checkpoint_that_is_stored_quantised_stays_as_it_is() -> None:
    assert check("Q2", stored_as="gptq") == Precision(None)


@pytest.mark.parametrize(
    ("level", "placed", "stored", "expected"),
    [
        (None, torch.float32, torch.bfloat16, torch.float32),
        ("FP32", torch.bfloat16, torch.bfloat16, torch.float32),
        ("FP16", torch.float32, torch.float32, torch.bfloat16),
        ("FP16", torch.float32, torch.float16, torch.float16),
        ("Q4", torch.bfloat16, torch.float16, torch.float16),
    ],
)
def test_number_formats(level: str | None, placed: torch.dtype, stored: torch.dtype, expected: torch.dtype) -> None:
    assert Precision(level).dtype(placed, stored) is expected


def test_what_the_library_is_given() -> None:
    assert Precision("FP16").config(torch.bfloat16) is None
    eight = Precision("Q8", 8).config(torch.bfloat16)
    assert (eight.load_in_8bit, eight.load_in_4bit) == (True, False)
    four = Precision("Q4", 4).config(torch.bfloat16)
    assert (four.load_in_4bit, four.bnb_4bit_quant_type, four.bnb_4bit_compute_dtype) == (True, "nf4", torch.bfloat16)


def test_estimates() -> None:
    assert Precision(None).bytes_per_value(torch.bfloat16) == 2
    assert Precision("Q8", 8).bytes_per_value(torch.bfloat16) == 1.1
    assert Precision("Q4", 4).bytes_per_value(torch.bfloat16) == 0.6


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU; nothing of bitsandbytes runs without one"
)
@pytest.mark.parametrize("bits", [8, 4])
def test_on_a_gpu(tiny_checkpoint: Path, bits: int) -> None:
    pytest.importorskip("bitsandbytes")
    from engine.models.backends.transformers_backend import TransformersBackend
    from engine.models.hardware.devices import DevicePlacement

    precision = Precision(f"Q{bits}", bits)
    placement = DevicePlacement(torch.device("cuda", 0), torch.bfloat16, "test")
    backend = TransformersBackend.load(
        tiny_checkpoint, placement, lambda share, stage: None, quantization=precision.config(torch.bfloat16)
    )
    logits = backend.extend(backend.new_store(), [1, 2, 3])
    assert bool(torch.isfinite(logits).all())
    assert backend.info.num_parameters == 62_752
    backend.close()

"""Loading checkpoints that pass inspection and still are not whole, and formats the machine must choose for itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import CheckpointInvalid, EngineUnsupported
from engine.models.backends.rehearsal import checkpoint_dtype
from engine.models.backends.transformers_backend import TransformersBackend
from engine.models.hardware import devices
from engine.models.hardware.devices import DevicePlacement, choose_device, choose_dtype

CPU32 = DevicePlacement(torch.device("cpu"), torch.float32, "test")


def no_report(share: float, stage: str) -> None:
    """A load nobody watches."""


def test_tensors_the_files_lack_are_refused_not_invented(tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gap"
    shutil.copytree(tiny_checkpoint, folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.2.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointInvalid, match=r"lack 1 tensor in .*layers\.2\.mlp\.up_proj"):
        TransformersBackend.load(folder, CPU32, no_report)


def test_tensors_of_another_shape_are_refused(tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shape"
    shutil.copytree(tiny_checkpoint, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(7, 32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointInvalid, match=r"layers\.1\.mlp\.up_proj"):
        TransformersBackend.load(folder, CPU32, no_report)


def test_end_tokens_are_those_of_the_generation_config_and_the_tokenizer(tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ends"
    shutil.copytree(tiny_checkpoint, folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 9]}')
    backend = TransformersBackend.load(folder, CPU32, no_report)
    assert backend.tokenizer.eos_ids == {2, 5, 9}


@pytest.mark.parametrize(
    ("listed", "named"), [("[2, null]", "null"), ('["</s>"]', 'the string "</s>"'), ("[1e400]", "the number inf")]
)
def test_end_tokens_that_are_none(tiny_checkpoint: Path, tmp_path: Path, listed: str, named: str) -> None:
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "ends")
    (folder / "generation_config.json").write_text(f'{{"eos_token_id": {listed}}}')
    with pytest.raises(CheckpointInvalid, match=f"has {named} among its end tokens"):
        TransformersBackend.load(folder, CPU32, no_report)


@pytest.mark.parametrize("marker", ["bos_token", "eos_token", "pad_token"])
def test_a_marker_that_is_an_empty_text(tiny_checkpoint: Path, tmp_path: Path, marker: str) -> None:
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "markers")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, marker: ""}))
    tokenizer = TransformersBackend.load(folder, CPU32, no_report).tokenizer
    assert tokenizer.decode(tokenizer.encode("the sea", False)) == "the sea"


@pytest.mark.parametrize(
    ("setting", "device", "checkpoint", "native", "expected"),
    [
        ("auto", "cpu", torch.bfloat16, False, torch.float32),
        ("auto", "cpu", torch.bfloat16, True, torch.bfloat16),
        ("auto", "cpu", torch.float16, True, torch.bfloat16),
        ("auto", "cpu", torch.float32, True, torch.float32),
        ("float16", "cpu", torch.float32, True, torch.float16),
        ("auto", "cuda", torch.float16, False, torch.float16),
        ("auto", "mps", torch.float64, False, torch.float16),
        ("float32", "mps", torch.bfloat16, False, torch.float32),
    ],
)
def test_the_number_format(
    setting: str,
    device: str,
    checkpoint: torch.dtype,
    native: bool,
    expected: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "cpu_has_native_bfloat16", lambda: native)
    assert choose_dtype(setting, torch.device(device), checkpoint)[0] is expected  # type: ignore[arg-type]


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto").type in {"cpu", "mps"}
    with pytest.raises(EngineUnsupported) as refusal:
        choose_device("cuda")
    assert refusal.value.param == "DEVICE"


def test_the_declared_format_of_a_checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> None:
    assert checkpoint_dtype(tiny_checkpoint) is torch.float32
    (tmp_path / "config.json").write_text('{"model_type": "llama", "dtype": "bfloat16"}')
    assert checkpoint_dtype(tmp_path) is torch.bfloat16

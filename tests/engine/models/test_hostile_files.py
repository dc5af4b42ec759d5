"""Any value at any place of a checkpoint's JSON files: the folder is refused in words, or described."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.errors import MillmError
from engine.models.inspection.checkpoint import inspect_checkpoint, read_config_facts
from engine.models.inspection.sampling_defaults import read_sampling_defaults
from tests.hostile import LONG, spoilt

CONFIG = {
    "eos_token_id": [2],
    "head_dim": 8,
    "quantization_config": {"quant_method": "x"},
    "auto_map": {"AutoConfig": "x"},
    "torch_dtype": "float32",
    "text_config": {"hidden_size": 3},
}
GENERATION = {
    "eos_token_id": [2],
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 3,
    "min_p": 0.1,
    "repetition_penalty": 1.0,
    "do_sample": True,
}
INDEX = {"metadata": {"total_size": 1}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
LARGEST = 2**63 - 1
"""Of what the library's columns hold."""


@pytest.fixture
def folder(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_checkpoint, tmp_path / "model")


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "tokenizer_config.json", "model.safetensors.index.json"]
)
def test_any_value_at_any_place(folder: Path, name: str) -> None:
    path = folder / name
    more = {"config.json": CONFIG, "generation_config.json": GENERATION}.get(name, {})
    sound: dict[str, Any] = {**(json.loads(path.read_text()) if path.exists() else INDEX), **more}
    if name == "model.safetensors.index.json":
        (folder / "model.safetensors").unlink()
    refusals = []
    for what, raw in spoilt(sound):
        path.write_bytes(raw)
        try:
            read_sampling_defaults(folder)
            found = inspect_checkpoint(folder)
        except MillmError as error:
            refusals.append((what, len(error.one_line())))
            continue
        except Exception as error:
            pytest.fail(f"{what}: {error!r}")
        for value in vars(found).values():
            assert not isinstance(value, int) or 0 <= value <= LARGEST, what
            assert not isinstance(value, str) or len(value) <= 200, what
    assert [each for each in refusals if each[1] > 3000] == []


def test_a_hub_config_is_read_whatever_it_holds() -> None:
    for what, raw in spoilt({"architectures": ["A"], "model_type": "llama", "hidden_size": 8, **CONFIG}):
        try:
            config = json.loads(raw)
        except ValueError:
            continue
        if not isinstance(config, dict):
            continue
        try:
            facts = read_config_facts(config)
        except Exception as error:
            pytest.fail(f"{what}: {error!r}")
        assert all(len(value) <= 200 for value in vars(facts).values() if isinstance(value, str)), what


def test_a_weight_file_of_a_name_that_no_file_can_have(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": LONG, "b": "\ud800\0"}}))
    with pytest.raises(MillmError) as caught:
        inspect_checkpoint(folder)
    (problem,) = caught.value.details["problems"]
    assert problem.startswith("2 of 2 weight files are missing: ")
    assert len(problem) < 400


def test_a_suggestion_beyond_every_double_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(f'{{"temperature": 1{"0" * 400}, "top_p": 1}}')
    assert read_sampling_defaults(tmp_path) == {"top_p": 1.0}

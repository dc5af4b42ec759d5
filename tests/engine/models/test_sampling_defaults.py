"""What a model's files say of how it reads best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.models.inspection.sampling_defaults import read_sampling_defaults


def said(folder: Path, **given: object) -> dict[str, Any]:
    (folder / "generation_config.json").write_text(json.dumps(given), encoding="utf-8")
    return read_sampling_defaults(folder)


def test_what_is_said_is_read(tmp_path: Path) -> None:
    found = said(tmp_path, do_sample=True, temperature=0.6, top_p=0.95, top_k=20, min_p=0.05, repetition_penalty=1.1)
    assert found == {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1}
    assert said(tmp_path, eos_token_id=2, _from_model_config=True) == {}
    # It is no word of a model's makers how long an answer is, or what a client adds.
    assert said(tmp_path, min_tokens=5, logit_bias={"1": 2}, seed=3, frequency_penalty=1.0) == {}
    # Greedy by the makers' word: what only shapes a draw has no part in it.
    greedy = said(tmp_path, do_sample=False, temperature=0.9, top_p=0.5, repetition_penalty=1.1)
    assert greedy == {"temperature": 0.0, "repetition_penalty": 1.1}


@pytest.mark.parametrize(
    "given",
    [
        {"temperature": 5, "top_p": 1.5, "top_k": -1, "min_p": -0.1, "repetition_penalty": 0},
        {"temperature": "0.6", "top_p": None, "top_k": 2.5, "min_p": True, "repetition_penalty": [1.1]},
    ],
)
def test_what_no_request_could_have_is_left_out(given: dict[str, object], tmp_path: Path) -> None:
    assert said(tmp_path, **given) == {}


@pytest.mark.parametrize("text", ["", "[]", "7", "{", "[" * 100_000, '{"temperature": NaN}', " " * 1_000_001])
def test_what_is_no_such_file_says_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(text, encoding="utf-8")
    assert read_sampling_defaults(tmp_path) == {}
    assert read_sampling_defaults(tmp_path / "nowhere") == {}

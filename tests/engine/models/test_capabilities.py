"""What a model can do, as its files tell and as the loaded model tells."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine.library.records import EngineKind, ModelRecord, ModelSource, ModelStatus
from engine.models.capabilities import ModelCapabilities, capabilities_of, template_of
from engine.models.inspection.fill_marks import FAMILIES, find_marks, holds_marks
from engine.models.inspection.template_facts import EFFORTS, effort_levels, thinks
from tests.conftest import CheckpointMaker, EngineMaker
from tests.gguf_files import build_gguf
from tests.tiny import THINKING_TEMPLATE

QWEN = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>")


def row(path: Path, engine: EngineKind = EngineKind.TRANSFORMERS) -> ModelRecord:
    return ModelRecord("m", ModelSource.LOCAL, engine, local_path=str(path), status=ModelStatus.READY)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ messages }}", False),
        ("{% if enable_thinking %}x{% endif %}", True),
        ("{% if enable_thinking_more %}x{% endif %}", False),
        ("{# enable_thinking, <think> #}{{ messages }}", False),
        ("{{ '<think>\n' }}", True),
        # One that only leaves former thoughts out does not think.
        ("{{ content.split('</think>')[-1] }}", False),
    ],
)
def test_templates_that_think(template: str, expected: bool) -> None:
    assert thinks(template) is expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ messages }}", ()),
        ("{# reasoning_effort #}{{ messages }}", ()),
        ("{{ 'medium high low' }}", ()),
        ("{% if reasoning_effort == 'high' %}a{% elif reasoning_effort == \"low\" %}b{% endif %}", ("low", "high")),
        ("{% if reasoning_effort not in ['max', 'none', 'minimal'] %}{% endif %}", ("none", "minimal", "max")),
        ("{% set reasoning_effort = 'medium' %}{{ 'Reasoning: ' + reasoning_effort }}", EFFORTS),
    ],
)
def test_levels_of_reasoning(template: str, expected: tuple[str, ...]) -> None:
    assert effort_levels(template) == expected


def test_marks_of_each_family() -> None:
    for family in FAMILIES:
        vocabulary = {mark: 100 + place for place, mark in enumerate((*family.required, *family.others))}
        found = find_marks(vocabulary.get)
        assert found is not None
        assert (found.prefix, found.suffix, found.middle) == (100, 101, 102)
        assert found.ends == frozenset(vocabulary.values())
        for mark in family.required:
            assert find_marks({name: i for name, i in vocabulary.items() if name != mark}.get) is None
            assert not holds_marks(lambda name, gone=mark, there=vocabulary: name in there and name != gone)
    assert find_marks({"<fim_prefix>": 0, "<|fim_suffix|>": 1, "<fim_middle>": 2}.get) is None


def test_a_checkpoint_that_is_not_loaded(checkpoint: CheckpointMaker) -> None:
    plain = capabilities_of(row(checkpoint("llama")), None)
    assert plain == ModelCapabilities(None, False, False, False, False, False, True, True)
    marked = checkpoint("llama", marks=QWEN, chat_template=THINKING_TEMPLATE)
    told = capabilities_of(row(marked), None)
    assert (told.thinking, told.fim) == (True, True)
    assert template_of(row(marked)) == THINKING_TEMPLATE
    bare = checkpoint("llama", chat_template=None)
    assert capabilities_of(row(bare), None).thinking is False
    assert template_of(row(bare)) is None


def test_files_that_are_not_there_or_changed(checkpoint: CheckpointMaker, tmp_path: Path) -> None:
    gone = capabilities_of(row(tmp_path / "gone"), None)
    assert (gone.thinking, gone.reasoning_effort, gone.fim) == (None, None, None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ '<think>' }}"}))
    assert capabilities_of(row(tmp_path), None).thinking is True
    assert capabilities_of(row(tmp_path), None).fim is None  # its vocabulary is in no file we read
    named = [{"name": "tool_use", "template": "<think>"}, {"name": "default", "template": "plain"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    os.utime(tmp_path / "tokenizer_config.json", ns=(1, 1))
    assert capabilities_of(row(tmp_path), None).thinking is False
    (tmp_path / "tokenizer_config.json").write_text("no json")
    assert capabilities_of(row(tmp_path), None).thinking is None
    # Some writers of JSON escape what is not ASCII.
    (tmp_path / "vocab.json").write_text(json.dumps({"▁<PRE>": 0, "▁<SUF>": 1, "▁<MID>": 2, "▁<EOT>": 3}))
    assert capabilities_of(row(tmp_path), None).fim is True


@pytest.mark.parametrize("loaded", [False, True])
def test_a_gguf(checkpoint: CheckpointMaker, make_engine: EngineMaker, tmp_path: Path, loaded: bool) -> None:
    source = checkpoint("llama", marks=QWEN, chat_template=THINKING_TEMPLATE)
    path = build_gguf(source, tmp_path / "m-F32.gguf")
    if not loaded:
        told = capabilities_of(row(path, EngineKind.LLAMACPP), None)
        assert (told.thinking, told.fim, told.steering) == (True, True, None)
        return
    resident = make_engine(path).shelf.resident
    assert resident is not None
    told = capabilities_of(resident.record, resident)
    assert (told.thinking, told.fim) == (True, True)
    assert isinstance(told.steering, bool)


def test_a_loaded_checkpoint_and_the_shelf(checkpoint: CheckpointMaker, make_engine: EngineMaker) -> None:
    engine = make_engine(checkpoint("llama", marks=QWEN, chat_template=THINKING_TEMPLATE))
    resident = engine.shelf.resident
    assert resident is not None
    told = capabilities_of(resident.record, resident)
    assert told == ModelCapabilities("generic", True, False, True, False, False, True, True)
    assert engine.models.list()[0].capabilities == told

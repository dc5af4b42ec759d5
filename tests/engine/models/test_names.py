"""What models are called and which row a name means."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath

import pytest

from engine.errors import AmbiguousModelName, InvalidParameter, ModelNotFound, ModelNotGenerative
from engine.library.records import EngineKind, ModelRecord, ModelSource, ModelStatus
from engine.models.inspection.names import (
    check_custom_name,
    check_generative,
    default_name,
    hub_snapshot,
    is_generative,
    resolve_name,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def row(
    number: int, name: str, *, label: str | None = None, repo: str | None = None, tag: str | None = "text-generation"
) -> ModelRecord:
    return ModelRecord(
        id=number,
        name=name,
        source=ModelSource.LOCAL,
        engine=EngineKind.LLAMACPP if label else EngineKind.TRANSFORMERS,
        repo_id=repo,
        local_path=None,
        params=None,
        architecture=None,
        quantization=None,
        gguf_label=label,
        revision=None,
        pipeline_tag=tag,
        context_length=None,
        has_chat_template=None,
        disk_size_mb=None,
        estimated_memory_mb=None,
        trust_remote_code=False,
        status=ModelStatus.READY,
        error_message=None,
        locked=False,
        created_at=NOW,
        updated_at=NOW,
        loaded_at=None,
        last_used_at=None,
    )


@pytest.mark.parametrize(
    ("repo", "path", "label", "name"),
    [
        ("HuggingFaceTB/SmolLM2-135M-Instruct", None, None, "SmolLM2-135M-Instruct"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", None, "Q4_1", "SmolLM2-135M-Instruct:Q4_1"),
        ("owner/name/", "/somewhere/else", None, "name"),
        (None, "/models/my model", None, "my model"),
        (None, "/models/llama-3.2-1b", None, "llama-3.2-1b"),
        (None, "/models/smol-Q4_K_M.gguf", "Q4_K_M", "smol:Q4_K_M"),
        (None, "/models/smol.q4_1.GGUF", "Q4_1", "smol:Q4_1"),
        (None, "/models/smol.gguf", "Q4_1", "smol:Q4_1"),
        (None, "/models/Q4_1.gguf", "Q4_1", "Q4_1:Q4_1"),
        (None, "/models/two\nlines ", None, "twolines"),
        (None, "/models/東京", None, "東京"),
    ],
)
def test_default_names(repo: str | None, path: str | None, label: str | None, name: str) -> None:
    assert default_name(repo_id=repo, path=PurePosixPath(path) if path else None, gguf_label=label) == name


def test_a_root_folder_has_no_name() -> None:
    with pytest.raises(ValueError):
        default_name(path=PurePosixPath("/"))
    with pytest.raises(ValueError):
        default_name()


@pytest.mark.parametrize("name", ["a", "org/model:Q4", "x" * 100, "Ünïcödé 東京 🙂", "با\u200cهم"])
def test_good_names_stay_untouched(name: str) -> None:
    assert check_custom_name(name) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("x" * 101, "101 characters"),
        (" a", "blank"),
        ("a\t", "blank"),
        ("a\nb", "cannot be shown"),
        ("a\x00b", "cannot be shown"),
        ("a\ud800", "cannot be shown"),
        ("a\u2028b", "cannot be shown"),
    ],
)
def test_bad_names_are_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(InvalidParameter, match=why) as caught:
        check_custom_name(name)
    assert caught.value.param == "custom_name"
    assert len(caught.value.message) < 400
    caught.value.message.encode()


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (
            "/home/me/.cache/huggingface/hub/models--HuggingFaceTB--SmolLM2-135M/snapshots/12fd25f77366fa6b3b4b768ec3050bf629380bac",
            ("HuggingFaceTB/SmolLM2-135M", "12fd25f77366fa6b3b4b768ec3050bf629380bac"),
        ),
        ("/c/models--a--b--c/snapshots/main", ("a/b--c", "main")),
        ("/c/models--a--b/refs/main", None),
        ("/c/datasets--a--b/snapshots/main", None),
        ("/models/snapshots/x", None),
        ("/x", None),
    ],
)
def test_snapshots_of_a_hub_cache(path: str, found: tuple[str, str] | None) -> None:
    assert hub_snapshot(PurePosixPath(path)) == found


ROWS = [
    row(1, "smol"),
    row(2, "big:Q4_1", label="Q4_1", repo="o/big"),
    row(3, "big:Q8_0", label="Q8_0", repo="o/big"),
    row(4, "one:Q2_K", label="Q2_K", repo="o/one"),
    row(5, "mine", label="Q6_K", repo="o/renamed"),
    row(6, "both"),
    row(7, "both:Q4_0", label="Q4_0", repo="o/both"),
]


@pytest.mark.parametrize(
    ("name", "number"),
    [("smol", 1), ("big:Q8_0", 3), ("one:Q2_K", 4), ("one", 4), ("renamed", 5), ("mine", 5), ("both", 6)],
)
def test_a_name_means_one_row(name: str, number: int) -> None:
    assert resolve_name(name, ROWS).id == number


def test_an_ambiguous_name_lists_the_tags() -> None:
    with pytest.raises(AmbiguousModelName) as caught:
        resolve_name("big", ROWS)
    assert caught.value.param is None
    assert caught.value.message == "The name 'big' fits 2 models: big:Q4_1, big:Q8_0."
    assert caught.value.details == {"name": "big", "candidates": ["big:Q4_1", "big:Q8_0"]}


@pytest.mark.parametrize("name", ["", "Smol", "smo", "o/big", "big:", "big:q4_1", ":Q4_1", "\ud800"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        resolve_name(name, ROWS)
    assert caught.value.param == "model"
    assert "Available: smol, big:Q4_1, big:Q8_0, one:Q2_K, mine and 2 more." in caught.value.message
    caught.value.message.encode()


def test_an_enormous_name_makes_no_enormous_message() -> None:
    with pytest.raises(ModelNotFound) as caught:
        resolve_name("x" * 5_000_000, ROWS[:1])
    assert caught.value.message == f"There is no model named '{'x' * 100}'…. Available: smol."


def test_an_empty_library_says_so() -> None:
    with pytest.raises(ModelNotFound, match="no models yet"):
        resolve_name("smol", [])


@pytest.mark.parametrize(
    "tag",
    [
        "sentence-similarity",
        "feature-extraction",
        "sentence-transformers",
        "text-embedding",
        "zero-shot-classification",
        "text-classification",
        "token-classification",
    ],
)
def test_models_that_cannot_write(tag: str) -> None:
    record = row(1, "embedder", tag=tag)
    assert not is_generative(record)
    with pytest.raises(ModelNotGenerative, match=f"'embedder' is made for {tag}") as caught:
        check_generative(record)
    assert caught.value.param == "model"


@pytest.mark.parametrize("tag", ["text-generation", "image-text-to-text", None])
def test_models_that_can_write(tag: str | None) -> None:
    check_generative(row(1, "writer", tag=tag))


def test_a_checkpoint_held_at_another_level_answers_to_its_plain_name() -> None:
    held = replace(row(1, "smol:Q8"), quantization="Q8")
    assert resolve_name("smol", [held]) == held
    other = replace(row(2, "smol:FP16"), quantization="FP16")
    with pytest.raises(AmbiguousModelName, match="smol:FP16, smol:Q8"):
        resolve_name("smol", [held, other])
    plain = row(3, "smol")
    assert resolve_name("smol", [held, other, plain]) == plain

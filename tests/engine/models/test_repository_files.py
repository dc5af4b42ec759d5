"""Which files of a repository make a model: pure choices over a listing."""

from __future__ import annotations

import pytest

from engine.errors import CheckpointInvalid, InvalidParameter
from engine.models.hub.client import HubFile, Repository, check_repo_id, is_plain_path
from engine.models.hub.repository_files import checkpoint_files, choose_gguf, companions, gguf_quants


def repository(*paths: str) -> Repository:
    files = tuple(HubFile(path, 100 + number, None, None) for number, path in enumerate(sorted(paths)))
    return Repository("made/x", "main", "c", None, False, False, None, files)


def test_a_checkpoint_leaves_out_what_is_not_needed() -> None:
    found = checkpoint_files(
        repository(
            "README.md", "LICENSE", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
            "pytorch_model.bin", "onnx/model.onnx", "original/consolidated.00.pth", "consolidated.safetensors",
            "model-00001-of-00002.safetensors", "modeling_x.py", "x-Q8_0.gguf", "tf_model.h5",
            "additional_chat_templates/tools.jinja",
        )
    )  # fmt: skip
    assert [file.path for file in found] == [
        "LICENSE",
        "README.md",
        "additional_chat_templates/tools.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ]


def test_shards_and_code() -> None:
    listing = repository(
        "config.json",
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "modeling_x.py",
        "sub/other.py",
    )
    assert len(checkpoint_files(listing)) == 4
    assert [file.path for file in checkpoint_files(listing, with_code=True)][-1] == "modeling_x.py"


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (("config.json", "pytorch_model.bin"), "pickle"),
        (("adapter_config.json",), "LoRA"),
        (("README.md",), "no language model"),
    ],
)
def test_no_checkpoint(paths: tuple[str, ...], words: str) -> None:
    with pytest.raises(CheckpointInvalid, match=words):
        checkpoint_files(repository(*paths))


GGUFS = repository(
    "a-Q4_K_M.gguf",
    "Q8_0/a-Q8_0-00001-of-00002.gguf",
    "Q8_0/a-Q8_0-00002-of-00002.gguf",
    "BF16/a.gguf",
    "mmproj-a-F16.gguf",
    "imatrix_a.gguf",
)


def test_quantisations() -> None:
    found = {quant.label: (len(quant.files), quant.is_split) for quant in gguf_quants(GGUFS)}
    assert found == {"Q4_K_M": (1, False), "Q8_0": (2, True), "BF16": (1, False)}
    assert [file.path for file in companions(GGUFS)] == ["imatrix_a.gguf", "mmproj-a-F16.gguf"]


def test_choosing_one() -> None:
    label, files = choose_gguf(GGUFS, None, "q8_0")
    assert (label, [file.path for file in files]) == (
        "Q8_0",
        ["Q8_0/a-Q8_0-00001-of-00002.gguf", "Q8_0/a-Q8_0-00002-of-00002.gguf"],
    )
    assert choose_gguf(GGUFS, ["BF16/a.gguf"], None)[0] == "BF16"
    assert choose_gguf(GGUFS, ["BF16/a.gguf"], "mine")[0] == "mine"
    for names, label in (
        (["Q8_0/a-Q8_0-00001-of-00002.gguf"], None),
        (["a-Q4_K_M.gguf", "BF16/a.gguf"], None),
        (["nothing.gguf"], None),
        (None, "Q2_K"),
        (None, None),
    ):
        with pytest.raises(InvalidParameter):
            choose_gguf(GGUFS, names, label)
    with pytest.raises(InvalidParameter, match="GGUF files only"):
        checkpoint_files(GGUFS)


@pytest.mark.parametrize("path", ["", "../x", "a/../x", "/x", "a//b", "a\\b", "C:x", "a/./b", "x\0"])
def test_paths_that_lead_elsewhere(path: str) -> None:
    assert not is_plain_path(path)


@pytest.mark.parametrize("repo_id", ["", "x", "a/b/c", "a/..", "../a", "a b/c", "a/b.git", "ä/b", "a/" + "b" * 300])
def test_names_that_are_no_repository(repo_id: str) -> None:
    with pytest.raises(InvalidParameter):
        check_repo_id(repo_id)


def test_names_that_are() -> None:
    for repo_id in ("HuggingFaceTB/SmolLM2-135M-Instruct", "google/gemma-scope-2b-pt-res", "a_b/c.d_e-f"):
        assert check_repo_id(repo_id) == repo_id

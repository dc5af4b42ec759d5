"""Hook names, ids and what paths tell."""

from __future__ import annotations

from pathlib import PurePosixPath, PureWindowsPath

import pytest

from engine.errors import InvalidParameter
from engine.saes.config import HookKind
from engine.saes.hooks import parse_hook, prefer_hf, resid_post_name
from engine.saes.ids import check_sae_id, id_from_folder, id_from_hub
from engine.saes.path_facts import (
    gemma_2_from_path,
    gemma_3_from_path,
    l0_from_path,
    layer_from_path,
    width_from_path,
)


@pytest.mark.parametrize(
    ("name", "kind", "layer"),
    [
        ("blocks.12.hook_resid_post", HookKind.RESID_POST, 12),
        ("blocks.12.hook_resid_pre", HookKind.RESID_PRE, 11),
        ("blocks.0.hook_resid_pre", HookKind.RESID_PRE, None),
        ("blocks.12.resid-post", HookKind.RESID_POST, 12),
        ("blocks.12.resid-pre", HookKind.RESID_PRE, 11),
        ("blocks.7.hook_mlp_out", HookKind.MLP_OUT, 7),
        ("blocks.7.attn.hook_z", HookKind.ATTN_Z, 7),
        ("blocks.7.hook_resid_mid", HookKind.OTHER, 7),
        ("blocks.7.ln2.hook_normalized", HookKind.OTHER, 7),
        ("model.layers.3", HookKind.RESID_POST, 3),
        ("model.layers.3.output", HookKind.RESID_POST, 3),
        ("model.layers.3.input", HookKind.RESID_PRE, 2),
        ("model.language_model.layers.3", HookKind.RESID_POST, 3),
        ("model.decoder.layers.3", HookKind.RESID_POST, 3),
        ("gpt_neox.layers.3", HookKind.RESID_POST, 3),
        ("transformer.h.10", HookKind.RESID_POST, 10),
        ("h.10", HookKind.RESID_POST, 10),
        ("layers.10", HookKind.RESID_POST, 10),
        ("layers.10.mlp", HookKind.MLP_OUT, 10),
        ("model.layers.3.post_feedforward_layernorm.output", HookKind.MLP_OUT, 3),
        ("model.layers.3.self_attn.o_proj.input", HookKind.ATTN_Z, 3),
        ("model.layers.3.self_attn", HookKind.OTHER, 3),
        ("model.layers.3.pre_feedforward_layernorm.output", HookKind.OTHER, 3),
        ("encoder.layer.2", HookKind.RESID_POST, 2),
        ("layer_4", HookKind.RESID_POST, 4),
        ("layer4", HookKind.RESID_POST, 4),
        ("L15R", HookKind.RESID_POST, 15),
        ("L15M", HookKind.MLP_OUT, 15),
        ("L15TC", HookKind.OTHER, 15),
        ("resid_post_layer_8", HookKind.RESID_POST, 8),
        ("attention_out_layer_8", HookKind.OTHER, 8),
        ("hook_embed", HookKind.OTHER, None),
        ("", HookKind.OTHER, None),
        ("blocks.x.hook_resid_post", HookKind.OTHER, None),
        ("blocks.1234567.hook_resid_post", HookKind.OTHER, None),
        pytest.param(f"blocks.{'9' * 5000}.hook_resid_post", HookKind.OTHER, None, id="lens-long"),
        pytest.param(f"model.layers.{'9' * 5000}.mlp", HookKind.OTHER, None, id="module-long"),
        pytest.param(f"layer_{'9' * 5000}", HookKind.OTHER, None, id="layer-long"),
        pytest.param(f"L{'9' * 5000}R", HookKind.OTHER, None, id="moss-long"),
        pytest.param(f"resid_post_layer_{'9' * 5000}", HookKind.OTHER, None, id="submodule-long"),
    ],
)
def test_hook_names(name: str, kind: HookKind, layer: int | None) -> None:
    point = parse_hook(name)
    assert (point.kind, point.layer, point.name) == (kind, layer, name)


def test_the_hugging_face_name_wins_where_it_can_be_read() -> None:
    lens = "blocks.2.hook_resid_post"
    for hf, name, chosen in (
        ("model.layers.1", lens, "model.layers.1"),
        ("something.strange", lens, lens),
        (None, lens, lens),
        ("something.strange", None, "something.strange"),
    ):
        point = prefer_hf(hf, name)
        assert point is not None and point.name == chosen
    assert prefer_hf(None, "") is None
    assert parse_hook(resid_post_name(6)).layer == 6


@pytest.mark.parametrize("sae_id", ["a", "org--repo--layer_7", "x@rev", "A.b_c-d", "a" * 100])
def test_allowed_ids(sae_id: str) -> None:
    assert check_sae_id(sae_id) == sae_id


@pytest.mark.parametrize("sae_id", ["", "a" * 101, "a b", "a/b", "a\\b", "ü", "a\n", ".", "..", 7, None])
def test_other_ids_are_refused(sae_id: object) -> None:
    with pytest.raises(InvalidParameter) as caught:
        check_sae_id(sae_id)  # type: ignore[arg-type]
    assert caught.value.param == "sae_id"


@pytest.mark.parametrize(
    ("folder", "layer", "expected"),
    [
        ("my sae", 4, "my-sae--layer_4"),
        ("layer_4", 4, "layer_4"),
        ("layers.4", 4, "layers.4"),
        ("layer_4", 5, "layer_4--layer_5"),
        ("average_l0_71", 20, "average_l0_71--layer_20"),
        ("Übung (neu)", None, "Ubung-neu"),
        ("漢字", None, "sae"),
        (".hidden", None, "hidden"),
        ("..", None, "sae"),
        ("a" * 150, 12, "a" * 90 + "--layer_12"),
    ],
)
def test_ids_from_folders(folder: str, layer: int | None, expected: str) -> None:
    made = id_from_folder(PurePosixPath("/somewhere") / folder, layer)
    assert made == expected
    assert check_sae_id(made) == made


def test_ids_from_the_hub() -> None:
    assert id_from_hub("org/repo") == "org--repo"
    assert id_from_hub("org/repo", file_path="params.npz") == "org--repo"
    assert id_from_hub("org/repo", file_path="layer_7/width_16k/params.npz") == "org--repo--layer_7--width_16k"
    assert id_from_hub("org/repo", revision="v2", file_path="a/b.npz") == "org--repo@v2--a"
    assert id_from_hub("org/repo", revision="refs/pr/1") == "org--repo@refs--pr--1"


def test_long_hub_paths_stay_different() -> None:
    long = "x" * 120
    first, second = (id_from_hub("org/repo", file_path=f"{long}/{end}/f.npz") for end in ("a", "b"))
    assert first != second
    for made in (first, second):
        assert len(made) <= 100
        assert check_sae_id(made) == made


@pytest.mark.parametrize("repo_id", ["repo", "a/b/c", "a b/c", "", "ü/x", "a" * 300 + "/b"])
def test_what_is_no_repository(repo_id: str) -> None:
    with pytest.raises(InvalidParameter):
        id_from_hub(repo_id)


@pytest.mark.parametrize(
    ("path", "layer", "width", "l0"),
    [
        ("gemma-scope-2b-pt-res/layer_20/width_16k/average_l0_71", 20, "16k", 71.0),
        ("resid_post/layer_12_width_262k_l0_medium", 12, "262k", None),
        ("layers.12.mlp", 12, None, None),
        ("layer0.sae.pt", 0, None, None),
        ("Llama-3.1-8B-Instruct-SAE-l19.pth", 19, None, None),
        ("x/l0_40/params", None, None, 40.0),
        ("model-l0-40", None, None, 40.0),
        ("layer_3/layer_5", 5, None, None),
        ("multilayer3/v2", None, None, None),
        ("layer_20/layer_12345678901234567890", 20, None, None),
        pytest.param(f"layer_{'9' * 5000}", None, None, None, id="long"),
    ],
)
def test_what_paths_tell(path: str, layer: int | None, width: str | None, l0: float | None) -> None:
    assert (layer_from_path(path), width_from_path(path), l0_from_path(path)) == (layer, width, l0)


def test_gemma_in_paths() -> None:
    assert gemma_2_from_path("google--gemma-scope-2b-pt-res--layer_20") == ("google/gemma-2-2b", "res")
    assert gemma_2_from_path("gemma-scope-27b-pt-att/x") == ("google/gemma-2-27b", "att")
    assert gemma_2_from_path("gemma-scope-9b-it-res") == ("google/gemma-2-9b-it", "res")
    assert gemma_2_from_path("gemma-scope-2b-pt-transcoders") == ("google/gemma-2-2b", "transcoder")
    assert gemma_2_from_path("gemma-scope-2-4b-pt") is None
    assert gemma_3_from_path("gemma-scope-2-4b-pt/resid_post") == "google/gemma-3-4b-pt"
    assert gemma_3_from_path("gemma-scope-2-270m-it") == "google/gemma-3-270m-it"
    assert gemma_3_from_path("gemma-scope-2b-pt-res") is None
    assert gemma_2_from_path(PureWindowsPath(r"C:\saes\gemma-scope-2b-pt-mlp\layer_1")) == ("google/gemma-2-2b", "mlp")

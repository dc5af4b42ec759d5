"""The demo model as it was installed: weights, tokenizer and template, against the GGUF itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.demo.convert import convert
from app.demo.files import sha256_of
from app.demo.pack import SMOLLM2, PackPaths, status
from app.paths import Paths
from tests.app.processes import ROOT

pytestmark = pytest.mark.demo


@pytest.fixture(scope="module")
def places() -> PackPaths:
    paths = Paths(ROOT / ".data")
    if not status(paths).installed:
        pytest.skip("the demo model is not installed: python -m app demo install --data-dir .data")
    return PackPaths.of(paths, SMOLLM2)


@pytest.fixture(scope="module")
def tokenizer(places: PackPaths) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(places.checkpoint))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_converted_it_is_what_transformers_made_of_it(places: PackPaths, tmp_path: Path) -> None:
    # The pinned digests are those of a conversion by transformers 5.24.
    shares: list[float] = []
    made = convert(SMOLLM2, places.gguf_file, tmp_path, shares.append)
    assert made == SMOLLM2.checkpoint_sha256
    assert made == {path.name: sha256_of(path) for path in tmp_path.iterdir()}
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


def test_config_and_generation_config(places: PackPaths) -> None:
    config = read_json(places.checkpoint / "config.json")
    assert "quantization_config" not in config
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["num_hidden_layers"], config["hidden_size"], config["vocab_size"]) == (30, 576, 49152)
    assert (config["max_position_embeddings"], config["tie_word_embeddings"]) == (8192, True)
    assert config["rope_parameters"]["rope_theta"] == 100000.0
    assert config["dtype"] == "bfloat16"
    generation = read_json(places.checkpoint / "generation_config.json")
    assert (generation["bos_token_id"], generation["eos_token_id"], generation["pad_token_id"]) == (1, 2, 2)


def test_weights_are_the_ggufs_rounded_to_bfloat16(places: PackPaths) -> None:
    import torch
    from gguf import GGUFReader, dequantize
    from safetensors import safe_open

    reader = GGUFReader(places.gguf_file)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    with safe_open(str(places.checkpoint / "model.safetensors"), framework="pt") as weights:
        names = set(weights.keys())
        for theirs, ours in (
            ("token_embd.weight", "model.embed_tokens.weight"),
            ("output_norm.weight", "model.norm.weight"),
            ("blk.7.ffn_down.weight", "model.layers.7.mlp.down_proj.weight"),
            ("blk.29.attn_v.weight", "model.layers.29.self_attn.v_proj.weight"),
        ):
            tensor = tensors[theirs]
            expected = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).to(torch.bfloat16)
            assert torch.equal(weights.get_tensor(ours).flatten(), expected.flatten()), ours
    assert "lm_head.weight" not in names, "the output head is the embedding and is stored once"
    assert len(names) == 272


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("hello world", ["hello", "Ġworld"]),
        ("in 2024", ["in", "Ġ", "2", "0", "2", "4"]),
        ("a  1", ["a", "ĠĠ", "1"]),
        ("x   42", ["x", "ĠĠĠ", "4", "2"]),
        ("a  b", ["a", "Ġ", "Ġb"]),
        ("<|im_start|>user\n", ["<|im_start|>", "user", "Ċ"]),
    ],
)
def test_tokenizer_splits_as_the_models_own(tokenizer: Any, text: str, pieces: list[str]) -> None:
    assert tokenizer.convert_ids_to_tokens(tokenizer(text).input_ids) == pieces


@pytest.mark.parametrize(
    "text", ["naïve 東京 🙂 привет", "  two  spaces\n\n\ttab", "1,234.50 € = ½", "a\u0301\u200d👩‍🚀", ""]
)
def test_any_text_comes_back(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_special_tokens_and_length(tokenizer: Any) -> None:
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id) == (
        1,
        2,
        2,
        0,
    )
    assert tokenizer.model_max_length == 8192
    assert tokenizer("hi").input_ids == tokenizer("hi", add_special_tokens=False).input_ids


def test_chat_template_has_the_default_system_prompt(tokenizer: Any) -> None:
    question = [{"role": "user", "content": "Hi"}]
    assert tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    own = [{"role": "system", "content": "Be brief."}, *question]
    assert tokenizer.apply_chat_template(own, tokenize=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    )


def test_it_answers_a_plain_question(places: PackPaths, tokenizer: Any) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(str(places.checkpoint), dtype=torch.float32)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    out = model.generate(**ids, max_new_tokens=12, do_sample=False)
    assert "Paris" in tokenizer.decode(out[0, ids["input_ids"].shape[1] :])

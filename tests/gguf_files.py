"""GGUF files of the tiny random models: real files, written with the ``gguf`` package and quantised by llama.cpp itself.

The float32 file holds the very weights of its checkpoint, so that both engines can be compared on the same numbers.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

QUANTISATIONS = ("Q8_0", "Q4_0", "Q4_1", "F16")
"""Tags :func:`quantise` knows; all take rows of 32 values, which the tiny models have."""


def build_gguf(
    checkpoint: Path,
    path: Path,
    *,
    name: str | None = None,
    chat_template: str | None = "",
    max_tensors: int = 0,
    add_bos: bool = False,
    metadata: dict[str, str] | None = None,
) -> Path:
    """Write the Llama checkpoint folder ``checkpoint`` as a float32 GGUF at ``path`` and return ``path``.

    Args:
        name: ``general.name``; None: the folder's.
        chat_template: The file's template; an empty string: the checkpoint's own; None: none.
        max_tensors: Above 0, the file is split into a set of files with at most so many tensors each, named
            ``STEM-00001-of-0000N.gguf`` beside ``path``; the first of them is returned.
        add_bos: What the file says about a BOS in front of a text.
        metadata: More string entries of the header.
    """
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((checkpoint / "config.json").read_text())
    tensors = load_file(checkpoint / "model.safetensors")
    heads, kv_heads = int(config["num_attention_heads"]), int(config["num_key_value_heads"])
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=max_tensors)
    writer.add_name(name if name is not None else checkpoint.name)
    writer.add_context_length(int(config["max_position_embeddings"]))
    writer.add_embedding_length(int(config["hidden_size"]))
    writer.add_block_count(int(config["num_hidden_layers"]))
    writer.add_feed_forward_length(int(config["intermediate_size"]))
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(float(config["rms_norm_eps"]))
    writer.add_rope_dimension_count(int(config["hidden_size"]) // heads)
    writer.add_rope_freq_base(float((config.get("rope_parameters") or config).get("rope_theta", 10000.0)))
    writer.add_vocab_size(int(config["vocab_size"]))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for key, value in (metadata or {}).items():
        writer.add_string(key, value)
    _add_tokenizer(writer, checkpoint, int(config["vocab_size"]), chat_template, add_bos)
    for theirs, tensor in tensors.items():
        ours = _tensor_name(theirs)
        if ours.endswith("attn_q.weight"):
            tensor = _interleaved(tensor, heads)
        elif ours.endswith("attn_k.weight"):
            tensor = _interleaved(tensor, kv_heads)
        writer.add_tensor(ours, tensor.astype("float32"))
    path.parent.mkdir(parents=True, exist_ok=True)
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path if not max_tensors else sorted(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))[0]


def quantise(source: Path, target: Path, tag: str) -> Path:
    """Write ``source`` in the format ``tag`` (one of :data:`QUANTISATIONS`) to ``target``, by llama.cpp's quantiser."""
    from engine.models.backends.llamacpp.binding import library

    llama_cpp = library()  # whose log goes to ours, not to the terminal
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = {
        "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
        "Q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
        "Q4_1": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_1,
        "F16": llama_cpp.LLAMA_FTYPE_MOSTLY_F16,
    }[tag]
    params.nthread = 1
    target.parent.mkdir(parents=True, exist_ok=True)
    failed = llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params))
    if failed:
        raise RuntimeError(f"llama.cpp could not quantise {source} to {tag}: {failed}")
    return target


def _interleaved(weight: Any, heads: int) -> Any:
    """Rows of a query or key projection in the order llama.cpp's rotary embedding pairs them: (0, 1), (2, 3), …

    transformers pairs the first half of a head with the second.
    """
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _tensor_name(theirs: str) -> str:
    if theirs in _NAMES:
        return _NAMES[theirs]
    layer, _, rest = theirs.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{_LAYER_NAMES[rest.removesuffix('.weight')]}.weight"


def _add_tokenizer(writer: Any, checkpoint: Path, vocab_size: int, chat_template: str | None, add_bos: bool) -> None:
    import gguf
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True)
    raw = json.loads((checkpoint / "tokenizer.json").read_text())
    special = {entry["id"] for entry in raw["added_tokens"] if entry["special"]}
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    names += [f"<|unused{number}|>" for number in range(len(names), vocab_size)]
    types = [
        gguf.TokenType.CONTROL
        if i in special
        else gguf.TokenType.UNUSED
        if i >= len(tokenizer)
        else gguf.TokenType.NORMAL
        for i in range(vocab_size)
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(names)
    writer.add_token_types(types)
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in raw["model"]["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(add_bos)
    template = tokenizer.chat_template if chat_template == "" else chat_template
    if template is not None:
        writer.add_chat_template(template)

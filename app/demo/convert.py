"""From the GGUF to a transformers checkpoint: bfloat16 safetensors and tokenizer files.

Each tensor is read, dequantised by the ``gguf`` package, rounded and written by itself, so that it takes seconds,
little memory, and neither torch nor transformers. The result is, to the byte, what transformers 5.24 makes of the same
file, but for what the library gets wrong: the digit rule of the tokenizer and the length limit. Its digests are pinned
in :mod:`app.demo.pack`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.demo.flights import moving
from app.demo.pack import Pack
from engine.checked import there
from engine.errors import ChecksumMismatch

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFReader

DIGITS_APART = "smollm"
"""In ``tokenizer.ggml.pre``: every digit stands alone and is cut off *before* GPT-2's rule sees the text, which matters
for the spaces in front of a number."""

FORM = "5.24.0"
"""The version of transformers whose form of files this is."""

CONTROL = 3
"""GGUF's word for a token that is never text."""

Step = Callable[[float], None]
"""Called with the share that is done, 0–1; what it raises ends the conversion."""


HEADER_SECONDS = 2.5
"""For the reading of the file's vocabulary, about."""


def _unwatched(_share: float) -> None:
    return


def convert(pack: Pack, gguf: Path, target: Path, step: Step = _unwatched) -> dict[str, str]:
    """Write the checkpoint of ``gguf`` into the empty folder ``target``; returns the SHA-256 of each file by its name.

    Raises :class:`ChecksumMismatch` where a file is not the pinned one, OSError.
    """
    from gguf import GGUFReader

    # The header comes in one piece.
    with moving(lambda percent, _: step(percent / 100), 0, 35, "", HEADER_SECONDS):
        reader = GGUFReader(gguf)
    step(0.35)
    made = {
        "config.json": _write(target / "config.json", _json(_config(reader))),
        "generation_config.json": _write(target / "generation_config.json", _json(_generation(reader))),
        "chat_template.jinja": _write(
            target / "chat_template.jinja", str(_value(reader, "tokenizer.chat_template")).encode()
        ),
        "tokenizer_config.json": _write(
            target / "tokenizer_config.json", _json(_tokenizer_config(reader, pack.context_length))
        ),
        "tokenizer.json": _write(target / "tokenizer.json", _tokenizer(reader)),
    }
    step(0.4)
    made["model.safetensors"] = _write_weights(
        reader, target / "model.safetensors", lambda share: step(0.4 + 0.6 * share)
    )
    check_converted(pack, made)
    return made


def check_converted(pack: Pack, made: Mapping[str, str]) -> None:
    """Hold digests of converted files against the pinned ones. Raises :class:`ChecksumMismatch`."""
    for name, expected in pack.checkpoint_sha256.items():
        if made[name] != expected:
            raise ChecksumMismatch(
                f"{name} was not converted as it should be: its SHA-256 is {made[name]}, it should be {expected}.",
                details={"file": name, "found": made[name], "expected": expected},
                remedy="Try again; if it stays so, please report it.",
            )


def _write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _value(reader: GGUFReader, name: str) -> Any:
    return there(reader.get_field(name)).contents()


# --- settings ---------------------------------------------------------------------------------------------------------


def _config(reader: GGUFReader) -> dict[str, Any]:
    width, heads = _value(reader, "llama.embedding_length"), _value(reader, "llama.attention.head_count")
    return {
        "_model_name_or_path": _value(reader, "general.name"),
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": _value(reader, "tokenizer.ggml.bos_token_id"),
        "dtype": "bfloat16",
        "eos_token_id": _value(reader, "tokenizer.ggml.eos_token_id"),
        "head_dim": width // heads,
        "hidden_act": "silu",
        "hidden_size": width,
        "initializer_range": 0.02,
        "intermediate_size": _value(reader, "llama.feed_forward_length"),
        "max_position_embeddings": _value(reader, "llama.context_length"),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": _value(reader, "llama.block_count"),
        "num_key_value_heads": _value(reader, "llama.attention.head_count_kv"),
        "pad_token_id": _value(reader, "tokenizer.ggml.padding_token_id"),
        "pretraining_tp": 1,
        "rms_norm_eps": float(_value(reader, "llama.attention.layer_norm_rms_epsilon")),
        "rope_parameters": {
            "rope_theta": float(_value(reader, "llama.rope.freq_base")),
            "rope_type": "default",
        },
        # The file has no output head of its own.
        "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in reader.tensors),
        "transformers_version": FORM,
        "unk_token_id": _value(reader, "tokenizer.ggml.unknown_token_id"),
        "use_cache": True,
        "vocab_size": _value(reader, "llama.vocab_size"),
    }


def _generation(reader: GGUFReader) -> dict[str, Any]:
    return {
        "_from_model_config": True,
        "bos_token_id": _value(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _value(reader, "tokenizer.ggml.eos_token_id"),
        "output_attentions": False,
        "output_hidden_states": False,
        "pad_token_id": _value(reader, "tokenizer.ggml.padding_token_id"),
        "transformers_version": FORM,
        "use_cache": True,
    }


# --- the tokenizer ----------------------------------------------------------------------------------------------------


def _tokenizer_config(reader: GGUFReader, context_length: int) -> dict[str, Any]:
    tokens = _value(reader, "tokenizer.ggml.tokens")
    named = {
        name: tokens[_value(reader, f"tokenizer.ggml.{key}_token_id")]
        for name, key in (
            ("bos_token", "bos"),
            ("eos_token", "eos"),
            ("pad_token", "padding"),
            ("unk_token", "unknown"),
        )
    }
    return {
        **named,
        "backend": "tokenizers",
        "is_local": True,
        "local_files_only": False,
        "model_max_length": context_length,
        "tokenizer_class": "TokenizersBackend",
    }


def _tokenizer(reader: GGUFReader) -> bytes:
    """``tokenizer.json``: byte-level BPE with the file's tokens, merges and way of splitting."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    tokens = _value(reader, "tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in _value(reader, "tokenizer.ggml.merges")]
    kinds = _value(reader, "tokenizer.ggml.token_type")
    made = Tokenizer(
        models.BPE(
            vocab={token: number for number, token in enumerate(tokens)},
            merges=merges,
            continuing_subword_prefix="",
            end_of_word_suffix="",
        )
    )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=bool(_value(reader, "tokenizer.ggml.add_space_prefix")))
    apart = _value(reader, "tokenizer.ggml.pre") == DIGITS_APART
    made.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level]) if apart else byte_level
    )
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
    made.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == CONTROL
        ]
    )
    return made.to_str(pretty=True).encode()


# --- weights ----------------------------------------------------------------------------------------------------------

_IN_A_BLOCK = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTSIDE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def _name_of(theirs: str) -> str:
    """A tensor's name in the library's Llama."""
    if theirs in _OUTSIDE:
        return _OUTSIDE[theirs]
    _, number, part, kind = theirs.split(".")
    return f"model.layers.{number}.{_IN_A_BLOCK[part]}.{kind}"


def _write_weights(reader: GGUFReader, path: Path, step: Step) -> str:
    """``model.safetensors``, in the form of the library that reads it: tensors by name, one after the other."""
    tensors = sorted((_name_of(tensor.name), tensor) for tensor in reader.tensors)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors:
        # GGUF gives the fastest axis first.
        shape = [int(length) for length in reversed(tensor.shape)]
        start, end = end, end + 2 * int(tensor.n_elements)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    digest = hashlib.sha256()
    done = 0
    with path.open("wb") as file:
        for block in _blocks(len(head).to_bytes(8, "little") + head, reader, tensors):
            digest.update(block)
            file.write(block)
            done += len(block)
            step(min(1.0, done / end))
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


ROWS = 8192
"""Of a matrix that are dequantised at once: the vocabulary's would take ten times its size."""


def _blocks(head: bytes, reader: GGUFReader, tensors: list[tuple[str, Any]]) -> Iterator[bytes]:
    from gguf import dequantize

    heads = {
        "attn_q": int(_value(reader, "llama.attention.head_count")),
        "attn_k": int(_value(reader, "llama.attention.head_count_kv")),
    }
    yield head
    for _, tensor in tensors:
        part = tensor.name.split(".")[-2]
        data = tensor.data
        step = len(data) if part in heads or data.ndim == 1 else ROWS
        for start in range(0, len(data), step):
            values = dequantize(data[start : start + step], tensor.tensor_type)
            if part in heads:
                values = _halves_together(values, heads[part])
            yield _bfloat16(values)


def _halves_together(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """The rows of a projection that is turned by its position, from the order llama.cpp wants back to the library's:
    per head first all first halves of the pairs, then all second halves.
    """
    rows, width = values.shape
    return values.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def _bfloat16(values: np.ndarray[Any, Any]) -> bytes:
    """Rounded to the nearest, halves to even, as torch does; the values are finite."""
    import numpy as np

    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2").tobytes()

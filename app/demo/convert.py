"""From the GGUF to a transformers checkpoint: bfloat16 safetensors and tokenizer files.

The library reads GGUF files itself; what it leaves out or leaves in is put right here: the quantisation marker (the
saved weights are plain), the digit rule of the tokenizer, the length limit, and the name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.demo.pack import Pack

# transformers 5.24 builds the tokenizer of a GGUF from its merges alone and splits as GPT-2 does. The file says
# "tokenizer.ggml.pre = smollm": every digit stands alone and is cut off *before* GPT-2's rule sees the text, which
# matters for the spaces in front of a number. Can go when the library reads that key.
DIGITS_APART = "smollm"


def convert(pack: Pack, gguf: Path, target: Path) -> None:
    """Write the checkpoint of ``gguf`` into the empty folder ``target``. Imports torch; takes some 15 s and 1 GB."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    _mend_tokenizer(tokenizer, _pre_tokenizer_of(gguf), pack.context_length)
    tokenizer.save_pretrained(target)
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    if getattr(model.config, "quantization_config", None) is not None:
        del model.config.quantization_config
    model.config._name_or_path = pack.repo_id
    model.save_pretrained(target)


def _pre_tokenizer_of(gguf: Path) -> str | None:
    """The file's name for its way of splitting text before the merges."""
    from gguf import GGUFReader

    field = GGUFReader(gguf).get_field("tokenizer.ggml.pre")
    return None if field is None else str(field.contents())


def _mend_tokenizer(tokenizer: Any, pre: str | None, context_length: int) -> None:
    from tokenizers import pre_tokenizers

    if pre == DIGITS_APART:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    tokenizer.model_max_length = context_length
    tokenizer.clean_up_tokenization_spaces = False

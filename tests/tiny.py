"""Tiny random models of many families, made on the spot: real checkpoints on disk, a few hundred kilobytes each.

Used by every test that needs a real engine without the demo model. Weights come from a fixed seed, so texts are repeatable.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML without a BOS, like SmolLM2's own."""

THINKING_TEMPLATE = CHAT_TEMPLATE.replace("assistant\n", "assistant\n<think>\n")
"""The same, opening the tag itself."""

CORPUS = [
    "the quick brown fox jumps over the lazy dog and runs into the old forest",
    "a language model writes one token after another and never looks back",
    "the sea was calm and the ship went slowly along the coast in the evening",
    "naïve café, 東京, привет, and a smile 🙂 are written in several bytes each",
]
BOS, IM_START, IM_END, PAD = "<|bos|>", "<|im_start|>", "<|im_end|>", "<|pad|>"


def build_tokenizer(
    *, add_bos: bool = False, chat_template: str | None = CHAT_TEMPLATE, marks: tuple[str, ...] = ()
) -> Any:
    """A byte-level BPE tokenizer of about 400 entries; every byte is a token, so any text round-trips.

    ``add_bos``: the tokenizer itself puts ``<|bos|>`` first, as Llama's and Gemma's do. ``marks``: further special
    tokens, which have the ids from 4 on.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[BOS, IM_START, IM_END, PAD, *marks],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(CORPUS, trainer)
    if add_bos:
        bos_id = raw.token_to_id(BOS)
        raw.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, bos_id)]
        )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token=BOS, eos_token=IM_END, pad_token=PAD)
    if chat_template is not None:
        tokenizer.chat_template = chat_template
    return tokenizer


_SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}


def _config(family: str, vocab: int, special: dict[str, int]) -> Any:
    """A tiny config of ``family``; windows are 8 tokens so that tests run far past them."""
    import transformers as t

    shape = {**_SHAPE, "vocab_size": vocab, **special}
    layer_types = ["sliding_attention", "full_attention"] * 2
    match family:
        case "llama":
            return t.LlamaConfig(**shape)
        case "mistral":
            return t.MistralConfig(**shape, sliding_window=None)
        case "mistral-window":
            return t.MistralConfig(**shape, sliding_window=8)
        case "qwen2":
            return t.Qwen2Config(**shape)
        case "qwen2-window":
            return t.Qwen2Config(**shape, use_sliding_window=True, sliding_window=8, layer_types=layer_types)
        case "qwen3":
            return t.Qwen3Config(**shape, head_dim=8)
        case "phi3":
            return t.Phi3Config(**shape)
        case "phi3-window":
            return t.Phi3Config(**shape, sliding_window=8)
        case "gemma2":
            return t.Gemma2Config(**shape, head_dim=8, sliding_window=8, layer_types=layer_types)
        case "gemma3":
            return t.Gemma3TextConfig(**shape, head_dim=8, sliding_window=8, layer_types=layer_types)
        case "cohere2":
            return t.Cohere2Config(**shape, sliding_window=8, layer_types=layer_types)
        case "olmo2":
            return t.Olmo2Config(**shape)
        case "gpt2":
            return t.GPT2Config(vocab_size=vocab, n_embd=32, n_layer=4, n_head=4, n_positions=2048, **special)
        case "gpt-neox":
            return t.GPTNeoXConfig(**{**shape, "num_key_value_heads": 4})
    raise ValueError(f"no tiny family {family!r}")


FAMILIES = (
    "llama",
    "mistral",
    "mistral-window",
    "qwen2",
    "qwen2-window",
    "qwen3",
    "phi3",
    "phi3-window",
    "gemma2",
    "gemma3",
    "cohere2",
    "olmo2",
    "gpt2",
    "gpt-neox",
)


def build_checkpoint(
    folder: Path,
    family: str = "llama",
    *,
    seed: int = 0,
    add_bos: bool = False,
    chat_template: str | None = CHAT_TEMPLATE,
    max_positions: int | None = None,
    config_changes: dict[str, Any] | None = None,
    marks: tuple[str, ...] = (),
) -> Path:
    """Write a tiny random checkpoint (config, float32 safetensors, tokenizer) into ``folder`` and return it.

    Weights are scaled up a little so that logits differ clearly between tokens and greedy choices are stable.
    """
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = build_tokenizer(add_bos=add_bos, chat_template=chat_template, marks=marks)
    special = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    config = _config(family, len(tokenizer), special)
    if max_positions is not None:
        config.max_position_embeddings = max_positions
    for name, value in (config_changes or {}).items():
        setattr(config, name, value)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 2:
                    parameter.mul_(4.0)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def teach(source: Path, folder: Path, text: str) -> Path:
    """The tiny Llama of ``source``, copied to ``folder``, as a model that writes ``text`` after a line break, a byte a
    token, and then ends; behind any byte of it, it goes on from there.

    No byte may come twice: every token tells the model the next one.
    """
    import shutil
    from itertools import pairwise

    import torch
    from safetensors.torch import load_file, save_file

    from engine.models.backends.tokenizer import CheckpointTokenizer

    shutil.copytree(source, folder)
    tokenizer = CheckpointTokenizer.load(folder)
    chain = [tokenizer.encode(letter, False)[0] for letter in "\n" + text] + [min(tokenizer.eos_ids)]
    assert len(set(chain)) == len(text) + 2
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        if name.endswith(("self_attn.o_proj.weight", "mlp.down_proj.weight")):
            weight.zero_()
    embedded, head = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
    embedded.copy_(torch.randn(embedded.shape, generator=torch.Generator().manual_seed(0)))
    head.zero_()
    for token, following in pairwise(chain):
        head[following] = 20 * embedded[token] / embedded[token].norm()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder

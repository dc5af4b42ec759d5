"""Small real tokenizers of the kinds that differ where text is concerned, made on the spot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.models.backends.tokenizer import CheckpointTokenizer
from tests.tiny import build_tokenizer

SP_PIECES = [
    "▁",
    "▁hello",
    "▁world",
    "hello",
    "world",
    "▁the",
    "user",
    "assistant",
    "system",
    "\n",
    ",",
    ".",
    "é",
    "東",
    *"abcdefghijklmnopqrstuvwxyz<>/|_[]IN ST:!?",
]


def byte_level(**options: Any) -> CheckpointTokenizer:
    """GPT-2's kind: every byte has a token, and a space belongs to the word after it."""
    return CheckpointTokenizer(build_tokenizer(**options))


def byte_chunks(chunks: Sequence[bytes]) -> tuple[CheckpointTokenizer, list[int]]:
    """A byte-level tokenizer with exactly these byte strings as tokens, and the ids that spell them in order."""
    from tokenizers import Tokenizer as Raw
    from tokenizers import decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {b: chr(b) for b in printable}
    letters.update({b: chr(0x100 + n) for n, b in enumerate(b for b in range(256) if b not in printable)})
    vocab = {letters[b]: b for b in range(256)}
    ids = []
    for chunk in chunks:
        ids.append(vocab.setdefault("".join(letters[b] for b in chunk), len(vocab)))
    raw = Raw(models.BPE(vocab=vocab, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    return CheckpointTokenizer(PreTrainedTokenizerFast(tokenizer_object=raw)), ids


def sentencepiece(
    *, add_bos: bool = False, add_eos: bool = False, chat_template: str | None = None
) -> CheckpointTokenizer:
    """Llama 2's kind: "▁" for a space, one put in front of a text and dropped again, ``<0xNN>`` for what has no token."""
    from tokenizers import Tokenizer as Raw
    from tokenizers import decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    for piece in SP_PIECES:
        vocab.setdefault(piece, len(vocab))
    scores = [(piece, -1.0 if len(piece) > 1 else -4.0) for piece in vocab]
    raw = Raw(models.Unigram(scores, unk_id=0, byte_fallback=True))
    raw.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    raw.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    if add_bos or add_eos:
        single = f"{'<s> ' if add_bos else ''}$A{' </s>' if add_eos else ''}"
        raw.post_processor = processors.TemplateProcessing(single=single, special_tokens=[("<s>", 1), ("</s>", 2)])
    inner = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    if chat_template is not None:
        inner.chat_template = chat_template
    return CheckpointTokenizer(inner)


def wordpiece() -> CheckpointTokenizer:
    """BERT's kind: pieces that continue a word begin with "##"; its tokens have no exact bytes."""
    from tokenizers import Tokenizer as Raw
    from tokenizers import decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = ["[UNK]", "[SEP]", "write", "##s", "##r", "a", "the", "token", "and", ","]
    raw = Raw(models.WordPiece({piece: place for place, piece in enumerate(pieces)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return CheckpointTokenizer(PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="[UNK]", eos_token="[SEP]"))

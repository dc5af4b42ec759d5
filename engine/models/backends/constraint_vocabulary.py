"""A tokenizer's vocabulary as llguidance takes it, from the bytes the tokenizer itself gives for each token."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol


class ConstraintTokenizer(Protocol):
    """What is needed of a tokenizer."""

    vocab_size: int
    bos_id: int | None

    @property
    def hidden_ids(self) -> Collection[int]:
        """Tokens that show nothing in a text."""

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of one token."""

    def encode_bytes(self, data: bytes) -> list[int]:
        """The token ids of a text in UTF-8."""


def vocabulary_of(tokenizer: ConstraintTokenizer, end: int) -> Any:
    """Llguidance's view of ``tokenizer``, with ``end`` as its one end token."""
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(_Wrapped(tokenizer, end)), eos_token=end)


class _Wrapped:
    """What llguidance asks of a tokenizer. Not its own llama.cpp helper: that keeps a pointer past an unload."""

    def __init__(self, tokenizer: ConstraintTokenizer, end: int) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = end
        self.bos_token_id = tokenizer.bos_id
        self.tokens = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
        self.special_token_ids = sorted(tokenizer.hidden_ids)

    def __call__(self, data: bytes) -> list[int]:
        return self._tokenizer.encode_bytes(data)

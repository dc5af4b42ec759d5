"""Token ids to text, one token at a time, never showing half a character.

Knows UTF-8 and how tokenizers spell it; knows nothing of stop strings or of where the text goes.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Sequence
from typing import Protocol

_REPLACEMENT = "\ufffd"
_MOST_HELD = 3
"""Further tokens that an unfinished character may need: UTF-8 has four bytes at most, and each may be a token."""
_CONTEXT = 8
"""Tokens of the prompt that are looked at, at most."""


class TokenSource(Protocol):
    """What the text stream needs of a tokenizer."""

    exact_bytes: bool
    """Whether a text is the bytes of its tokens, one after the other (but for a space dropped at the start)."""

    @property
    def hidden_ids(self) -> Collection[int]:
        """Tokens that show nothing."""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token, a leading space included."""

    def token_text(self, token_id: int) -> str:
        """The written form of one token."""

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of tokens decoded together."""


class Detokenizer:
    """Incremental decoding of one text.

    Text is held back only while its last character lacks bytes. Bytes that can never become a character come out as
    U+FFFD as soon as that is known, after three further tokens at the latest. Memory and time per token do not grow
    with the text.

    Where the tokenizer has exact bytes they are joined and decoded; otherwise a small window of tokens is decoded again
    with each new one, and the text beyond what the window showed before is new.

    Args:
        tokenizer: Where bytes and texts come from.
        context_ids: The end of what the text follows on. With it, a space in front of the first word is kept; without
            it the text begins as a text of its own does, where SentencePiece tokenizers drop that space. Pass it to
            continue a text (a completion, an open assistant turn), leave it out for a new turn.
        shown_ids: Tokens that are written as they are, although others like them show nothing.
        also_hidden: Tokens that show nothing here, whatever the tokenizer says.
    """

    def __init__(
        self,
        tokenizer: TokenSource,
        context_ids: Sequence[int] = (),
        *,
        shown_ids: Collection[int] = (),
        also_hidden: Collection[int] = (),
    ) -> None:
        self._hidden = {*tokenizer.hidden_ids, *also_hidden} if also_hidden else tokenizer.hidden_ids
        self._shown_ids = shown_ids
        self._name = tokenizer.token_text
        context = [i for i in context_ids[-_CONTEXT:] if i not in self._hidden]
        self._decoder: _ByteDecoder | _WindowDecoder
        if tokenizer.exact_bytes:
            self._decoder = _ByteDecoder(tokenizer, begun=any(tokenizer.token_bytes(i) for i in context))
        else:
            self._decoder = _WindowDecoder(tokenizer, context)

    def feed(self, token_id: int) -> str:
        """The text this token completes; empty for a token that shows nothing or ends inside a character."""
        if token_id in self._shown_ids:
            return self._decoder.finish() + self._name(token_id)
        if token_id in self._hidden:
            return ""
        return self._decoder.feed(token_id)

    def finish(self) -> str:
        """What is still held, now that nothing follows: U+FFFD for an unfinished character."""
        return self._decoder.finish()


class _ByteDecoder:
    """Joins the bytes of tokens."""

    def __init__(self, tokenizer: TokenSource, *, begun: bool) -> None:
        self._tokenizer = tokenizer
        self._begun = begun
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token_id: int) -> str:
        data = self._tokenizer.token_bytes(token_id)
        if not self._begun and data:
            self._begun = True
            if data.startswith(b" "):
                data = self._without_dropped_space(token_id, data)
        return self._utf8.decode(data)

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)

    def _without_dropped_space(self, token_id: int, data: bytes) -> bytes:
        """``data`` less the leading spaces the tokenizer drops at the start of a text."""
        alone = self._tokenizer.decode([token_id])
        kept = len(alone) - len(alone.lstrip(" "))
        had = len(data) - len(data.lstrip(b" "))
        return data[max(had - kept, 0) :]


class _WindowDecoder:
    """Decodes the tokens of the last piece and those after it, and takes what is new.

    The last piece stays in the window because a tokenizer may write a token in another way at the start of a text.
    """

    def __init__(self, tokenizer: TokenSource, context: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._window = list(context)
        self._read = len(self._window)
        self._shown = tokenizer.decode(self._window)

    def feed(self, token_id: int) -> str:
        self._window.append(token_id)
        text = self._tokenizer.decode(self._window)
        unfinished = len(text) <= len(self._shown) or text.endswith(_REPLACEMENT)
        if unfinished and len(self._window) - self._read <= _MOST_HELD:
            return ""
        return self._take(text)

    def finish(self) -> str:
        return self._take(self._tokenizer.decode(self._window))

    def _take(self, text: str) -> str:
        piece = text[len(self._shown) :]
        if not piece:  # nothing but tokens without text: the window must keep one that has some
            del self._window[self._read :]
            return ""
        self._window = self._window[self._read :]
        self._read = len(self._window)
        self._shown = self._tokenizer.decode(self._window)
        return piece

"""Telling a model's reasoning from its answer by the tags it writes.

Knows ``<think>`` and ``</think>``; knows nothing of tokens or of how the parts are sent. Nothing is called reasoning
without positive evidence: the text opens the tag itself, or the prompt ended with it. An answer taken for reasoning
would look like lost data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

OPEN = "<think>"
CLOSE = "</think>"

Kind = Literal["content", "reasoning"]


@dataclass(frozen=True)
class Piece:
    """Part of a text and what it is."""

    kind: Kind
    text: str


class _Stage(Enum):
    BEFORE = "before"
    REASONING = "reasoning"
    AFTER = "after"
    OFF = "off"


def prompt_opens_reasoning(prompt: str) -> bool:
    """Whether a rendered prompt ends with an open tag, so that the answer begins inside the reasoning."""
    return prompt.rstrip().endswith(OPEN)


class ReasoningSplitter:
    """Splits a text that arrives in pieces; the parts do not depend on how it was cut.

    Without evidence the text comes out untouched. With it:

    * The first open tag begins the reasoning, the first close tag after it ends it; later tags are text. Tags are never
      shown. Reasoning that is never closed goes on to the end.
    * Reasoning loses the white space at both its ends.
    * Content before the tag is untouched, since it was sent before there was evidence; if it is blank it is dropped.
    * Content after the tag loses the white space at its end and, where there was no content before, at its start.
    * Where the prompt opened the tag and the model writes it again first, that second tag is dropped too.

    So what is held back is little: a tail that may be the beginning of a tag, and white space that may turn out to be
    at an end.

    Args:
        prompt_opened: The prompt ended with the open tag; see :func:`prompt_opens_reasoning`.
        enabled: False lets all text through as content (constrained output is never split).
    """

    def __init__(self, prompt_opened: bool = False, enabled: bool = True) -> None:
        self.found = prompt_opened and enabled
        """Whether there has been evidence of reasoning."""
        self._stage = _Stage.OFF
        if enabled:
            self._stage = _Stage.REASONING if prompt_opened else _Stage.BEFORE
        self._held = ""
        self._at_start = True  # nothing but white space so far in this part
        self._may_reopen = prompt_opened
        self._content_before = False

    def feed(self, text: str) -> list[Piece]:
        """What the next piece of text settles, in order; neighbours are of different kinds."""
        self._held += text
        pieces: list[Piece] = []
        while True:
            stage = self._stage
            match stage:
                case _Stage.BEFORE:
                    self._before(pieces)
                case _Stage.REASONING:
                    self._reasoning(pieces)
                case _Stage.AFTER:
                    self._let_out(pieces, "content", len(self._held), trim=True)
                case _Stage.OFF:
                    self._let_out(pieces, "content", len(self._held), trim=False)
            if self._stage is stage:
                return pieces

    def finish(self) -> list[Piece]:
        """What is still held, now that nothing follows."""
        pieces: list[Piece] = []
        if self._stage in (_Stage.BEFORE, _Stage.OFF):
            _append(pieces, "content", self._held)
        elif self._stage is _Stage.REASONING:
            kept = self._held.strip() if self._at_start else self._held.rstrip()
            _append(pieces, "reasoning", kept)
        self._held = ""
        return pieces

    def _before(self, pieces: list[Piece]) -> None:
        place = self._held.find(OPEN)
        if place >= 0:
            if self._content_before or self._held[:place].strip():
                self._content_before = True
                _append(pieces, "content", self._held[:place])
            self._enter(_Stage.REASONING, self._held[place + len(OPEN) :], at_start=True)
            self.found = True
            return
        sure = len(self._held) - _overlap(self._held, OPEN)
        if self._content_before or self._held[:sure].strip():
            self._content_before = True
            _append(pieces, "content", self._held[:sure])
            self._held = self._held[sure:]

    def _reasoning(self, pieces: list[Piece]) -> None:
        if self._may_reopen:
            start = self._held.lstrip()
            if OPEN.startswith(start) and start != OPEN:  # blank, or the beginning of a second open tag
                return
            self._may_reopen = False
            if start.startswith(OPEN):
                self._held = start[len(OPEN) :]
        place = self._held.find(CLOSE)
        if place >= 0:
            rest = self._held[place + len(CLOSE) :]
            self._held = self._held[:place]
            self._let_out(pieces, "reasoning", place, trim=True)
            self._enter(_Stage.AFTER, rest, at_start=not self._content_before)
            return
        self._let_out(pieces, "reasoning", len(self._held) - _overlap(self._held, CLOSE), trim=True)

    def _enter(self, stage: _Stage, held: str, *, at_start: bool) -> None:
        self._stage, self._held, self._at_start = stage, held, at_start

    def _let_out(self, pieces: list[Piece], kind: Kind, sure: int, *, trim: bool) -> None:
        """Send the first ``sure`` characters held; trimming drops white space at a start, keeps it back at an end."""
        text = self._held[:sure]
        if trim:
            text = text.rstrip()
            sure = len(text)
            if self._at_start:
                text = text.lstrip()
                self._at_start = not text
        self._held = self._held[sure:]
        _append(pieces, kind, text)


class ReasoningSpans:
    """Says which characters of a text are no part of its answer; every character comes out again, in order.

    The same evidence as :class:`ReasoningSplitter`'s, and the same parts: the reasoning with its tags, and the white
    space at the edges that is never shown. What is held back is a tail that may be the beginning of a tag, and white
    space at the very start; the result does not depend on how the text was cut.

    Args:
        prompt_opened: The prompt ended with the open tag.
    """

    def __init__(self, prompt_opened: bool) -> None:
        self._stage = _Stage.REASONING if prompt_opened else _Stage.BEFORE
        self._held = ""
        self._content_before = False
        self._at_start = True  # nothing but white space so far in this part

    def feed(self, text: str) -> list[tuple[str, bool]]:
        """What the next piece settles: parts of the text, and whether each is aside from the answer."""
        self._held += text
        parts: list[tuple[str, bool]] = []
        if self._stage is _Stage.BEFORE:
            self._before(parts)
        if self._stage is _Stage.REASONING:
            self._reasoning(parts)
        if self._stage is _Stage.AFTER:
            self._after(parts)
        return parts

    def finish(self) -> list[tuple[str, bool]]:
        """What is still held, now that nothing follows."""
        parts: list[tuple[str, bool]] = []
        self._let_out(parts, len(self._held), self._stage is _Stage.REASONING)
        return parts

    def _before(self, parts: list[tuple[str, bool]]) -> None:
        place = self._held.find(OPEN)
        sure = place if place >= 0 else len(self._held) - _overlap(self._held, OPEN)
        blank = self._at_start and not self._held[:sure].strip()
        if place < 0 and blank:
            return
        self._at_start = self._at_start and blank
        self._content_before = not blank
        self._let_out(parts, sure, blank)
        if place >= 0:
            self._stage = _Stage.REASONING
            self._let_out(parts, len(OPEN), True)

    def _reasoning(self, parts: list[tuple[str, bool]]) -> None:
        place = self._held.find(CLOSE)
        if place < 0:
            self._let_out(parts, len(self._held) - _overlap(self._held, CLOSE), True)
            return
        self._let_out(parts, place + len(CLOSE), True)
        self._stage, self._at_start = _Stage.AFTER, not self._content_before

    def _after(self, parts: list[tuple[str, bool]]) -> None:
        if self._at_start:
            self._let_out(parts, len(self._held) - len(self._held.lstrip()), True)
            self._at_start = not self._held
        self._let_out(parts, len(self._held), False)

    def _let_out(self, parts: list[tuple[str, bool]], sure: int, aside: bool) -> None:
        text, self._held = self._held[:sure], self._held[sure:]
        if text:
            parts.append((text, aside))


def _append(pieces: list[Piece], kind: Kind, text: str) -> None:
    if not text:
        return
    if pieces and pieces[-1].kind == kind:
        pieces[-1] = Piece(kind, pieces[-1].text + text)
    else:
        pieces.append(Piece(kind, text))


def _overlap(text: str, tag: str) -> int:
    """Length of the longest end of ``text`` that is a proper beginning of ``tag``."""
    for length in range(min(len(text), len(tag) - 1), 0, -1):
        if text.endswith(tag[:length]):
            return length
    return 0

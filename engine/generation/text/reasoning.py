"""Telling a model's reasoning from its answer by the tags it writes.

Knows ``<think>`` and ``</think>``; knows nothing of tokens, of stop strings or of how the parts are sent. Nothing is
called reasoning without positive evidence: the text opens the tag itself, or the prompt ended with it. An answer taken
for reasoning would look like lost data.
"""

from __future__ import annotations

from enum import Enum

from engine.generation.text.parts import Kind, Part

OPEN = "<think>"
CLOSE = "</think>"


class Beginning(Enum):
    """Where a text begins, as its prompt leaves it."""

    NEVER = "never"
    """All of it is the answer, whatever tags it holds: raw text, and a document of a given form."""
    BEFORE = "before"
    """Before any reasoning."""
    OPENED = "opened"
    """The prompt ended with the open tag."""
    INSIDE = "inside"
    """In the midst of reasoning that was cut: what comes goes on with the prompt's last word."""


class _Stage(Enum):
    BEFORE = "before"
    REASONING = "reasoning"
    AFTER = "after"


def prompt_beginning(prompt: str) -> Beginning:
    """Where the answer to a rendered conversation begins."""
    return Beginning.OPENED if prompt.rstrip().endswith(OPEN) else Beginning.BEFORE


class ReasoningSplitter:
    """Says of each character of a text that arrives in pieces what it is; every one comes out again, in order.

    The parts do not depend on how the text was cut. The first open tag begins the reasoning, the first close tag after
    it ends it; later tags are text. Reasoning that is never closed goes on to the end. Where the prompt opened the tag
    and the model writes it again first, that second tag is a mark too. White space before an open tag that nothing
    stands before is part of its mark, and so is white space after the close tag where nothing stood before.

    What is held back is little: a tail that may be the beginning of a tag, and white space at the very start.
    """

    def __init__(self, beginning: Beginning = Beginning.BEFORE) -> None:
        self._stage = _Stage.BEFORE
        if beginning is Beginning.NEVER:
            self._stage = _Stage.AFTER
        elif beginning is not Beginning.BEFORE:
            self._stage = _Stage.REASONING
        self._may_reopen = beginning is Beginning.OPENED
        self._held = ""
        self._content_before = False
        self._at_start = False  # after the close tag, with nothing but white space so far

    @property
    def answering(self) -> bool:
        """Whether text is the answer now, so far as it is settled."""
        return self._stage is not _Stage.REASONING

    @property
    def settled(self) -> bool:
        """Whether all that comes is the answer."""
        return self._stage is _Stage.AFTER and not self._at_start

    def settle(self) -> None:
        """All that comes is the answer, whatever tags it holds."""
        if self._stage is _Stage.BEFORE:
            self._stage = _Stage.AFTER

    def feed(self, text: str) -> list[Part]:
        """What the next piece of text settles."""
        self._held += text
        parts: list[Part] = []
        if self._stage is _Stage.BEFORE:
            self._before(parts)
        if self._stage is _Stage.REASONING:
            self._reasoning(parts)
        if self._stage is _Stage.AFTER:
            self._after(parts)
        return parts

    def finish(self) -> list[Part]:
        """What is still held, now that nothing follows."""
        parts: list[Part] = []
        kind = Kind.REASONING if self._stage is _Stage.REASONING else Kind.CONTENT
        self._let_out(parts, len(self._held), kind)
        return parts

    def _before(self, parts: list[Part]) -> None:
        place = self._held.find(OPEN)
        sure = place if place >= 0 else len(self._held) - _overlap(self._held, OPEN)
        if self._content_before or self._held[:sure].strip():
            self._content_before = True
            self._let_out(parts, sure, Kind.CONTENT)
        if place >= 0:
            self._let_out(parts, self._held.index(OPEN) + len(OPEN), Kind.REASONING, mark=True)
            self._stage = _Stage.REASONING

    def _reasoning(self, parts: list[Part]) -> None:
        if self._may_reopen:
            start = self._held.lstrip()
            if OPEN.startswith(start) and start != OPEN:  # blank, or the beginning of a second open tag
                return
            self._may_reopen = False
            if start.startswith(OPEN):
                self._let_out(parts, self._held.index(OPEN) + len(OPEN), Kind.REASONING, mark=True)
        place = self._held.find(CLOSE)
        sure = place if place >= 0 else len(self._held) - _overlap(self._held, CLOSE)
        self._let_out(parts, sure, Kind.REASONING)
        if place >= 0:
            self._let_out(parts, len(CLOSE), Kind.REASONING, mark=True)
            self._stage, self._at_start = _Stage.AFTER, not self._content_before

    def _after(self, parts: list[Part]) -> None:
        if self._at_start:
            self._let_out(parts, len(self._held) - len(self._held.lstrip()), Kind.CONTENT, mark=True)
            self._at_start = not self._held
        self._let_out(parts, len(self._held), Kind.CONTENT)

    def _let_out(self, parts: list[Part], sure: int, kind: Kind, *, mark: bool = False) -> None:
        text, self._held = self._held[:sure], self._held[sure:]
        if text:
            parts.append(Part(kind, text, mark))


class Edges:
    """What is shown of the parts of a text: no mark, and no white space at an edge of the reasoning.

    Reasoning loses the white space at both its ends, content after it that at its end. Content without reasoning is
    untouched, and so is content before it, since it was shown before there was evidence. White space that may turn out
    to be at an end is held back. A text that ends in the midst of its open tag has no reasoning: what is there of the
    tag is shown.
    """

    def __init__(self, beginning: Beginning = Beginning.BEFORE) -> None:
        self.found = beginning in (Beginning.OPENED, Beginning.INSIDE)
        """Whether there has been evidence of reasoning."""
        self._at_start = beginning is not Beginning.INSIDE
        self._opening = ""
        self._space = ""

    def show(self, part: Part) -> str:
        """What the next part lets be shown, all of it of the part's kind."""
        if part.mark:
            self._space = ""
            if not self.found:
                self._opening += part.text
                self.found = self._opening.endswith(OPEN)
            return ""
        if not self.found:
            return part.text
        text = self._space + part.text
        if part.kind is Kind.REASONING and self._at_start:
            text = text.lstrip()
        shown = text.rstrip()
        self._space = text[len(shown) :]
        if part.kind is Kind.REASONING:
            self._at_start = self._at_start and not shown
        return shown

    def finish(self) -> str:
        """What is still held and belongs to the content, now that nothing follows."""
        return "" if self.found else self._opening


def _overlap(text: str, tag: str) -> int:
    """Length of the longest end of ``text`` that is a proper beginning of ``tag``."""
    for length in range(min(len(text), len(tag) - 1), 0, -1):
        if text.endswith(tag[:length]):
            return length
    return 0

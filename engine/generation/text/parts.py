"""What the parts of an answer are: content, reasoning, calls, and marks that nobody is shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Kind(StrEnum):
    """What a piece of an answer is."""

    CONTENT = "content"
    REASONING = "reasoning"
    CALL = "call"


@dataclass(frozen=True)
class Call:
    """A call that a model writes: its place in the answer, counted from 0, and what is called. ``custom``: its
    arguments are told as the one text it takes, not as JSON.
    """

    number: int
    name: str
    custom: bool = False


@dataclass(frozen=True)
class Part:
    """Part of a text.

    Attributes:
        mark: It is shown to nobody (a tag, and the white space before and behind it).
        call: The call it is a part of.
        opens: With it the call's name is whole.
        says: What is told of it, where that is not the text itself.
        sealed: No stop string is looked for in it: it was to be a call, and was cut.
    """

    kind: Kind
    text: str
    mark: bool = False
    call: Call | None = None
    opens: bool = False
    says: str | None = None
    sealed: bool = False

    @property
    def aside(self) -> bool:
        """Whether it is no part of the answer, so that the request's stop strings say nothing of it."""
        return self.mark or self.kind is not Kind.CONTENT

    @property
    def told(self) -> str:
        """What is told of it."""
        return self.text if self.says is None else self.says

    def cut(self, length: int) -> tuple[Part, Part]:
        """Its first ``length`` characters and the rest, which says what both together say."""
        first, rest = self.text[:length], self.text[length:]
        if self.call is None:
            return replace(self, text=first), replace(self, text=rest)
        return replace(self, text=first, opens=False, says=""), replace(self, text=rest, says=self.told)

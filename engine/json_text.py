"""Reads large JSON in small steps, so that the interpreter's lock is never held for long by one of them.

``json.loads`` is one instruction to the interpreter: while it reads sixty megabytes no other thread does anything, and
no answer goes on. Here the standard decoder reads whatever is short, and what is longer is entered: an object member by
member, a list element by element. What is looked at one by one need not be kept either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any

from engine.checked import there

MAX_DEPTH = 64
"""Levels of nesting that are entered; what fits one step may be nested as deep as the standard decoder allows."""

TOO_DEEP = "Nested too deeply"
"""How the refusal of endless nesting begins."""

MOST_VALUES = 2_000_000
"""Values that are entered one by one, in one text that is read whole."""

MOST_STRING = 4 << 20
"""Characters of one string: it is read in one step."""

_STEPS = (512, 8_192, 65_536)
"""Characters given to the standard decoder at once, tried in turn."""

_BLANKS = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def loads(text: str, most: int = MOST_VALUES) -> Any:
    """What ``json.loads`` gives. Raises ValueError, for nesting beyond what can be read too, and for a text that takes
    more than ``most`` steps.
    """
    cursor = JsonText(text, most)
    value = cursor.value()
    cursor.end()
    return value


class JsonText:
    """A place in a JSON text. All methods raise ValueError where the text is no JSON.

    ``members`` and ``elements`` leave the cursor at each value in turn; one that nobody took is passed over.
    """

    def __init__(self, text: str, most: int | None = None) -> None:
        self._text = text
        self._at = 0
        self._left = most

    def peek(self) -> str:
        """The first character of what comes next; empty at the end."""
        self._at = there(_BLANKS.match(self._text, self._at)).end()
        return self._text[self._at : self._at + 1]

    def end(self) -> None:
        """Raise unless nothing but blanks is left."""
        if self.peek():
            raise self._error("Extra data")

    def value(self, _depth: int = 0) -> Any:
        """The value at the cursor, which moves behind it."""
        found = self._short_value()
        if found is not None:
            return found[0]
        match self.peek():
            case "{":
                whole = {}
                for name in self.members(_depth):
                    whole[name] = self.value(_depth + 1)
                return whole
            case "[":
                return [self.value(_depth + 1) for _ in self.elements(_depth)]
            case '"':
                return self._string()
            case _:
                raise self._error("Expecting value")

    def short(self) -> Any:
        """As :meth:`value`, for one that must not be longer than a step (64 KiB)."""
        found = self._short_value()
        if found is None:
            raise self._error("The value does not end")
        return found[0]

    def skip(self, _depth: int = 0) -> None:
        """Move behind the value at the cursor, keeping nothing of it."""
        if self._short_value() is not None:
            return
        match self.peek():
            case "{":
                for _ in self.members(_depth):
                    self.skip(_depth + 1)
            case "[":
                for _ in self.elements(_depth):
                    self.skip(_depth + 1)
            case _:
                self.value(_depth)

    def members(self, _depth: int = 0) -> Iterator[str]:
        """The names in the object at the cursor, which is at the value of each."""
        self._enter("{", _depth)
        if self.peek() == "}":
            self._at += 1
            return
        while True:
            if self.peek() != '"':
                raise self._error("Expecting property name enclosed in double quotes")
            name = self._string()
            if self.peek() != ":":
                raise self._error("Expecting ':' delimiter")
            self._at += 1
            self.peek()
            before = self._at
            yield name
            if self._at == before:
                self.skip(_depth + 1)
            if self._closed("}"):
                return

    def elements(self, _depth: int = 0) -> Iterator[None]:
        """Stops at each element of the list at the cursor."""
        self._enter("[", _depth)
        if self.peek() == "]":
            self._at += 1
            return
        while True:
            self.peek()
            before = self._at
            yield
            if self._at == before:
                self.skip(_depth + 1)
            if self._closed("]"):
                return

    def _short_value(self) -> tuple[Any] | None:
        """The value where the standard decoder finds its end within a step; None where it is longer."""
        self.peek()
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise self._error("Too many values")
        rest = len(self._text) - self._at
        for step in _STEPS:
            piece = self._text[self._at : self._at + step]
            try:
                found, used = _DECODER.raw_decode(piece)
            except RecursionError as error:
                raise self._error(TOO_DEEP) from error
            except JSONDecodeError as error:
                if rest <= step:
                    raise JSONDecodeError(error.msg, self._text, self._at + error.pos) from None
                continue
            # A number at the end of a step may go on.
            if used < len(piece) or rest <= step:
                self._at += used
                return (found,)
        return None

    def _string(self) -> str:
        start = self._at + 1
        piece = self._text[start : start + MOST_STRING]
        try:
            text, used = scanstring(piece, 0, True)
        except JSONDecodeError as error:
            if len(piece) == MOST_STRING:
                raise self._error("The string is too long") from None
            raise JSONDecodeError(error.msg, self._text, start + error.pos) from None
        self._at = start + used
        return str(text)

    def _enter(self, bracket: str, depth: int) -> None:
        if self.peek() != bracket:
            raise self._error(f"Expecting '{bracket}'")
        if depth >= MAX_DEPTH:
            raise self._error(TOO_DEEP)
        self._at += 1

    def _closed(self, bracket: str) -> bool:
        found = self.peek()
        if found not in (",", bracket):
            raise self._error("Expecting ',' delimiter")
        self._at += 1
        return found == bracket

    def _error(self, what: str) -> JSONDecodeError:
        return JSONDecodeError(what, self._text, self._at)

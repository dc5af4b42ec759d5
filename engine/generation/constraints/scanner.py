"""Words of a grammar's text, one after another, with the place of each for messages; shared by both syntaxes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.generation.constraints.rules import MAX_NESTING, Node, refused
from engine.generation.errors import ResponseFormatUnsupported

_HEX = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True)
class Word:
    """A word, what kind it is (the name of its group in the syntax's expression), and its line, from 1."""

    kind: str
    text: str
    line: int


END = "end"


class Scanner:
    """The words of ``text``. Raises :class:`ResponseFormatUnsupported` for a character no word begins with.

    Args:
        words: An expression with a named group for each kind; ``skip`` is left out.
    """

    def __init__(self, text: str, words: re.Pattern[str]) -> None:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise refused("The grammar holds half of a surrogate pair, which is not Unicode text.") from error
        self._words: list[Word] = []
        self._next = 0
        self._depth = 0
        at, line = 0, 1
        while at < len(text):
            found = words.match(text, at)
            if found is None or found.lastgroup is None:
                raise refused(f"Line {line} of the grammar cannot be read from {text[at : at + 20]!r} on.")
            if found.lastgroup != "skip":
                self._words.append(Word(found.lastgroup, found[0], line))
            line += found[0].count("\n")
            at = found.end()
        self._end = Word(END, "", line)

    def peek(self, ahead: int = 0) -> Word:
        """The next word, or one further on; it is not taken."""
        place = self._next + ahead
        return self._words[place] if place < len(self._words) else self._end

    def take(self) -> Word:
        """The next word."""
        word = self.peek()
        self._next += 1
        return word

    def took(self, text: str) -> bool:
        """Whether the next word is ``text``, which is then taken."""
        if self.peek().text != text or self.peek().kind == END:
            return False
        self._next += 1
        return True

    def expect(self, text: str) -> None:
        """Take ``text``; anything else is refused."""
        if not self.took(text):
            raise self.unexpected(f"'{text}' is expected")

    def kind(self, kind: str, what: str) -> str:
        """Take a word of ``kind``, which a message calls ``what``."""
        if self.peek().kind != kind:
            raise self.unexpected(f"{what} is expected")
        return self.take().text

    def group(self, end: str, inside: Callable[[], Node]) -> Node:
        """What stands up to ``end``; groups may lie only so deep in one another."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise refused(f"The groups of the grammar lie more than {MAX_NESTING} deep in one another.")
        found = inside()
        self.expect(end)
        self._depth -= 1
        return found

    @property
    def in_group(self) -> bool:
        """Whether a group is open."""
        return self._depth > 0

    def unexpected(self, words: str) -> ResponseFormatUnsupported:
        """The refusal of the next word."""
        word = self.peek()
        there = "the end of the grammar" if word.kind == END else repr(word.text[:40])
        return refused(f"Line {word.line} of the grammar: {words}, not {there}.")


def number(text: str) -> int:
    """Digits as a number; more of them than a grammar has use for are a large one."""
    return int(text) if len(text) <= 9 else 10**9


def unescaped(text: str, plain: Mapping[str, str]) -> list[str]:
    """The characters of ``text``, escapes read: those in ``plain`` by letter, and codes of two, four or eight digits
    behind x, u or U. Any other is refused.
    """
    found: list[str] = []
    at = 0
    while at < len(text):
        letter = text[at]
        at += 1
        if letter != "\\":
            found.append(letter)
            continue
        letter = text[at : at + 1]
        at += 1
        if letter in plain and letter:
            found.append(plain[letter])
            continue
        digits = text[at : at + _HEX.get(letter, 0)]
        at += len(digits)
        if not digits or len(digits) != _HEX[letter] or not re.fullmatch("[0-9A-Fa-f]+", digits):
            raise refused(f"The grammar has the escape '\\{letter}{digits}', which is none that is read.")
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise refused(f"The grammar has the escape '\\{letter}{digits}', which is no character.")
        found.append(chr(code))
    return found

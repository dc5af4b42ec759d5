"""Grammars in EBNF with ``::=``, as the W3C's recommendations and the servers of GGUF models write it.

Such a grammar has no terminals that are cut out of a text first: it speaks of single characters. So literals are taken
apart into theirs. (A word that is read whole would hide that its beginning is another rule's.) Exceptions (``a - b``),
character codes (``#x41``) and the notation of ISO 14977 (``=``, ``;``) are refused.
"""

from __future__ import annotations

import re

from engine.generation.constraints.rules import (
    START,
    Grammar,
    Node,
    Pattern,
    Ref,
    Text,
    char_class,
    either,
    refused,
    row,
    times,
)
from engine.generation.constraints.scanner import END, Scanner, number, unescaped

ROOT = "root"
"""The rule every text begins with; the first one where none is called so."""

_WORDS = re.compile(
    r"""
      (?P<code>\#x[0-9A-Fa-f]+\b)
    | (?P<skip>[ \t\r\n\f]+|\#[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)
    | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<class>\[\^?(?:[^\]\\]|\\.)*\])
    | (?P<op>::=|[|()?*+{},.;=-])
    | (?P<number>[0-9]+)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'", "[": "[", "]": "]", "-": "-", "^": "^"}
_COUNTS = {"?": (0, 1), "*": (0, None), "+": (1, None)}
_ANY = Pattern("(?s:.)")


def read_ebnf(text: str) -> Grammar:
    """``text`` as a grammar. Raises :class:`ResponseFormatUnsupported` for what cannot be translated whole."""
    return _Reader(text).grammar()


class _Reader:
    def __init__(self, text: str) -> None:
        self._words = Scanner(text, _WORDS)
        self._names: dict[str, str] = {}

    def grammar(self) -> Grammar:
        words = self._words
        rules: dict[str, Node] = {}
        first: str | None = None
        while words.peek().kind != END:
            name = words.kind("name", "a rule")
            first = first or name
            words.expect("::=")
            if self._known(name) in rules:
                raise refused(f"The grammar has two rules named '{name[:60]}'.")
            rules[self._known(name)] = self._choice()
        if first is None:
            raise refused("The grammar has no rule.")
        start = ROOT if self._names.get(ROOT) in rules else first
        for name, known in self._names.items():
            if known not in rules:
                raise refused(f"The grammar has no rule named '{name[:60]}'.")
        return Grammar({START: Ref(self._known(start)), **rules})

    def _known(self, name: str) -> str:
        """A name for the library: it tells rules from terminals by their letters."""
        return self._names.setdefault(name, f"r{len(self._names)}")

    def _choice(self) -> Node:
        parts = [self._row()]
        while self._words.took("|"):
            parts.append(self._row())
        return either(parts)

    def _row(self) -> Node:
        words = self._words
        parts: list[Node] = []
        while True:
            word = words.peek()
            if word.kind == "name" and words.peek(1).text == "::=":
                break
            if word.text == "-":
                raise words.unexpected("exceptions ('a - b') are not translated; a part is expected")
            if word.kind == "code":
                raise words.unexpected("character codes are not read (write \\x41); a part is expected")
            if word.text in ("=", ";"):
                raise words.unexpected("rules are written with '::=' and end by themselves; a part is expected")
            if word.kind not in ("name", "string", "class") and word.text not in ("(", "."):
                if word.kind == "op" and word.text not in ("|", ")"):
                    raise words.unexpected("a part is expected")
                break
            parts.append(self._counted(self._atom()))
        return row(parts)

    def _counted(self, part: Node) -> Node:
        words = self._words
        mark = words.peek().text
        if words.peek().kind == "op" and mark in _COUNTS:
            words.take()
            return times(part, *_COUNTS[mark])
        if words.took("{"):
            least = number(words.kind("number", "a number"))
            unbounded = words.took(",") and words.peek().kind != "number"
            most = number(words.take().text) if words.peek().kind == "number" else least
            words.expect("}")
            return times(part, least, None if unbounded else most)
        return part

    def _atom(self) -> Node:
        words = self._words
        if words.took("("):
            return words.group(")", self._choice)
        word = words.take()
        if word.kind == "name":
            return Ref(self._known(word.text))
        if word.kind == "class":
            return _class(word.text)
        if word.text == ".":
            return _ANY
        return row([Text(letter) for letter in unescaped(word.text[1:-1], _ESCAPES)])


def _class(text: str) -> Node:
    """One character of those between the brackets."""
    negated = text.startswith("[^")
    inside = text[2 if negated else 1 : -1]
    # An escaped hyphen is a character, a bare one between two characters means those between them.
    marks: list[str] = re.findall(r"\\x..|\\u.{4}|\\U.{8}|\\.|.", inside, re.DOTALL)
    letters = ["-" if mark == "\\-" else "".join(unescaped(mark, _ESCAPES)) for mark in marks]
    spans: list[tuple[str, str]] = []
    at = 0
    while at < len(marks):
        first = last = letters[at]
        if at + 2 < len(marks) and marks[at + 1] == "-":
            last = letters[at + 2]
            at += 2
        if first > last:
            raise refused(f"The class {text[:40]} of the grammar goes from '{first}' back to '{last}'.")
        spans.append((first, last))
        at += 1
    if not spans:
        if negated:
            return _ANY
        raise refused("The grammar has a class with no character in it.")
    return Pattern(char_class(spans, negated=negated))

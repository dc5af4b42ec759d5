"""Grammars in the syntax of Lark: what is read of it, and what is refused.

Read are rules, terminals, ``%ignore`` and ``%import common``; marks that shape Lark's tree (``?rule``, ``!rule``,
``-> name``) change no language and are passed over. What the constraint library adds to the syntax (embedded schemas,
special tokens, attributes of rules) is refused: it says what no check of the finished text could see.
"""

from __future__ import annotations

import re

from engine.generation.constraints.rules import (
    Grammar,
    Node,
    Ref,
    Span,
    Text,
    either,
    pattern,
    refused,
    row,
    times,
)
from engine.generation.constraints.scanner import END, Scanner, number, unescaped

_WORDS = re.compile(
    r"""
      (?P<skip>[ \t\r\f]+|//[^\n]*|\#[^\n]*)
    | (?P<newline>\n)
    | (?P<string>"(?:[^"\\\n]|\\.)*"i?)
    | (?P<regex>/(?:[^/\\\n]|\\.)+/[a-z]*)
    | (?P<op>->|\.\.|[:|()\[\]?*+~{},.!<>@=])
    | (?P<directive>%[A-Za-z_]+)
    | (?P<number>[0-9]+)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    """,
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_COUNTS = {"?": (0, 1), "*": (0, None), "+": (1, None)}


def read_lark(text: str) -> Grammar:
    """``text`` as a grammar. Raises :class:`ResponseFormatUnsupported`."""
    return _Reader(text).grammar()


class _Reader:
    def __init__(self, text: str) -> None:
        self._words = Scanner(text, _WORDS)
        self._rules: dict[str, Node] = {}
        self._ignored: list[Node] = []
        self._imported: set[str] = set()

    def grammar(self) -> Grammar:
        words = self._words
        while words.peek().kind != END:
            if words.peek().kind == "newline":
                words.take()
                continue
            if words.peek().kind == "directive":
                self._directive(words.take().text)
            else:
                self._rule()
            if words.peek().kind not in ("newline", END):
                raise words.unexpected("the end of the line is expected")
        return Grammar(self._rules, tuple(self._ignored), frozenset(self._imported))

    def _directive(self, name: str) -> None:
        words = self._words
        if name == "%ignore":
            self._ignored.append(self._choice())
        elif name == "%import":
            if words.kind("name", "the library 'common'") != "common":
                raise refused("A grammar can import from 'common' only.")
            if words.took("."):
                self._imported.add(words.kind("name", "the name of a terminal"))
                if words.peek().text == "->":
                    raise words.unexpected("a terminal is imported under its own name")
                return
            words.expect("(")
            while not words.took(")"):
                self._imported.add(words.kind("name", "the name of a terminal"))
                words.took(",")
        elif name == "%llguidance" and words.took("{"):
            words.expect("}")
        else:
            raise refused(f"The grammar uses '{name}', which is not read; %ignore and %import are.")

    def _rule(self) -> None:
        words = self._words
        while words.took("?") or words.took("!"):
            pass
        name = words.kind("name", "a rule")
        if name in self._rules:
            raise refused(f"The grammar has two rules named '{name[:60]}'.")
        if not words.took(":"):
            raise words.unexpected(
                f"':' is expected after '{name[:60]}' (priorities, templates and attributes are not read)"
            )
        self._rules[name] = self._choice()

    def _choice(self) -> Node:
        words = self._words
        parts = [self._row()]
        while self._goes_on():
            words.expect("|")
            self._skip_lines()
            parts.append(self._row())
        return either(parts)

    def _goes_on(self) -> bool:
        """Whether another alternative follows, perhaps on a line of its own."""
        ahead = 0
        while self._words.peek(ahead).kind == "newline":
            ahead += 1
        if self._words.peek(ahead).text != "|":
            if self._words.in_group:
                self._skip_lines()
            return False
        self._skip_lines()
        return True

    def _skip_lines(self) -> None:
        while self._words.peek().kind == "newline":
            self._words.take()

    def _row(self) -> Node:
        words = self._words
        parts: list[Node] = []
        while True:
            if words.in_group:
                self._skip_lines()
            if words.peek().text == "->":
                words.take()
                words.kind("name", "a name")
                break
            if words.peek().kind not in ("string", "regex", "name") and words.peek().text not in ("(", "["):
                break
            parts.append(self._counted(self._atom()))
        return row(parts)

    def _counted(self, part: Node) -> Node:
        words = self._words
        mark = words.peek().text
        if words.peek().kind == "op" and mark in _COUNTS:
            words.take()
            return times(part, *_COUNTS[mark])
        if words.took("~"):
            least = most = number(words.kind("number", "a number"))
            if words.took(".."):
                most = number(words.kind("number", "a number"))
            return times(part, least, most)
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
        if words.took("["):
            return times(words.group("]", self._choice), 0, 1)
        word = words.take()
        if word.kind == "name":
            return Ref(word.text)
        if word.kind == "regex":
            value, _, flags = word.text[1:].rpartition("/")
            return pattern(value, flags)
        made = _text(word.text)
        if not words.took(".."):
            return made
        last = _text(words.kind("string", "a string"))
        if len(made.value) != 1 or len(last.value) != 1 or made.value > last.value or made.any_case or last.any_case:
            raise refused("A range of a grammar goes from one character to a later one.")
        return Span(made.value, last.value)


def _text(word: str) -> Text:
    any_case = word.endswith("i")
    return Text("".join(unescaped(word.removesuffix("i")[1:-1], _ESCAPES)), any_case)

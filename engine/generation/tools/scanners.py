"""The arguments of a call as they are written: where they end, and what is told of them meanwhile.

A scanner takes the text behind a call's head, on any cut, and gives pairs of what was written and what that says: the
arguments as JSON, or a custom tool's text. It ends by itself; what comes behind its end is not its own.
"""

from __future__ import annotations

import json
import re
from typing import Protocol

from engine.generation.tools.values import INPUT

Said = tuple[str, str]
"""A piece of the text, and what it tells of the arguments."""


class Scanner(Protocol):
    """Follows the arguments of one call."""

    done: bool
    """Whether they are complete."""

    def feed(self, text: str) -> tuple[list[Said], str]:
        """What the next piece of text says, and what of it lies behind the end."""
        ...

    def finish(self) -> list[Said]:
        """What is still held, now that nothing follows: the arguments were cut."""
        ...


class JsonArguments:
    """A JSON object, told as it is written."""

    def __init__(self) -> None:
        self.done = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, text: str) -> tuple[list[Said], str]:
        """As in the protocol."""
        for place, character in enumerate(text):
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif character == "\\":
                    self._escaped = True
                elif character == '"':
                    self._in_string = False
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    self.done = True
                    return [(text[: place + 1],) * 2], text[place + 1 :]
        return ([(text, text)] if text else []), ""

    def finish(self) -> list[Said]:
        """As in the protocol."""
        return []


_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_INPUT_HEAD = re.compile(rf'\{{\s*"{INPUT}"\s*:\s*"')


class CustomInput:
    """The one text of a custom tool, told as the text it is: ``{"input": "…"}``."""

    def __init__(self) -> None:
        self.done = False
        self._stage = "head"
        self._held = ""

    def feed(self, text: str) -> tuple[list[Said], str]:
        """As in the protocol."""
        self._held += text
        said: list[Said] = []
        if self._stage == "head":
            head = _INPUT_HEAD.match(self._held)
            if head is None:
                return said, ""
            said.append((head.group(), ""))
            self._held = self._held[head.end() :]
            self._stage = "text"
        if self._stage == "text":
            self._text(said)
        if self._stage == "end":
            close = self._held.find("}")
            if close >= 0:
                said.append((self._held[: close + 1], ""))
                rest, self._held, self.done = self._held[close + 1 :], "", True
                return said, rest
        return said, ""

    def finish(self) -> list[Said]:
        """As in the protocol."""
        held, self._held = self._held, ""
        return [(held, "")] if held else []

    def _text(self, said: list[Said]) -> None:
        while self._held:
            stop = min((at for mark in '"\\' if (at := self._held.find(mark)) >= 0), default=len(self._held))
            if stop:
                said.append((self._held[:stop],) * 2)
                self._held = self._held[stop:]
            elif self._held[0] == '"':
                said.append(('"', ""))
                self._held, self._stage = self._held[1:], "end"
                return
            else:
                length = _escape_length(self._held)
                if length is None:
                    return
                raw = self._held[:length]
                said.append((raw, _unescaped(raw)))
                self._held = self._held[length:]


def _escape_length(text: str) -> int | None:
    """How long the escape is that ``text`` begins with; None while that cannot be told."""
    if len(text) < 2:
        return None
    if text[1] != "u":
        return 2
    if len(text) < 6:
        return None
    if text[2].lower() != "d" or text[3].lower() not in "89ab":
        return 6
    if len(text) < 12:
        return None if text[6:8] in ("", "\\", "\\u") else 6
    return 12 if text[6:8] == "\\u" else 6


def _unescaped(raw: str) -> str:
    if raw[1] != "u":
        return _ESCAPES.get(raw[1], raw[1])
    try:
        text = str(json.loads(f'"{raw}"'))
        text.encode()
    except (ValueError, UnicodeEncodeError):
        return "\ufffd"
    return text

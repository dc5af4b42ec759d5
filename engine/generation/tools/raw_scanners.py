"""Arguments that are not written as JSON, told as JSON while they are written."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

from engine.generation.tools.scanners import Said
from engine.generation.tools.values import INPUT

_PARAMETER = re.compile(r"\s*<parameter=([^>\n]{1,256})>\n?")
_FUNCTION_END = re.compile(r"\s*</function>")
_VALUE_END = "</parameter>"


def is_text(schema: Mapping[str, Any]) -> bool:
    """Whether values that fit ``schema`` are text."""
    if schema.get("type") == "string":
        return True
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    return "type" not in schema and isinstance(listed, list) and all(isinstance(each, str) for each in listed)


class TaggedArguments:
    """``<parameter=KEY>value</parameter>`` up to ``</function>``. Text is told as it comes, all else when whole."""

    def __init__(self, schema: Mapping[str, Any], *, custom: bool) -> None:
        self.done = False
        self._properties = schema.get("properties") or {}
        self._custom = custom
        self._held = ""
        self._key: str | None = None
        self._begun = False  # an argument was told
        self._value_begun = False

    def feed(self, text: str) -> tuple[list[Said], str]:
        """As in the protocol."""
        self._held += text
        said: list[Said] = []
        while not self.done and (self._between(said) if self._key is None else self._value(said)):
            pass
        if not self.done:
            return said, ""
        rest, self._held = self._held, ""
        return said, rest

    def finish(self) -> list[Said]:
        """As in the protocol."""
        # It may be the end of a value, or what stands between two: no part of one for sure.
        held, self._held = self._held, ""
        return [(held, "")] if held else []

    def _between(self, said: list[Said]) -> bool:
        parameter = _PARAMETER.match(self._held)
        # A break may follow the tag, and is no part of the value.
        if parameter is not None and parameter.end() < len(self._held):
            self._key = parameter[1]
            opening = ""
            if not self._custom:
                opening = f"{', ' if self._begun else '{'}{json.dumps(self._key, ensure_ascii=False)}: "
                opening += '"' if self._is_text(self._key) else ""
            said.append((parameter.group(), opening))
            self._held = self._held[parameter.end() :]
            self._begun, self._value_begun = True, False
            return True
        end = _FUNCTION_END.match(self._held)
        if end is None:
            return False
        said.append((end.group(), "" if self._custom else "}" if self._begun else "{}"))
        self._held, self.done = self._held[end.end() :], True
        return True

    def _value(self, said: list[Said]) -> bool:
        key = self._key or ""
        at = self._held.find(_VALUE_END)
        if at < 0:
            if self._is_text(key):
                sure = len(self._held) - _may_end(self._held)
                if sure:
                    text, self._held = self._held[:sure], self._held[sure:]
                    said.append((text, text if self._custom else _escaped(text)))
            return False
        value = self._held[:at].removesuffix("\n")
        raw = self._held[: at + len(_VALUE_END)]
        if self._is_text(key):
            told = value if self._custom else _escaped(value) + '"'
        else:
            told = _as_json(value)
        said.append((raw, told))
        self._held, self._key = self._held[len(raw) :], None
        return True

    def _is_text(self, key: str) -> bool:
        if self._custom:
            return True
        schema = self._properties.get(key)
        return isinstance(schema, Mapping) and is_text(schema)


def _may_end(text: str) -> int:
    """Length of the end of ``text`` that may be the beginning of a value's end."""
    for end in ("\n" + _VALUE_END, _VALUE_END):
        for length in range(min(len(text), len(end) - 1), 0, -1):
            if text.endswith(end[:length]):
                return length
    return 0


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _as_json(value: str) -> str:
    """A raw value that is no text by its schema: JSON, or what Python writes, or else text after all."""
    for read in (json.loads, ast.literal_eval):
        try:
            return json.dumps(read(value.strip()), ensure_ascii=False, allow_nan=False)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return json.dumps(value, ensure_ascii=False)


_KEY = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.-]{0,255})\s*=\s*")


class PythonArguments:
    """``key=value, …`` up to the closing bracket. Each argument is told when it is whole."""

    def __init__(self, *, custom: bool) -> None:
        self.done = False
        self._custom = custom
        self._held = ""
        self._place = 0
        self._depth = 0
        self._quote = ""
        self._begun = False

    def feed(self, text: str) -> tuple[list[Said], str]:
        """As in the protocol."""
        self._held += text
        said: list[Said] = []
        while self._place < len(self._held):
            character = self._held[self._place]
            if self._quote:
                if character == "\\":
                    if self._place + 1 >= len(self._held):
                        break
                    self._place += 1
                elif character == self._quote:
                    self._quote = ""
            elif character in "\"'":
                self._quote = character
            elif character in "([{":
                self._depth += 1
            elif character in ")]}" and self._depth:
                self._depth -= 1
            elif character == ")" and not self._depth:
                self._argument(said, self._held[: self._place], ")")
                rest, self._held, self.done = self._held[self._place + 1 :], "", True
                return said, rest
            elif character == "," and not self._depth:
                self._argument(said, self._held[: self._place], ",")
                self._held, self._place = self._held[self._place + 1 :], -1
            self._place += 1
        return said, ""

    def finish(self) -> list[Said]:
        """As in the protocol."""
        held, self._held = self._held, ""
        return [(held, "")] if held else []

    def _argument(self, said: list[Said], text: str, end: str) -> None:
        key = _KEY.match(text)
        told = ""
        if key is not None:
            value = _as_json(text[key.end() :])
            if self._custom:
                told = _text_of(value) if key[1] == INPUT else ""
            else:
                told = f"{', ' if self._begun else '{'}{json.dumps(key[1])}: {value}"
            self._begun = True
        if end == ")" and not self._custom:
            told += "}" if self._begun else "{}"
        said.append((text + end, told))


def _text_of(value: str) -> str:
    found = json.loads(value)
    return found if isinstance(found, str) else value

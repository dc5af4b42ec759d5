"""A wire: the form in which a family of models writes calls.

Each says what its calls look like twice over: as patterns, by which a reader finds them in text, and as rules of a
grammar (llguidance's Lark), by which a model is held to them. Tests hold the one against the other.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.generation.constraints.keywords import compact
from engine.generation.constraints.numbers import as_told
from engine.generation.tools.scanners import CustomInput, JsonArguments, Scanner
from engine.generation.tools.values import Tool, ToolKind


@dataclass(frozen=True)
class Patterns:
    """What the calls of one request look like, for ``regex``.

    Attributes:
        mark: What a call begins with, before which everything is free text.
        first: A call from its mark to what opens its arguments, with the group ``name``.
        tail: What follows the arguments.
        next: A further call of the same row, where calls are written in rows.
        end: The end of a row.
    """

    mark: str
    first: str
    tail: str
    next: str | None = None
    end: str | None = None


MarkRule = Callable[[str], str]
"""A mark as a rule of the grammar: the token it is in the vocabulary, or its letters."""


class Wire(ABC):
    """One wire.

    Attributes:
        name: Its name, for people.
        marks: Texts that a vocabulary may have as one token that shows nothing; in a call they are read as text.
        only_first: Whether nothing but white space may stand before the first call of an answer.
    """

    name: ClassVar[str]
    marks: ClassVar[tuple[str, ...]]
    only_first: ClassVar[bool] = False

    @abstractmethod
    def patterns(self, names: Sequence[str]) -> Patterns:
        """What calls of tools with these names look like."""

    @abstractmethod
    def rules(self, arguments: Mapping[str, str], most: int, mark: MarkRule) -> str:
        """Lark rules: ``held`` is what is enforced from a mark on in a free answer, ``calls`` an answer that is nothing
        but calls.

        Args:
            arguments: For each name the rule that its arguments follow.
            most: Calls of one answer.
        """

    def scanner(self, tool: Tool) -> Scanner:
        """What follows the arguments of a call of ``tool``."""
        return CustomInput() if tool.kind is ToolKind.CUSTOM else JsonArguments()

    def arguments_rule(self, name: str, schema: Mapping[str, Any]) -> str:
        """The rules that make up the rule ``name``, for arguments that fit ``schema``."""
        return f"{name}: %json {told_to_library(schema)}\n"

    def cannot_hold(self, schema: Mapping[str, Any]) -> str | None:
        """Why arguments in this form cannot be held to ``schema`` in full; None where they can."""
        return None

    @abstractmethod
    def written(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """A call as text, for a conversation whose template cannot write it."""


_SEPARATORS: Mapping[str, str] = {"item_separator": ", ?", "key_separator": ": ?"}
"""As JSON is written with and without a space; no other white space, which a model could write without end."""
_PLAIN_ESCAPES = '"\\bfnrt'


def told_to_library(schema: Mapping[str, Any] | bool, separators: Mapping[str, str] = _SEPARATORS) -> str:
    """``schema`` as JSON for llguidance, with how its documents are written."""
    rules: dict[str, Any] = {"whitespace_flexible": False, **separators}
    if "\\u" not in compact(schema):
        rules["json_allowed_escapes"] = _PLAIN_ESCAPES
    return as_told(schema, {"x-guidance": rules})


def either(names: Sequence[str]) -> str:
    """A pattern for one of ``names``; a longer one is not taken for a shorter."""
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


def literal(text: str) -> str:
    """``text`` as a string of the grammar."""
    return json.dumps(text, ensure_ascii=False)


def repeated(first: str, following: str, most: int) -> str:
    """``first``, then up to ``most`` − 1 times ``following``."""
    return first if most == 1 else f"{first} ({following}){{0,{most - 1}}}"

"""What form an answer must have: any JSON object, a document that fits a JSON Schema, or a text that a regular
expression or a grammar describes.

A value, checked on construction; it needs no model and no constraint library, so a route can refuse before loading.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from engine.errors import InvalidParameter
from engine.generation.constraints.ebnf import read_ebnf
from engine.generation.constraints.keywords import check_schema, compact
from engine.generation.constraints.lark import read_lark
from engine.generation.constraints.rules import refused
from engine.generation.constraints.texts import whole_text

if TYPE_CHECKING:
    from engine.generation.constraint import CompiledConstraint
    from engine.generation.constraints.grammar import Vocabulary

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


MAX_REGEX = 4096
MAX_GRAMMAR = 8192
"""Characters."""


class Syntax(StrEnum):
    """How a grammar is written."""

    LARK = "lark"
    EBNF = "ebnf"


@dataclass(frozen=True)
class Written:
    """A form that is no JSON, as it is enforced.

    Args:
        regex: A regular expression that the whole text matches; or
        lark: a grammar, in the constraint library's words.
    """

    regex: str | None = None
    lark: str | None = None


@dataclass(frozen=True, eq=False)
class ResponseFormat:
    """The constraint a request asks for.

    Args:
        schema: The JSON Schema, an object or a boolean; None asks for any JSON object (``json_object``).
        name: What the request calls the schema: 1 to 64 letters, digits, ``_`` or ``-``. Needed with a schema.
        regex: A regular expression that the whole answer matches, in place of a schema.
        grammar: A grammar in place of a schema, written in ``syntax``.

    Raises :class:`ResponseFormatUnsupported` for what cannot be enforced in full, :class:`InvalidParameter` for the
    name.
    """

    schema: Mapping[str, Any] | bool | None = None
    name: str | None = None
    regex: str | None = None
    grammar: str | None = None
    syntax: Syntax = Syntax.LARK
    text: str = field(init=False, default="")
    """What is enforced: what the grammar is made of, and its name in the cache. As compact JSON where it is JSON."""
    written: Written | None = field(init=False, default=None)
    """What is enforced where it is no JSON."""
    effective_schema: Mapping[str, Any] | bool = field(init=False, default_factory=lambda: {"type": "object"})
    """What is enforced: what a finished document is validated against."""

    def __post_init__(self) -> None:
        if self.regex is not None or self.grammar is not None:
            made = _written(self.regex, self.grammar, self.syntax)
            object.__setattr__(self, "written", made)
            object.__setattr__(self, "text", f"regex {made.regex}" if made.lark is None else f"lark {made.lark}")
            return
        if self.schema is None:
            if self.name is not None:
                raise InvalidParameter("A name goes with a schema.", param="response_format.json_schema.name")
            object.__setattr__(self, "text", compact(self.effective_schema))
            return
        if self.name is None or not _NAME.fullmatch(self.name):
            raise InvalidParameter(
                f"Invalid value for 'response_format.json_schema.name': {self.name!r}; expected 1 to 64 letters, "
                "digits, underscores or hyphens.",
                param="response_format.json_schema.name",
            )
        object.__setattr__(self, "effective_schema", check_schema(self.schema))
        object.__setattr__(self, "text", compact(self.effective_schema))

    @property
    def header(self) -> str:
        """The value of ``X-miLLM-Constrained``: ``json_object``, ``json_schema;name="NAME"``, ``regex`` or
        ``grammar;syntax="SYNTAX"``.
        """
        if self.regex is not None:
            return "regex"
        if self.grammar is not None:
            return f'grammar;syntax="{self.syntax.value}"'
        return "json_object" if self.schema is None else f'json_schema;name="{self.name}"'

    def compile(self, vocabulary: Vocabulary, eos_ids: Collection[int]) -> CompiledConstraint:
        """Compile it for a tokenizer with these end tokens. Raises :class:`ResponseFormatUnsupported`."""
        from engine.generation.constraint import CompiledConstraint

        return CompiledConstraint(vocabulary, self, eos_ids)


def _written(regex: str | None, grammar: str | None, syntax: Syntax) -> Written:
    if regex is not None:
        if len(regex) > MAX_REGEX:
            raise refused(f"The regular expression has {len(regex)} characters; at most {MAX_REGEX} are accepted.")
        return Written(regex=whole_text(regex))
    grammar = grammar or ""
    if len(grammar) > MAX_GRAMMAR:
        raise refused(f"The grammar has {len(grammar)} characters; at most {MAX_GRAMMAR} are accepted.")
    read = read_lark if syntax is Syntax.LARK else read_ebnf
    return Written(lark=read(grammar).as_lark())

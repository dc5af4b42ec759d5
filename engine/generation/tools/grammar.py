"""The grammar of an answer that may, or must, hold calls: rules of its wire around the schemas of its tools.

A value that needs no model: what it is made of names it in the cache of compiled constraints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.generation.constraints.keywords import compact
from engine.generation.response_format import ResponseFormat
from engine.generation.tools.wire import Wire, literal, told_to_library

if TYPE_CHECKING:
    from engine.generation.constraints.grammar import Vocabulary
    from engine.generation.tools.guard import CompiledCalls


@dataclass(frozen=True, eq=False)
class CallGrammar:
    """What is enforced of an answer with tools.

    Attributes:
        wire: How calls are written.
        arguments: By name, the schema that a tool's arguments are held to.
        most: Calls of one answer.
        strict: Names of tools whose complete arguments are checked against their schema once more.
        insists: Whether the answer is nothing but calls, from its first token on; else what follows a mark is held.
        document: The form of an answer without calls, where it has to have one.
        text: What all of this comes to, for the cache.
    """

    wire: Wire
    arguments: Mapping[str, Mapping[str, Any]]
    most: int
    insists: bool
    strict: frozenset[str] = frozenset()
    document: ResponseFormat | None = None
    text: str = field(init=False, default="")

    def __post_init__(self) -> None:
        schemas = {name: compact(schema) for name, schema in self.arguments.items()}
        document = None if self.document is None else self.document.text
        told = [type(self.wire).__name__, schemas, self.most, self.insists, document]
        object.__setattr__(self, "text", "tools " + json.dumps(told, ensure_ascii=False))

    @property
    def whole(self) -> bool:
        """Whether it holds the answer from its first token on."""
        return self.insists or self.document is not None

    def compile(self, vocabulary: Vocabulary, eos_ids: Collection[int]) -> CompiledCalls:
        """The grammar for one model. Raises :class:`ResponseFormatUnsupported` with the library's words."""
        from engine.generation.tools.guard import CompiledCalls

        rules = {name: f"arguments_{place}" for place, name in enumerate(self.arguments)}

        def mark(text: str) -> str:
            """The tokens that are ``text`` and show nothing, or its letters."""
            return "(" + " | ".join([*(f"<[{token}]>" for token in vocabulary.marks(text)), literal(text)]) + ")"

        parts = [self.wire.rules(rules, self.most, mark)]
        for name, rule in rules.items():
            parts.append(self.wire.arguments_rule(rule, self.arguments[name]))
        if self.document is not None:
            parts.append(_document_rules(self.document))
        if self.insists:
            # Behind reasoning models write an empty line first.
            start = "start: LEAD calls\nLEAD: /[ \\n]{0,2}/"
        else:
            start = "start: held" if self.document is None else "start: document | calls"
        text = start + "\n" + "".join(parts)
        # What a person wrote is tried first; the rest is the program's own.
        tried = self.document is not None and self.document.written is not None
        made = vocabulary.compile_grammar(text) if tried else vocabulary.compile_rules(text)
        return CompiledCalls(self, made, eos_ids)


def _document_rules(asked: ResponseFormat) -> str:
    """The rule ``document`` of an answer without calls."""
    written = asked.written
    if written is None:
        return f"document: %json {told_to_library(asked.effective_schema, {})}\n"
    if written.lark is not None:
        return f"document: %lark {{\n{written.lark}\n}}\n"
    regex = re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\/", written.regex or "")
    return f"document: DOCUMENT\nDOCUMENT: /{regex}/\n"

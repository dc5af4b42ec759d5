"""What may be called, and what was: values that are checked on construction, the same for every API.

Knows names, schemas and choices; knows nothing of how a model writes a call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from engine.errors import InvalidParameter, described

MAX_TOOLS = 128
MAX_CALLS = 64
"""Calls of one answer."""
MAX_SCHEMA_BYTES = 65_536
"""Bytes of a tool's schema as compact JSON."""
MAX_SCHEMA_DEPTH = 32
NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
INPUT = "input"
"""The one argument of a custom tool."""


class ToolKind(StrEnum):
    """How a call is given back."""

    FUNCTION = "function"
    CUSTOM = "custom"


class ToolUse(StrEnum):
    """Whether anything has to be called."""

    AUTO = "auto"
    REQUIRED = "required"
    NAMED = "named"
    """One call, of the one tool that may be called."""


@dataclass(frozen=True, eq=False)
class Tool:
    """Something a model may call.

    Attributes:
        name: 1 to 128 letters, digits, ``_``, ``.``, ``:`` or ``-``.
        description: What it is for, in words that the model reads.
        parameters: The JSON Schema of its arguments; None: it takes none.
        strict: Whether arguments must fit the schema in full; otherwise what can be enforced of it is.
        kind: A custom tool has one argument, a text, and is given back as that text.
        shown: Further keys that the model is to see, beside name, description and parameters.

    Raises :class:`InvalidParameter` with ``name`` or ``parameters`` as its parameter.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    strict: bool = False
    kind: ToolKind = ToolKind.FUNCTION
    shown: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InvalidParameter(
                f"{described(self.name)} is no name of a tool: 1 to 128 letters, digits, '_', '.', ':' or '-' are "
                "expected.",
                param="name",
            )
        if self.parameters is not None:
            _check_parameters(self.parameters)

    @property
    def takes_nothing(self) -> bool:
        """Whether a call of it has no arguments."""
        return not self.parameters and self.kind is ToolKind.FUNCTION

    @property
    def schema(self) -> Mapping[str, Any]:
        """The schema of its arguments, as the model is told it."""
        if self.kind is ToolKind.CUSTOM:
            return {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}
        return self.parameters or {"type": "object", "properties": {}}

    def told(self) -> dict[str, Any]:
        """What the model reads of it, as chat templates expect it; keys of the schema keep their order."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema, **self.shown}
        return {"type": "function", "function": function}


def _check_parameters(schema: Mapping[str, Any]) -> None:
    if schema.get("type", "object") != "object":
        raise InvalidParameter(
            f"The arguments of a tool are an object; its schema says type {described(schema['type'])}.",
            param="parameters",
        )
    level: list[Any] = [schema]
    for _ in range(4 * MAX_SCHEMA_DEPTH):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, Mapping) else each)
            if isinstance(inner, Mapping | list)
        ]
        if not level:
            break
    if level or _schemas_deep(schema) > MAX_SCHEMA_DEPTH:
        raise InvalidParameter(f"The schema is nested more than {MAX_SCHEMA_DEPTH} deep.", param="parameters")
    try:
        size = len(json.dumps(schema, separators=(",", ":"), ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise InvalidParameter(
            "The schema holds half of a surrogate pair, which is not Unicode text.", param="parameters"
        ) from None
    if size > MAX_SCHEMA_BYTES:
        raise InvalidParameter(
            f"The schema has {size} bytes as compact JSON; at most {MAX_SCHEMA_BYTES} are accepted.",
            param="parameters",
        )


_HOLDS_SCHEMAS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_HOLDS_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")


def _schemas_deep(schema: object) -> int:
    """How many schemas lie in one another, the outermost counted. The caller has bounded the recursion."""
    if not isinstance(schema, Mapping):
        return 0
    inside: list[object] = []
    for keyword, value in schema.items():
        if keyword in _HOLDS_SCHEMAS and isinstance(value, Mapping):
            inside += value.values()
        elif keyword in _HOLDS_LISTS and isinstance(value, list):
            inside += value
        elif isinstance(value, Mapping):
            inside.append(value)
    return 1 + max(map(_schemas_deep, inside), default=0)


@dataclass(frozen=True, eq=False)
class Tools:
    """What a request offers, and what has to come of it.

    Attributes:
        offered: The tools the model is shown; names are unique.
        use: Whether one has to be called.
        callable: Names that may be called, of those offered; all where None.
        parallel: Whether an answer may have more than one call.

    Raises :class:`InvalidParameter`: ``tools`` for the number of them or two of one name.
    """

    offered: tuple[Tool, ...]
    use: ToolUse = ToolUse.AUTO
    callable: frozenset[str] | None = None
    parallel: bool = True

    def __post_init__(self) -> None:
        if not 1 <= len(self.offered) <= MAX_TOOLS:
            raise InvalidParameter(
                f"{len(self.offered)} tools are offered; 1 to {MAX_TOOLS} are possible.", param="tools"
            )

    @property
    def to_call(self) -> tuple[Tool, ...]:
        """Those that may be called."""
        return tuple(tool for tool in self.offered if self.callable is None or tool.name in self.callable)

    @property
    def insists(self) -> bool:
        """Whether the answer has to be a call."""
        return self.use is not ToolUse.AUTO

    @property
    def most_calls(self) -> int:
        """Calls after which the answer ends."""
        return MAX_CALLS if self.parallel and self.use is not ToolUse.NAMED else 1

    def tool(self, name: str) -> Tool:
        """The tool of that name."""
        return next(tool for tool in self.offered if tool.name == name)


@dataclass(frozen=True)
class PastCall:
    """A call in a conversation: what a turn of the assistant asked for.

    ``arguments`` is the text it was given; one that is an object in JSON is shown to the model as that.
    """

    id: str
    name: str
    arguments: str = "{}"

    def value(self) -> Mapping[str, Any] | str:
        """The arguments as an object, where they are one."""
        try:
            value = json.loads(self.arguments or "{}")
        except (ValueError, RecursionError):
            return self.arguments
        return value if isinstance(value, dict) else self.arguments

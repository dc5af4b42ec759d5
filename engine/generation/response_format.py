"""What form an answer must have: any JSON object, or a document that fits a JSON Schema.

A value, checked on construction; it needs no model and no constraint library, so a route can refuse before loading.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.errors import InvalidParameter
from engine.generation.constraints.keywords import check_schema, compact

if TYPE_CHECKING:
    from engine.generation.constraint import CompiledConstraint
    from engine.generation.constraints.grammar import Vocabulary

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, eq=False)
class ResponseFormat:
    """The constraint a request asks for.

    Args:
        schema: The JSON Schema, an object or a boolean; None asks for any JSON object (``json_object``).
        name: What the request calls the schema: 1 to 64 letters, digits, ``_`` or ``-``. Needed with a schema.

    Raises :class:`ResponseFormatUnsupported` for a schema that cannot be enforced in full, :class:`InvalidParameter`
    for the name.
    """

    schema: Mapping[str, Any] | bool | None = None
    name: str | None = None
    text: str = field(init=False, default="")
    """What is enforced, as compact JSON: what the grammar is made of, and its name in the cache."""
    effective_schema: Mapping[str, Any] | bool = field(init=False, default_factory=lambda: {"type": "object"})
    """What is enforced: what a finished document is validated against."""

    def __post_init__(self) -> None:
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
        """The value of ``X-miLLM-Constrained``: ``json_object``, or ``json_schema;name="NAME"``."""
        return "json_object" if self.schema is None else f'json_schema;name="{self.name}"'

    def compile(self, vocabulary: Vocabulary, eos_ids: Collection[int]) -> CompiledConstraint:
        """Compile it for a tokenizer with these end tokens. Raises :class:`ResponseFormatUnsupported`."""
        from engine.generation.constraint import CompiledConstraint

        return CompiledConstraint(vocabulary, self, eos_ids)

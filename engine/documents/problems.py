"""What is wrong with a document and where: JSON pointers (RFC 6901), and pydantic's findings in our own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from engine.counting import so_many
from engine.documents.errors import DocumentInvalid
from engine.wire import wire

MAX_LISTED = 10
"""Problems listed in one refusal."""

_WORDING: Mapping[str, str] = {
    "missing": "is required",
    "string_type": "must be text",
    "string_too_short": "must have at least {characters}",
    "string_too_long": "must have at most {max_length} characters",
    "list_type": "must be a list",
    "too_short": "must have at least {items}, it has {actual_length}",
    "too_long": "must have at most {max_length} items",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "bool_type": "must be true or false",
    "literal_error": "must be {expected}",
}


@dataclass(frozen=True)
class DocumentProblem:
    """One finding. ``pointer`` is a JSON pointer; empty means the whole document."""

    pointer: str
    message: str

    def sentence(self) -> str:
        """Place and finding as the start of a sentence."""
        return f"{self.pointer or 'The document'} {self.message}"


def json_pointer(parts: Sequence[str | int]) -> str:
    """The pointer to ``parts``, keys and list positions from the root down."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def refusal(
    what: str,
    problems: Sequence[DocumentProblem],
    *,
    details: Mapping[str, Any] | None = None,
    remedy: str | None = None,
) -> DocumentInvalid:
    """The error for ``problems`` (one or more) of a document called ``what``, such as "cluster document"."""
    further = len(problems) - 1
    more = f" (and {so_many(further, 'more problem')})" if further else ""
    return DocumentInvalid(
        f"This {what} cannot be used. {problems[0].sentence()}{more}.",
        details={"errors": wire(problems[:MAX_LISTED]), **(details or {})},
        remedy=remedy or "Correct the document and import it again.",
    )


def validation_problems(error: ValidationError, prefix: Sequence[str | int] = ()) -> list[DocumentProblem]:
    """The findings of ``error``, each under ``prefix``."""
    found = []
    for item in error.errors(include_url=False, include_input=False):
        wording = _WORDING.get(item["type"])
        facts = item.get("ctx", {})
        least = facts.get("min_length", 0)
        counts = {"characters": so_many(least, "character"), "items": so_many(least, "item")}
        message = wording.format(**facts, **counts) if wording else item["msg"]
        # pydantic marks a bad dictionary key with a last part of its own.
        parts = [part for part in item["loc"] if part != "[key]"]
        found.append(DocumentProblem(json_pointer([*prefix, *parts]), message))
    return found

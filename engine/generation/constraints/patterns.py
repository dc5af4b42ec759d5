"""Regular expressions that a request sends, matched in linear time.

They are pydantic's. Python's own can take for ever on a pattern made for it, and hold the interpreter while they do.
"""

from __future__ import annotations

from functools import lru_cache

from pydantic_core import SchemaError, SchemaValidator, core_schema


def problem(pattern: str) -> str | None:
    """Why ``pattern`` cannot be used (look-around, back-references, a slip), in words; None when it can."""
    try:
        _compiled(pattern)
    except SchemaError as error:
        return " ".join(str(error).rpartition("error:")[2].split())[:300]
    return None


def found_in(pattern: str, text: str) -> bool:
    """Whether ``pattern`` matches somewhere in ``text``, which is what JSON Schema means by it."""
    return _compiled(pattern).isinstance_python(text)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(pattern=pattern))

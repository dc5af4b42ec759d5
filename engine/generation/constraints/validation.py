"""Checking a finished document against its schema, by another hand than the one that constrained it.

The walk is jsonschema's; its patterns are ours, see ``patterns``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from engine.generation.constraints.patterns import found_in
from engine.generation.errors import ConstrainedOutputInvalid

MAX_STEPS = 100_000
"""References and alternatives followed for one document; schemas can be written that would need ages."""


class DocumentCheck:
    """Validates documents against one schema, which ``check_schema`` has accepted."""

    def __init__(self, schema: Mapping[str, Any] | bool) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema.validators import extend

        self._left = MAX_STEPS
        checks = Draft202012Validator.VALIDATORS

        def counted(keyword: str) -> Any:
            check = checks[keyword]

            def run(validator: Any, value: Any, instance: Any, parent: Any) -> Iterator[Any]:
                self._left -= 1
                if self._left < 0:
                    raise _TooCostly
                yield from check(validator, value, instance, parent)

            return run

        kind = extend(Draft202012Validator, {"pattern": _pattern, "$ref": counted("$ref"), "anyOf": counted("anyOf")})
        self._validator = kind(schema)

    def check(self, document: str) -> None:
        """Raise :class:`ConstrainedOutputInvalid` unless ``document`` is JSON and fits the schema."""
        try:
            value = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise _invalid(f"it is not JSON ({error})") from error
        self._left = MAX_STEPS
        try:
            found = next(iter(self._validator.iter_errors(value)), None)
        except _TooCostly as error:
            raise _invalid(f"checking it took more than {MAX_STEPS} steps") from error
        except RecursionError as error:
            raise _invalid("it is nested too deeply to be checked") from error
        if found is not None:
            place = "".join(f"/{part}" for part in found.absolute_path)
            keyword = "/".join(str(part) for part in found.absolute_schema_path)
            raise _invalid(f"its value at '{place}' does not fit '{keyword}'")


class _TooCostly(Exception):
    """The budget of steps is used up."""


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if isinstance(instance, str) and not found_in(pattern, instance):
        yield ValidationError("the text does not match the pattern")


def _invalid(reason: str) -> ConstrainedOutputInvalid:
    return ConstrainedOutputInvalid(
        f"The model completed a document that is not what was asked for: {reason}.",
        remedy="Send the request again, or simplify the schema.",
    )

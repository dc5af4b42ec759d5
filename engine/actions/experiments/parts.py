"""Reading the parts of a record's content, each checked: a record may have come over the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import InvalidParameter

LARGEST = 1e15
"""No figure of a record is larger; far beyond it arithmetic would fail."""


def part(given: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """An object in ``given``. Raises :class:`InvalidParameter`, as all of these do."""
    found = given.get(name)
    if not isinstance(found, Mapping):
        raise InvalidParameter(f"'{where}.{name}' must be an object.", param=f"{where}.{name}")
    return found


def parts(given: Mapping[str, Any], name: str, where: str) -> Sequence[Any]:
    """A list in ``given``."""
    found = given.get(name)
    if not isinstance(found, list | tuple):
        raise InvalidParameter(f"'{where}.{name}' must be a list.", param=f"{where}.{name}")
    return found


def texts(given: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    """A list of texts in ``given``."""
    return tuple(word(each, f"{where}.{name}") for each in parts(given, name, where))


def word(value: object, where: str) -> str:
    """A text."""
    if not isinstance(value, str):
        raise InvalidParameter(f"'{where}' must be a text.", param=where)
    return value


def number(value: object, where: str) -> float:
    """A number that is one, within what a figure can be."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST <= value <= LARGEST:
        raise InvalidParameter(f"'{where}' must be a number.", param=where)
    return float(value)


def amount(value: object, where: str) -> float:
    """A number from 0."""
    found = number(value, where)
    if found < 0:
        raise InvalidParameter(f"'{where}' must be a number from 0.", param=where)
    return found


def index_of(text: str, where: str) -> int:
    """A whole number as the key of an object."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise InvalidParameter(f"'{where}' has whole numbers as its keys, not {text[:40]!r}.", param=where)
    return int(text)


def whole(value: object, where: str) -> int:
    """A whole number from 0."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise InvalidParameter(f"'{where}' must be a whole number from 0.", param=where)
    return value

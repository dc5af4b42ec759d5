"""So many of a thing, in its own number: for the engine's messages, and for the window's words."""

from __future__ import annotations


def plural(number: int | float, one: str, many: str | None = None) -> str:
    """The word for so many: token, tokens. ``many``: where it is not ``one`` with an s."""
    return one if number == 1 else many or f"{one}s"


def so_many(number: int, one: str, many: str | None = None) -> str:
    """So many of a thing, as messages say it: 1 token, 12345 tokens."""
    return f"{number} {plural(number, one, many)}"


MB = 1_000_000
"""Bytes of a megabyte, everywhere: in ``*_mb`` keys of the API, in settings, and in what people read."""


def in_mb(size: float, decimals: int = 2) -> float:
    """Bytes as MB."""
    return round(size / MB, decimals)

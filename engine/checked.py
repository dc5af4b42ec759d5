"""What was made sure of before, checked where the type does not know it; unlike ``assert`` also under ``-O``."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def there(value: T | None) -> T:
    """``value``, which is not None by what went before. Raises ``TypeError``."""
    if value is None:
        raise TypeError("something is None that was made sure of")
    return value


def of_kind(kind: type[T], value: object) -> T:
    """``value``, which is a ``kind`` by what went before. Raises ``TypeError``."""
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} stands where {kind.__name__} was made sure of")
    return value

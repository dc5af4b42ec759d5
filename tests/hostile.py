"""Values that nobody sends on purpose, and every place of a JSON text where one can stand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

LONG = "y" * 6000

VALUES = (
    "null",
    "true",
    '""',
    '"\\u0000"',
    '"a\\ud800b"',
    f'"{LONG}"',
    "-1",
    "1.5",
    "5e-324",
    "1e308",
    "1e400",
    "NaN",
    "9223372036854775808",
    "1" + "0" * 400,
    "9" * 5000,
    "[]",
    "{}",
    "[null]",
    '[["\\udfff", 1e400]]',
    '{"": {"\\ud800\\u0000": 1e400}}',
    f'{{"{LONG}": 1}}',
    "[" * 150 + "]" * 150,
)
"""As JSON writes them; some are none, and Python could not write some."""

SENT = tuple(VALUES[place] for place in (0, 4, 5, 11, 13, 19, 20))
"""One of each kind, where every value is a request."""

_MARK = "\u2603"

Place = tuple[Any, ...]


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Every place in ``value``, the whole first, and in each object one key that nobody knows."""
    yield at
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*at, key))
        yield (*at, "zz")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from places(item, (*at, number))


def spoilt(sound: Any, below: Place = (), values: Sequence[str] = VALUES) -> Iterator[tuple[str, bytes]]:
    """``sound`` with each of ``values`` at each place below ``below``: what was put where, and the text."""
    for at in places(sound):
        if at[: len(below)] == below:
            text = json.dumps(_put(sound, at))
            for value in values:
                where = "/".join(map(str, at))
                yield f"{value[:40]} at /{where}", text.replace(json.dumps(_MARK), value).encode()


def _put(value: Any, at: Place) -> Any:
    if not at:
        return _MARK
    if isinstance(value, dict):
        return {**value, at[0]: _put(value.get(at[0]), at[1:])}
    return [_put(item, at[1:]) if number == at[0] else item for number, item in enumerate(value)]

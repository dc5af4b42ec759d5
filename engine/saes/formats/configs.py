"""JSON configurations beside the weights: read with limits, and their values taken with types.

A configuration comes from anywhere, so its size, its depth and the type of every value that is used are checked. Values
nobody uses are kept verbatim.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.saes.errors import SaeLoadFailed

MAX_CONFIG_BYTES = 1 << 20
MAX_CONFIG_DEPTH = 32
MAX_TEXT = 1000
"""Characters of a value that is used: names and paths, which are repeated in messages."""


def shown(value: object) -> str:
    """What a file says, as far as a message has room for it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


class Config:
    """One JSON object and the name of its file, for messages. ``nested("trainer")`` gives an inner object the same way.

    Getters take several names, of which the first that is present and not null counts; they raise
    :class:`SaeLoadFailed` naming file and key when a value has the wrong type.
    """

    def __init__(self, file: str, values: Mapping[str, Any], prefix: str = "") -> None:
        self.file = file
        self.values = values
        self._prefix = prefix

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def get(self, *names: str) -> Any:
        """The raw value, or None."""
        for name in names:
            if self.values.get(name) is not None:
                return self.values[name]
        return None

    def integer(self, *names: str, minimum: int = 0) -> int | None:
        """A whole number of at least ``minimum`` (``64.0`` counts), or None."""
        value = self.number(*names)
        if value is None:
            return None
        if value != int(value) or value < minimum:
            raise self._wrong(names, f"a whole number from {minimum}")
        return int(value)

    def number(self, *names: str) -> float | None:
        """A finite number, or None."""
        value = self.get(*names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300 or math.isnan(value):
            raise self._wrong(names, "a finite number")
        return float(value)

    def text(self, *names: str) -> str | None:
        """A string of at most ``MAX_TEXT`` characters, or None."""
        value = self.get(*names)
        if value is None or (isinstance(value, str) and len(value) <= MAX_TEXT):
            return value
        raise self._wrong(names, f"a string of at most {MAX_TEXT:,} characters")

    def flag(self, *names: str) -> bool | None:
        """A truth value, or None."""
        value = self.get(*names)
        if value is None or isinstance(value, bool):
            return value
        raise self._wrong(names, "true or false")

    def nested(self, *names: str) -> Config:
        """An inner object; an empty one when it is absent."""
        value = self.get(*names)
        if value is None:
            return Config(self.file, {}, f"{self._prefix}{names[0]}.")
        if not isinstance(value, dict):
            raise self._wrong(names, "an object")
        return Config(self.file, value, f"{self._prefix}{names[0]}.")

    def _wrong(self, names: tuple[str, ...], wanted: str) -> SaeLoadFailed:
        name = next(name for name in names if self.values.get(name) is not None)
        return SaeLoadFailed(
            f"{self.file} says {self._prefix}{name} = {shown(self.values[name])}, where {wanted} belongs.",
            details={"file": self.file, "key": f"{self._prefix}{name}"},
            remedy="Download the configuration again.",
        )


def read_config(path: Path) -> Config:
    """The JSON object in ``path``. Raises :class:`SaeLoadFailed` when it is too large, too deep, or no object."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, f"cannot be read ({error.strerror or error})") from error
    if len(raw) > MAX_CONFIG_BYTES:
        raise _unreadable(path, f"is larger than {MAX_CONFIG_BYTES >> 20} MiB")
    try:
        # NaN and Infinity are no JSON: they are kept as text, so nothing mistakes them for a number.
        values = json.loads(raw.decode("utf-8-sig"), parse_constant=str)
    except RecursionError as error:
        raise _unreadable(path, f"is nested more than {MAX_CONFIG_DEPTH} levels deep") from error
    except ValueError as error:
        raise _unreadable(path, "is not valid JSON") from error
    if not isinstance(values, dict):
        raise _unreadable(path, "does not hold a JSON object")
    if _deeper_than(values, MAX_CONFIG_DEPTH):
        raise _unreadable(path, f"is nested more than {MAX_CONFIG_DEPTH} levels deep")
    return Config(path.name, values)


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _unreadable(path: Path, what: str) -> SaeLoadFailed:
    return SaeLoadFailed(
        f"{path.name} {what}.", details={"file": str(path)}, remedy="Download or export the SAE's configuration again."
    )

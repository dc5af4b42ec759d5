"""The numbers of a schema as the constraint library has to be told them, so that it means the same ones.

The library reads a long fraction up to a step beside what it says, depending on how it is spelled, and holds whole
numbers as doubles and bounds of 64 bits. So a number that this can touch is spelled in the way that is read right. A
bound for which there is none moves inwards by as little as there is, and rules out what lies between.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from engine.generation.constraints.keywords import FIELD, MAX_EXACT
from engine.generation.errors import ResponseFormatUnsupported

_INWARDS = {"minimum": math.inf, "exclusiveMinimum": math.inf, "maximum": -math.inf, "exclusiveMaximum": -math.inf}
_NAMED = ("properties", "$defs", "definitions")
_WIDEST = 2**63 - 1024
"""The greatest double below 2⁶³."""
_DIGITS = (16, 17, 18, 20)


def as_told(schema: Any, rules: Mapping[str, Any]) -> str:
    """``schema``, one that ``enforced`` has made, as JSON for the library, with its own ``rules`` beside it.

    Raises :class:`ResponseFormatUnsupported` for a listed number that the library cannot write.
    """
    telling = _Telling()
    spec = telling.schema(schema)
    text = json.dumps({**({} if spec is True else spec), **rules}, ensure_ascii=False)
    for mark, spelling in telling.spelled.items():
        text = text.replace(f'"{mark}"', spelling)
    return text


class _Telling:
    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self.spelled: dict[str, str] = {}
        """Strings that stand for numbers, and how those are spelled."""

    def schema(self, schema: Any) -> Any:
        if not isinstance(schema, Mapping):
            return schema
        made: dict[str, Any] = {}
        for keyword, value in schema.items():
            if keyword in _NAMED:
                made[keyword] = {name: self.schema(inner) for name, inner in value.items()}
            elif keyword in ("anyOf", "allOf", "prefixItems"):
                made[keyword] = [self.schema(inner) for inner in value]
            elif keyword in ("items", "additionalProperties"):
                made[keyword] = self.schema(value)
            elif keyword in ("const", "enum"):
                made[keyword] = self._listed(value)
            elif keyword in _INWARDS:
                made[keyword] = self._bound(value, _INWARDS[keyword])
            else:
                made[keyword] = value
        return made

    def _listed(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self._listed(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._listed(each) for each in value]
        if not isinstance(value, float) or _is_plain(value):
            return value
        found = self._spell(value, [value, *_beside(value, math.inf), *_beside(value, -math.inf)], value.__eq__)
        if found is None:
            raise ResponseFormatUnsupported(
                f"The number {value!r} in the schema cannot be written exactly.",
                param=FIELD,
                remedy="Give it fewer digits, or ask for it as a string.",
            )
        return found

    def _bound(self, value: int | float, inwards: float) -> Any:
        if isinstance(value, int):
            return value if abs(value) <= MAX_EXACT else _inside(value, inwards)
        if _is_plain(value):
            return value
        is_inside = value.__le__ if inwards > 0 else value.__ge__
        exact = self._spell(value, [value, *_beside(value, inwards)], value.__eq__)
        return exact or self._spell(value, [value, *_beside(value, inwards)], is_inside) or value

    def _spell(self, value: float, told: list[float], suits: Callable[[float], bool]) -> Any:
        """A spelling of ``value`` or of its neighbours ``told`` that is read as a number that suits."""
        for spelling in _spellings(told):
            read = _read(spelling)
            if read is not None and suits(read):
                mark = f"{self._mark}-{len(self.spelled)}"
                self.spelled[mark] = spelling
                return mark
        return None


def _inside(value: int, inwards: float) -> int:
    """The whole number nearest to ``value`` that a double of at most 63 bits holds, on the inner side of the bound.

    One that lies beyond on the outer side stays: no number fits it, and the library says so.
    """
    if abs(value) > _WIDEST:
        is_open = value > 0 if inwards < 0 else value < 0
        if is_open:
            return _WIDEST if value > 0 else -_WIDEST
        return value
    near = float(value)
    if (int(near) < value and inwards > 0) or (int(near) > value and inwards < 0):
        near = math.nextafter(near, inwards)
    return int(near)


def _is_plain(value: float) -> bool:
    """Whether every reader reads it right: few digits and a small power of ten (Clinger, 1990)."""
    head, _, power = f"{value:.16e}".partition("e")
    digits = head.lstrip("-").replace(".", "").rstrip("0")
    return len(digits) <= 15 and abs(int(power) - len(digits) + 1) <= 22


def _beside(value: float, direction: float) -> list[float]:
    near = math.nextafter(value, direction)
    return [near] if math.isfinite(near) else []


def _spellings(told: list[float]) -> Iterator[str]:
    for value in told:
        yield repr(value)
        for digits in _DIGITS:
            yield f"{value:.{digits}e}"


@lru_cache(maxsize=4096)
def _read(spelling: str) -> float | None:
    """The number that the library writes when it is told to write ``spelling``; None where it writes none."""
    from llguidance import LLMatcher

    matcher = LLMatcher(_bytes(), LLMatcher.grammar_from_json_schema(f'{{"const":{spelling}}}'), log_level=0)
    try:
        return float(json.loads(matcher.compute_ff_bytes()))
    except ValueError:
        return None


@lru_cache(maxsize=1)
def _bytes() -> Any:
    from llguidance import LLTokenizer

    return LLTokenizer("byte")

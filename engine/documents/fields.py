"""Field types shared by all documents: strict, finite, and with booleans kept apart from numbers."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from engine.library.names import NARRATIVE_LIMIT

LEAST_INTENSITY, GREATEST_INTENSITY = 0.0, 2.0
"""What a dial may be set to."""
MAX_INDEX = 2**31 - 1
"""Largest layer and feature index: far beyond every model, and inside every database column."""


class Open(BaseModel):
    """An object of a document: unknown keys are kept, known ones are strict, and nothing can be changed."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


def as_number(value: object) -> float | None:
    """``value`` as a finite double; None for booleans, other types, NaN, infinities and what overflows."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def as_whole(value: object) -> int | None:
    """``value`` as a whole number; 3.0 is 3, as JSON does not tell them apart. None for booleans and anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def _number(value: object) -> float:
    number = as_number(value)
    if number is None:
        raise PydanticCustomError("finite_number", "must be a finite number")
    return number


def _whole(value: object) -> int:
    whole = as_whole(value)
    if whole is None:
        raise PydanticCustomError("whole_number", "must be a whole number")
    return whole


def _sign(value: object) -> int:
    whole = as_whole(value)
    if whole not in (1, -1):
        raise PydanticCustomError("sign", "must be 1 or -1")
    return whole


def _free_of_paths(hint: str) -> str:
    trimmed = hint.strip()
    if trimmed.startswith(("/", "~", "..", "\\\\")) or ":\\" in trimmed:
        raise PydanticCustomError("path_like", "must name a source, not a path on a disk")
    return hint


def _web_address(address: str) -> str:
    if not address.lower().startswith(("http://", "https://")):
        raise PydanticCustomError("web_address", "must be an http or https address")
    return address


Number = Annotated[float, BeforeValidator(_number)]
NotNegative = Annotated[Number, Field(ge=0)]
Share = Annotated[Number, Field(ge=0, le=1)]
Whole = Annotated[int, BeforeValidator(_whole)]
Index = Annotated[Whole, Field(ge=0, le=MAX_INDEX)]
Count = Annotated[Whole, Field(ge=1, le=MAX_INDEX)]
Sign = Annotated[int, BeforeValidator(_sign)]
Strength = Annotated[Number, Field(ge=-300, le=300)]
Intensity = Annotated[Number, Field(ge=LEAST_INTENSITY, le=GREATEST_INTENSITY)]
Narrative = Annotated[str, Field(max_length=NARRATIVE_LIMIT)]
SourceHint = Annotated[str, AfterValidator(_free_of_paths)]
WebAddress = Annotated[str, Field(max_length=500), AfterValidator(_web_address)]
Anything = Any
"""A key that is kept and read elsewhere, where it is read at all: no shape is asked of it."""

"""The settings of :class:`engine.sampling.Sampling` as fields of a body, made from their declaration."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field, create_model

from engine.sampling import FIELDS, Kind, Sampling, SamplingField
from server.validators import Integer, LogitBias, Number, Seed, TopK

APART = ("logit_bias", "min_tokens", "ignore_eos", "seed")
"""Those with a row of their own in the field policy, or a place of their own in the order of a dialect's fields."""
CHOOSING = tuple(setting for setting in FIELDS if setting.name not in APART)
"""The others: the numbers by which a token is chosen."""


def bounds(setting: SamplingField) -> dict[str, Any]:
    """The bounds of a setting as pydantic takes them."""
    low = "gt" if setting.above else "ge"
    return {key: value for key, value in ((low, setting.low), ("le", setting.high)) if value is not None}


def dialect_fields() -> dict[str, Any]:
    """The :data:`CHOOSING` fields of a dialect: null asks for nothing."""
    return {
        setting.name: (TopK, None)
        if setting.no_limit
        else ((Number if setting.kind is Kind.NUMBER else Integer) | None, Field(None, **bounds(setting)))
        for setting in CHOOSING
    }


def strict_fields(base: Sampling) -> dict[str, Any]:
    """All of them for a body of the management API, where a number is a number; ``base`` holds where none is sent."""
    return {setting.name: (_strict(setting), _default(setting, base)) for setting in FIELDS}


def _strict(setting: SamplingField) -> Any:
    match setting.kind:
        case Kind.NUMBER:
            return Annotated[float, Field(**bounds(setting))]
        case Kind.WHOLE:
            return TopK if setting.no_limit else Annotated[int, Field(**bounds(setting))]
        case Kind.SWITCH:
            return bool
        case Kind.SEED:
            return Seed
        case Kind.BIASES:
            return LogitBias


def _default(setting: SamplingField, base: Sampling) -> Any:
    return Field(default_factory=dict) if setting.kind is Kind.BIASES else getattr(base, setting.name)


def with_fields(name: str, base: type[BaseModel], made: dict[str, Any]) -> Any:
    """A model with ``made`` behind the fields of ``base``, to be gone on with."""
    return create_model(name, __base__=base, __module__=base.__module__, **made)


def sampling_of(body: BaseModel, base: Sampling, **own: Any) -> Sampling:
    """What a body asks for, over ``base``; ``own`` wins over its fields, and None is nothing asked."""
    given = {setting.name: getattr(body, setting.name) for setting in FIELDS} | own
    asked = {name: value for name, value in given.items() if value is not None}
    # What other programs write for no limit is 0 here.
    limits = {each.name: max(asked[each.name], each.off) for each in FIELDS if each.no_limit and each.name in asked}
    return replace(base, **{**asked, **limits})

"""How an answer is sampled: each setting stands here once, with its bounds, what changes nothing, and its words.

Whatever lists these settings reads :data:`FIELDS`: the checks below, the API's schemas, what a model's files suggest,
the window's fields, sweeps, and what is kept and told of an answer. A new one is a field of :class:`Sampling`, and what
it does stands in ``generation/sampler.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from types import MappingProxyType
from typing import Any

from engine.errors import InvalidParameter, described

MIN_SEED, MAX_SEED = -(2**63), 2**63 - 1
NO_SEED = -1
"""What other programs write for no seed: whoever reads a seed from outside takes it for none."""
MAX_LOGIT_BIAS = 1024
"""Tokens that may have a bias."""
LEAST_BIAS, GREATEST_BIAS = -100, 100


class Kind(Enum):
    """What a setting holds."""

    NUMBER = "number"
    WHOLE = "whole"
    SWITCH = "switch"
    SEED = "seed"
    BIASES = "biases"


@dataclass(frozen=True)
class SamplingField:
    """One setting of :class:`Sampling`.

    Attributes:
        off: Its value where nothing is said; it changes nothing.
        low, high: Its bounds; None where there is none. ``above``: ``low`` itself is too low.
        no_limit: ``off`` is no limit, which other programs write as -1.
        words: What it is called in a sentence, before its value.
        hint: What it does, in a line.
        step: How far an arrow of the window's field goes.
        by_model: A model's ``generation_config.json`` has it under the same name.
    """

    name: str
    kind: Kind
    off: Any
    words: str
    hint: str
    low: float | None = None
    high: float | None = None
    above: bool = False
    no_limit: bool = False
    step: float = 1
    by_model: bool = False

    @property
    def json_type(self) -> Any:
        """The type of its value in JSON."""
        kinds = {Kind.NUMBER: float, Kind.SWITCH: bool, Kind.BIASES: dict[str, float]}
        return kinds.get(self.kind, int)

    @property
    def expected(self) -> str:
        """What it may hold, in words."""
        match self.kind:
            case Kind.NUMBER:
                return f"a number from {self.low:g}{' (excluded)' if self.above else ''} to {self.high:g}"
            case Kind.WHOLE:
                return f"an integer of at least {self.low}{' (0 is off)' if self.no_limit else ''}"
            case Kind.SWITCH:
                return "true or false"
            case Kind.SEED:
                return "a signed 64-bit integer"
            case Kind.BIASES:
                return f"at most {MAX_LOGIT_BIAS} keys"

    def read(self, value: object, where: str | None = None) -> Any:
        """A value of JSON, as this setting holds it. Raises :class:`InvalidParameter`, calling it ``where``."""
        try:
            return _READERS[self.kind](self, value)
        except ValueError as error:
            words = str(error) or self.expected
            name = where or self.name
            raise InvalidParameter(
                f"Invalid value for '{name}': {described(value)}; expected {words}.", param=name
            ) from None

    def holds(self, value: float) -> bool:
        """Whether a number is within the bounds."""
        if not math.isfinite(value):
            return False
        low = self.low is None or (value > self.low if self.above else value >= self.low)
        return low and (self.high is None or value <= self.high)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_number(setting: SamplingField, value: Any) -> float:
    # An integer too large for a float cannot be converted; no bound is near it.
    if not _is_number(value) or not -1e15 <= value <= 1e15 or not setting.holds(value):
        raise ValueError
    return float(value)


def _read_whole(setting: SamplingField, value: Any) -> int:
    if not _is_number(value) or not isinstance(value, int) or not 0 <= value <= 2**53 or not setting.holds(value):
        raise ValueError
    return value


def _read_switch(_setting: SamplingField, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _read_seed(_setting: SamplingField, value: Any) -> int:
    if not _is_number(value) or not isinstance(value, int) or not MIN_SEED <= value <= MAX_SEED:
        raise ValueError
    return value


def read_biases(value: object) -> dict[int, float]:
    """Token ids, as JSON has them as keys, and what is added to their logits. Raises ValueError in words."""
    if not isinstance(value, Mapping):
        raise ValueError("an object of token ids and numbers is expected")
    if len(value) > MAX_LOGIT_BIAS:
        raise ValueError(f"at most {MAX_LOGIT_BIAS} keys are possible, {len(value)} were sent")
    biases: dict[int, float] = {}
    for key, bias in value.items():
        # isdigit alone would let through digits of other scripts and unbounded lengths.
        if not (isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 10):
            raise ValueError(f"keys must be token ids: whole numbers of at least 0; one is {described(key)}")
        if not _is_number(bias) or not LEAST_BIAS <= bias <= GREATEST_BIAS:
            raise ValueError(
                f"values must be numbers from {LEAST_BIAS} to {GREATEST_BIAS}; that of {key} is {described(bias)}"
            )
        token = int(key)
        if token in biases:
            raise ValueError(f"token {token} is named twice, the second time as {key!r}")
        biases[token] = float(bias)
    return biases


_READERS = {
    Kind.NUMBER: _read_number,
    Kind.WHOLE: _read_whole,
    Kind.SWITCH: _read_switch,
    Kind.SEED: _read_seed,
    Kind.BIASES: lambda _setting, value: read_biases(value),
}

_DECLARED = "sampling"


def _number(off: float, low: float, high: float, words: str, hint: str, **more: Any) -> Any:
    return _declared(Kind.NUMBER, off, words, hint, low=low, high=high, **more)


def _whole(off: int, words: str, hint: str, **more: Any) -> Any:
    return _declared(Kind.WHOLE, off, words, hint, low=0, **more)


def _declared(kind: Kind, off: Any, words: str, hint: str, **more: Any) -> Any:
    facts = {_DECLARED: {"kind": kind, "off": off, "words": words, "hint": hint, **more}}
    return field(default_factory=dict, metadata=facts) if kind is Kind.BIASES else field(default=off, metadata=facts)


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. Defaults are OpenAI's; bounds are the contract's.

    Order of application: logit bias, penalties, constraint mask and held end tokens, then (only for sampling)
    temperature, top_k, top_p, min_p. Temperature 0 takes the likeliest token.

    Attributes:
        seed: A signed 64-bit integer; choice i draws from a generator made of (seed, i), of several conversations
            counted through (row × choices + i). A seeded request runs on solo lanes.
        min_tokens: End tokens and stop strings are held until this many tokens were written.
        ignore_eos: An end token counts as a token that shows nothing.
        logit_bias: Token id → added to its logit, −100…100.
    """

    temperature: float = _number(
        1.0, 0, 2, "temperature", "0 always takes the likeliest word; higher is freer.", step=0.05, by_model=True
    )
    top_p: float = _number(
        1.0,
        0,
        1,
        "top-p",
        "Only the likeliest words, which together have this share. 1 is off.",
        step=0.05,
        by_model=True,
    )
    top_k: int = _whole(
        0, "top-k", "Only this many of the likeliest words. 0 is off.", no_limit=True, step=5, by_model=True
    )
    min_p: float = _number(
        0.0, 0, 1, "min-p", "Only words this likely beside the likeliest. 0 is off.", step=0.01, by_model=True
    )
    frequency_penalty: float = _number(
        0.0, -2, 2, "frequency penalty", "Against a word for each time it was written. 0 is off.", step=0.1
    )
    presence_penalty: float = _number(
        0.0, -2, 2, "presence penalty", "Against every word that was written. 0 is off.", step=0.1
    )
    repetition_penalty: float = _number(
        1.0,
        0,
        2,
        "repetition penalty",
        "Against every word of prompt and answer; above 1 there is less repeating. 1 is off.",
        above=True,
        step=0.05,
        by_model=True,
    )
    logit_bias: Mapping[int, float] = _declared(
        Kind.BIASES, {}, "logit bias", "Added to the score of a token each time, from −100 to 100."
    )
    min_tokens: int = _whole(0, "min tokens", "The answer does not end before it has as many.", step=8)
    ignore_eos: bool = _declared(
        Kind.SWITCH, False, "end tokens ignored", "The answer goes on to the longest it may be."
    )
    seed: int | None = _declared(Kind.SEED, None, "seed", "The same seed and settings give the same answer.")

    def __post_init__(self) -> None:
        for setting in FIELDS:
            _check(setting, getattr(self, setting.name))
        object.__setattr__(self, "logit_bias", MappingProxyType(dict(self.logit_bias)))

    def changes(self) -> dict[str, Any]:
        """What is not off, by name, as JSON has it."""
        given = {setting.name: getattr(self, setting.name) for setting in FIELDS}
        return {name: as_json(value) for name, value in given.items() if value != BY_NAME[name].off}


def _check(setting: SamplingField, value: Any) -> None:
    match setting.kind:
        case Kind.NUMBER | Kind.WHOLE:
            _hold(setting.holds(value), setting.name, repr(value), setting.expected)
        case Kind.SEED:
            _hold(value is None or MIN_SEED <= value <= MAX_SEED, setting.name, repr(value), setting.expected)
        case Kind.BIASES:
            _hold(len(value) <= MAX_LOGIT_BIAS, setting.name, f"{len(value)} keys", setting.expected)
            for token, bias in value.items():
                _hold(token >= 0, setting.name, repr(token), "token ids of at least 0")
                inside = math.isfinite(bias) and LEAST_BIAS <= bias <= GREATEST_BIAS
                _hold(inside, f"{setting.name}.{token}", repr(bias), f"a number from {LEAST_BIAS} to {GREATEST_BIAS}")


def _hold(holds: bool, name: str, value: str, expected: str) -> None:
    if not holds:
        raise InvalidParameter(f"Invalid value for '{name}': {value}; expected {expected}.", param=name)


FIELDS: tuple[SamplingField, ...] = tuple(
    SamplingField(each.name, **each.metadata[_DECLARED]) for each in fields(Sampling)
)
"""The settings, in the order in which the API names them."""
BY_NAME: Mapping[str, SamplingField] = MappingProxyType({each.name: each for each in FIELDS})
TOLD: tuple[SamplingField, ...] = tuple(
    each
    for each in sorted(FIELDS, key=lambda each: not each.name.endswith("_penalty"))
    if each.name not in ("temperature", "seed")
)
"""All but temperature and seed, which are told and set apart from the others, in the order in which people see them."""


def fitting(given: object, names: Iterable[str] = tuple(BY_NAME)) -> dict[str, Any]:
    """The settings in a JSON object that can be read and are within their bounds; others, and null, are left out."""
    found: dict[str, Any] = {}
    if not isinstance(given, Mapping):
        return found
    for name in names:
        if given.get(name) is None or (BY_NAME[name].kind is Kind.SEED and given[name] == NO_SEED):
            continue
        try:
            found[name] = BY_NAME[name].read(given[name])
        except InvalidParameter:
            continue
    return found


def as_json(value: Any) -> Any:
    """A setting's value as JSON has it."""
    return {str(token): bias for token, bias in value.items()} if isinstance(value, Mapping) else value


MOST_TOLD = 4
"""Biases that are told one by one in a sentence."""


def named_values(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name in words and value of all but temperature and seed that ``given`` has, as kept with an answer, in order."""
    return [(each.words, value_words(given[each.name])) for each in TOLD if given.get(each.name) is not None]


def value_words(value: object, most: int | None = None) -> str:
    """A kept value in words; of biases the first ``most``."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, Mapping):
        return str(value)
    parts = [f"{token}: {bias}" for token, bias in value.items()]
    more = len(parts) - len(parts if most is None else parts[:most])
    return ", ".join(parts[:most]) + (f" and {more} more" if more else "")


def sentence(given: Mapping[str, Any]) -> list[str]:
    """As :func:`named_values`, each as words of a sentence; a switch that is on is its name alone."""
    return [
        each.words if given[each.name] is True else f"{each.words} {value_words(given[each.name], MOST_TOLD)}"
        for each in TOLD
        if given.get(each.name) is not None
    ]

"""What a sweep runs and what it gives: frozen values, checked when they are made."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from engine.actions.sweeping.measures import perplexity
from engine.documents.fields import GREATEST_INTENSITY, LEAST_INTENSITY
from engine.errors import InvalidParameter
from engine.sampling import BY_NAME, Sampling
from engine.steering.live import AttachmentKey

MOST_PROMPTS = 100
MOST_COLUMNS = 41
MOST_TOKENS = 1024
SWEEP_SAMPLING = Sampling(temperature=0.0, seed=0)
"""How a sweep is sampled where nobody says otherwise."""
ALWAYS_TOLD = ("temperature", "top_p", "repetition_penalty", "seed")
"""Sampling of a sweep that is told even where it changes nothing."""
PLAIN = 0.0
"""The intensity of the plain column: nothing is added."""


class BaseKind(StrEnum):
    """What the dial of a sweep acts on."""

    CLUSTER = "cluster"
    PROFILE = "profile"
    CIRCUIT = "circuit"
    LIVE = "live"


@dataclass(frozen=True)
class BaseChoice:
    """Something a sweep can turn the dial of. ``low`` and ``high`` are the range its document declares."""

    kind: BaseKind
    id: str
    name: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class SweepBase:
    """Authored strengths by the attached SAE that serves them, at intensity 1."""

    kind: BaseKind
    name: str
    authored: Mapping[AttachmentKey, Mapping[int, float]]
    warnings: tuple[str, ...] = ()
    id: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether it would steer nothing at any intensity."""
        return not any(value for values in self.authored.values() for value in values.values())


@dataclass(frozen=True)
class SweepSettings:
    """What is asked, and how.

    Attributes:
        prompts: Each becomes one user message.
        intensities: The dial's values, each once, rising; 0 is the plain column.
        sampling: At temperature 0 greedy; above it every cell of a prompt draws the same noise, by its seed, which is
            needed: each prompt draws the noise of the one behind the one before it.
        topic: Words a text on the topic is counted by; may be empty.
        system: System text of every conversation; blank: none.

    Raises :class:`InvalidParameter` naming what is out of range.
    """

    prompts: tuple[str, ...]
    intensities: tuple[float, ...]
    max_tokens: int = 48
    sampling: Sampling = SWEEP_SAMPLING
    topic: frozenset[str] = frozenset()
    system: str = ""

    def __post_init__(self) -> None:
        _check(1 <= len(self.prompts) <= MOST_PROMPTS, "prompts", f"{len(self.prompts)}", f"1 to {MOST_PROMPTS}")
        _check(all(text.strip() for text in self.prompts), "prompts", "a blank one", "a text in each line")
        columns = tuple(sorted({value + 0.0 for value in self.intensities}))
        object.__setattr__(self, "intensities", columns)
        _check(1 <= len(columns) <= MOST_COLUMNS, "intensities", f"{len(columns)} values", f"1 to {MOST_COLUMNS}")
        for value in columns:
            inside = math.isfinite(value) and LEAST_INTENSITY <= value <= GREATEST_INTENSITY
            _check(inside, "intensities", f"{value:g}", f"{LEAST_INTENSITY:g} to {GREATEST_INTENSITY:g}")
        _check(self.sampling.seed is not None, "seed", "none", BY_NAME["seed"].expected)
        _check(1 <= self.max_tokens <= MOST_TOKENS, "max_tokens", str(self.max_tokens), f"1 to {MOST_TOKENS}")
        least = self.sampling.min_tokens
        _check(least <= self.max_tokens, "min_tokens", str(least), f"at most max_tokens ({self.max_tokens})")

    @property
    def cells(self) -> int:
        """Answers to be written."""
        return len(self.prompts) * len(self.intensities)

    @property
    def seed(self) -> int:
        """What the first prompt draws by."""
        return self.sampling.seed or 0

    def as_json(self) -> dict[str, Any]:
        """As it travels and is kept: one object, with :data:`ALWAYS_TOLD` and what else of the sampling is not off."""
        return {
            "prompts": list(self.prompts),
            "intensities": list(self.intensities),
            "max_tokens": self.max_tokens,
            **{name: getattr(self.sampling, name) for name in ALWAYS_TOLD},
            **self.sampling.changes(),
            "topic": sorted(self.topic),
            "system": self.system,
        }


@dataclass(frozen=True)
class CellResult:
    """One answer and its measures.

    Attributes:
        prompt: Which prompt, from 0.
        tokens: Tokens of the answer; those of its reasoning do not count, here and in every measure.
        topic: Share of topic words; None where no words were given.
        features: Mean activation of the steered features on an unsteered reading of the answer, each with the sign of
            its strength, summed; None where nothing could be read.
        loss: Mean loss per token under the unsteered model, in nats, after the same prompt.
        trigrams: Share of repeated trigrams.
        clamped: Strengths that were held at ±200.
        error: Why there is no answer, in words.
        reasoning: What the model wrote before the answer, apart from it.
    """

    prompt: int
    intensity: float
    text: str = ""
    tokens: int = 0
    finish: str = ""
    topic: float | None = None
    features: float | None = None
    loss: float | None = None
    trigrams: float | None = None
    clamped: int = 0
    error: str | None = None
    reasoning: str = ""

    @property
    def perplexity(self) -> float | None:
        """Perplexity under the unsteered model."""
        return perplexity(self.loss)


@dataclass(frozen=True)
class ColumnMeans:
    """Means over the prompts at one intensity; perplexity is of the mean loss per token."""

    intensity: float
    answers: int
    topic: float | None
    features: float | None
    perplexity: float | None
    trigrams: float | None


@dataclass(frozen=True)
class SweepOutcome:
    """A sweep as far as it came. ``facts`` say what it ran on, for a record: name → text, in order."""

    settings: SweepSettings
    base: SweepBase
    cells: tuple[CellResult, ...]
    facts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    complete: bool = True

    def means(self) -> tuple[ColumnMeans, ...]:
        """The means of each column that has an answer, by rising intensity."""
        return means(self.cells, self.settings.intensities)


def means(cells: Iterable[CellResult], intensities: Sequence[float]) -> tuple[ColumnMeans, ...]:
    """The means of each intensity that has an answer; what was not measured does not count."""
    found: list[ColumnMeans] = []
    given = [cell for cell in cells if cell.error is None]
    for intensity in intensities:
        column = [cell for cell in given if cell.intensity == intensity]
        if not column:
            continue
        weighed = [(cell.loss, cell.tokens) for cell in column if cell.loss is not None and not math.isnan(cell.loss)]
        tokens = sum(number for _, number in weighed)
        loss = sum(value * number for value, number in weighed) / tokens if tokens else None
        found.append(
            ColumnMeans(
                intensity,
                len(column),
                _mean([cell.topic for cell in column]),
                _mean([cell.features for cell in column]),
                perplexity(loss),
                _mean([cell.trigrams for cell in column]),
            )
        )
    return tuple(found)


_ONE_COMMA = re.compile(r"[-+−]?\d{1,6},\d{1,6}", re.ASCII)
"""Two numbers with a comma and no blank between them."""


def parse_intensities(text: str) -> tuple[float, ...]:
    """Values as a person writes them: ``0.5, 1, 1.5``, or from–to–step as ``0..2 by 0.25`` or ``0-2/0.25``.

    Raises :class:`InvalidParameter` with the part that cannot be read, or can be read in two ways.
    """
    found: list[float] = []
    for word in text.split():
        if _ONE_COMMA.fullmatch(word.rstrip(";")):
            point = word.rstrip(";").replace(",", ".")
            raise InvalidParameter(
                f"“{word}” can be read as {point} or as two values of λ.",
                param="intensities",
                remedy=f"Write {point}, or a blank after the comma.",
            )
    tidy = text.replace("…", "..").replace("–", "-").replace(";", ",").replace("−", "-")
    for part in (piece.strip() for piece in tidy.split(",")):
        if not part:
            continue
        span = part.replace("by", "/").replace("step", "/").replace("to", "..").replace(" ", "")
        ends, _, step = span.partition("/")
        low, dots, high = ends.partition("..") if ".." in ends else ends.partition("-")
        if dots and low:
            found.extend(_range(_number(low, part), _number(high, part), _number(step or "0.25", part), part))
        elif step:
            raise _unreadable(part)
        else:
            found.extend(_number(each, part) for each in part.split())
    if not found:
        raise InvalidParameter(
            "No value of λ is given.", param="intensities", remedy="Write values like 0.5, 1, 1.5 or 0..2 by 0.25."
        )
    return tuple(dict.fromkeys(found))


def _range(low: float, high: float, step: float, part: str) -> list[float]:
    if step <= 0 or high < low or (high - low) / step > MOST_COLUMNS:
        raise _unreadable(part)
    # Counted in steps, so that 0.1 three times is 0.3.
    return [round(low + number * step, 6) for number in range(int((high - low) / step + 1e-9) + 1)]


def _number(text: str, part: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _unreadable(part) from None
    if not math.isfinite(value):
        raise _unreadable(part)
    return value


def _unreadable(part: str) -> InvalidParameter:
    return InvalidParameter(
        f"{part[:40]!r} is no value of λ.",
        param="intensities",
        remedy="Write values like 0.5, 1, 1.5, or from–to–step like 0..2 by 0.25.",
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _check(holds: bool, name: str, value: str, expected: str) -> None:
    if not holds:
        raise InvalidParameter(f"Invalid value for '{name}': {value}; expected {expected}.", param=name)

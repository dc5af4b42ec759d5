"""What a request asks back with ``return_sae_activations``, parsed and checked before anything loads. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from engine.config import EngineSettings
from engine.errors import described
from engine.monitor.errors import SaeActivationsRefused

FIELD = "return_sae_activations"
"""The request field; parameters of refusals are dotted below it."""

_KEYS = ("sae_id", "features", "top_k", "positions", "read_point")
_SHOWN = 60


class ReadPoint(StrEnum):
    """Which side of the layer's own steering is read. ``unsteered`` is only ever reported: scoring has no steering."""

    POST_STEERING = "post_steering"
    PRE_STEERING = "pre_steering"
    UNSTEERED = "unsteered"


class PositionChoice(StrEnum):
    """Positions by name. ``last`` is the last one fed to the model, which is never the last sampled token."""

    LAST = "last"
    PROMPT = "prompt"
    COMPLETION = "completion"
    ALL = "all"


@dataclass(frozen=True)
class PositionRange:
    """Positions ``start`` to ``end`` − 1, counted from 0 over prompt then answer."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not _is_whole(self.start) or self.start < 0:
            raise _refused("positions.start", self.start, "a whole number of at least 0")
        if not _is_whole(self.end) or self.end <= self.start:
            raise _refused("positions.end", self.end, f"a whole number above start ({self.start})")


@dataclass(frozen=True)
class CaptureLimits:
    """How much one request may ask back, and how much is encoded at once."""

    max_top_k: int = 64
    max_entries: int = 65_536
    encode_chunk: int = 512

    @classmethod
    def from_settings(cls, settings: EngineSettings) -> CaptureLimits:
        return cls(
            settings.SAE_ACTIVATIONS_MAX_TOP_K,
            settings.SAE_ACTIVATIONS_MAX_ENTRIES,
            settings.SAE_ACTIVATIONS_ENCODE_CHUNK,
        )


@dataclass(frozen=True)
class ActivationSpec:
    """The request's wish; raises :class:`SaeActivationsRefused` naming the key that is wrong.

    Attributes:
        top_k: Features given back per position, the strongest of the candidates.
        sae_id: Which SAE; None means the only attached one.
        features: Candidates; None means all. A feature named twice counts once.
    """

    top_k: int
    positions: PositionChoice | PositionRange
    sae_id: str | None = None
    features: tuple[int, ...] | None = None
    read_point: ReadPoint = ReadPoint.POST_STEERING

    def __post_init__(self) -> None:
        if not _is_whole(self.top_k) or self.top_k < 1:
            raise _refused("top_k", self.top_k, "a whole number of at least 1")
        if self.sae_id is not None and (not isinstance(self.sae_id, str) or not self.sae_id):
            raise _refused("sae_id", self.sae_id, "the id of an attached SAE")
        if self.features is not None:
            if not self.features:
                raise _refused("features", [], "at least one feature; leave it out to choose among all")
            for index in self.features:
                if not _is_whole(index) or index < 0:
                    raise _refused("features", index, "whole numbers of at least 0")
            object.__setattr__(self, "features", tuple(dict.fromkeys(self.features)))
        if self.read_point is ReadPoint.UNSTEERED:
            raise _refused("read_point", "unsteered", "'post_steering' or 'pre_steering'")

    @classmethod
    def from_wire(cls, value: object) -> ActivationSpec:
        """The value of the request field. Unknown keys are refused; ``null`` for an optional key means left out."""
        if not isinstance(value, Mapping):
            raise _refused("", value, "an object with 'top_k' and 'positions'")
        unknown = [str(key) for key in value if key not in _KEYS]
        if unknown:
            raise SaeActivationsRefused(
                f"'{FIELD}' has no {', '.join(repr(key[:_SHOWN]) for key in unknown[:5])}; "
                f"its keys are {', '.join(_KEYS)}.",
                param=f"{FIELD}.{unknown[0][:_SHOWN]}",
                remedy="Remove what it does not know.",
            )
        for key in ("top_k", "positions"):
            if value.get(key) is None:
                raise SaeActivationsRefused(
                    f"'{FIELD}' needs '{key}'.", param=f"{FIELD}.{key}", remedy=f"Add '{key}' to it."
                )
        features = value.get("features")
        if features is not None and not isinstance(features, list | tuple):
            raise _refused("features", features, "a list of whole numbers of at least 0")
        read_point = value.get("read_point")
        return cls(
            top_k=value["top_k"],
            positions=_positions(value["positions"]),
            sae_id=value.get("sae_id"),
            features=None if features is None else tuple(features),
            read_point=ReadPoint.POST_STEERING if read_point is None else _read_point(read_point),
        )


def require_one_answer(*, choices: int, prompts: int = 1, extra_messages: bool = False) -> None:
    """Raise :class:`SaeActivationsRefused` unless one prompt gives one choice: there is one axis of positions."""
    reason = None
    if choices > 1:
        reason = f"{choices} choices are asked for"
    elif prompts > 1:
        reason = f"{prompts} prompts are given"
    elif extra_messages:
        reason = "'extra_messages' adds further conversations"
    if reason is not None:
        raise SaeActivationsRefused(
            f"Activations are given back for one answer to one prompt, and {reason}.",
            param=FIELD,
            remedy="Send one request for each.",
        )


def _positions(value: object) -> PositionChoice | PositionRange:
    expected = "'last', 'prompt', 'completion', 'all' or {\"start\", \"end\"}"
    if isinstance(value, Mapping):
        if set(value) != {"start", "end"}:
            raise _refused("positions", dict(value), expected)
        return PositionRange(value["start"], value["end"])
    if isinstance(value, str) and value in set(PositionChoice):
        return PositionChoice(value)
    raise _refused("positions", value, expected)


def _read_point(value: object) -> ReadPoint:
    if isinstance(value, str) and value in {ReadPoint.POST_STEERING, ReadPoint.PRE_STEERING}:
        return ReadPoint(value)
    raise _refused("read_point", value, "'post_steering' or 'pre_steering'")


def _refused(key: str, value: object, expected: str) -> SaeActivationsRefused:
    param = f"{FIELD}.{key}" if key else FIELD
    return SaeActivationsRefused(
        f"Invalid value for '{param}': expected {expected}; received {described(value)}.", param=param
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

"""Header names of the protocol and their grammar (RFC 8941 structured fields, serialised by ``http_sf``)."""

from __future__ import annotations

from collections.abc import Sequence

import http_sf
from http_sf.types import BareItemType

from engine.errors import InvalidParameter

BACKEND = "X-miLLM-Backend"
BATCH = "X-miLLM-Batch"
CIRCUIT_RUNG = "X-miLLM-Circuit-Rung"
CONSTRAINED = "X-miLLM-Constrained"
IGNORED_FIELDS = "X-miLLM-Ignored-Fields"
LEASE = "X-miLLM-Lease"
LOAD_POLICY = "X-miLLM-Load-Policy"
MODE = "X-miLLM-Mode"
NOTES = "X-miLLM-Notes"
SEED = "X-miLLM-Seed"
STEERING = "X-miLLM-Steering"
STEERING_INTENSITY = "X-miLLM-Steering-Intensity"
STRICT = "X-miLLM-Strict"

RESPONSE_HEADERS = (
    BACKEND,
    BATCH,
    CIRCUIT_RUNG,
    CONSTRAINED,
    IGNORED_FIELDS,
    MODE,
    NOTES,
    SEED,
    STEERING,
    STEERING_INTENSITY,
)
"""Headers of ours that a browser page may read."""

_STRICT_WORDS = {"true": True, "1": True, "false": False, "0": False}


def percent_encode(text: str) -> str:
    """``text`` as printable ASCII: ``%`` and every byte outside 0x20–0x7E become ``%XX`` with upper-case digits.

    Lone surrogates, which UTF-8 cannot hold, are written as the bytes they would have.
    """
    raw = text.encode("utf-8", "surrogatepass")
    return "".join(chr(b) if 0x20 <= b <= 0x7E and b != 0x25 else f"%{b:02X}" for b in raw)


def string_list(texts: Sequence[str], max_bytes: int) -> str:
    """An RFC 8941 list of strings of at most ``max_bytes`` bytes; a last ``"+N more"`` counts what does not fit."""
    members: list[str] = []
    length = 0
    for text in texts:
        member = http_sf.ser(percent_encode(text))
        length += len(member) + (2 if members else 0)
        if length > max_bytes:
            break
        members.append(member)
    else:
        return ", ".join(members)
    while members and len(_cut(members, len(texts))) > max_bytes:
        members.pop()
    return _cut(members, len(texts))


def _cut(members: list[str], total: int) -> str:
    return ", ".join([*members, http_sf.ser(f"+{total - len(members)} more")])


def seed(value: int, scope: str) -> str:
    """The seed that was applied and how far its promise of equal bytes reaches."""
    parameters: dict[str, BareItemType] = {"scope": scope}
    return http_sf.ser((value, parameters))


def strict_flag(values: Sequence[str]) -> bool:
    """Whether unused fields are refused; ``values`` are the header's, in order.

    Raises :class:`InvalidParameter` for anything but true, 1, false and 0.
    """
    if not values:
        return False
    word = ", ".join(values).strip()
    flag = _STRICT_WORDS.get(word.lower())
    if flag is None:
        raise InvalidParameter(
            f"Invalid value for '{STRICT}': {percent_encode(word)[:80]!r}; expected true, 1, false or 0.", param=STRICT
        )
    return flag

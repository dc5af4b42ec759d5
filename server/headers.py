"""Header names of the protocol, and those that a request carries; what an answer's say is the engine's."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import InvalidParameter
from engine.public.generation import (
    BACKEND,
    BATCH,
    CIRCUIT_RUNG,
    MODE,
    NOTES,
    SEED,
    STEERING,
    STEERING_INTENSITY,
    WARM,
    percent_encode,
    seed,
    steering_headers,
    string_list,
)

__all__ = [
    "ANSWER_HEADERS",
    "BACKEND",
    "BATCH",
    "CIRCUIT_RUNG",
    "CONSTRAINED",
    "ERROR_CODE",
    "IGNORED_FIELDS",
    "LEASE",
    "LOAD_POLICY",
    "MODE",
    "NOTES",
    "PROFILE",
    "RESPONSE_HEADERS",
    "SEED",
    "STEERING",
    "STEERING_INTENSITY",
    "STRICT",
    "WARM",
    "percent_encode",
    "seed",
    "steering_headers",
    "strict_flag",
    "string_list",
]

CONSTRAINED = "X-miLLM-Constrained"
ERROR_CODE = "X-miLLM-Error-Code"
IGNORED_FIELDS = "X-miLLM-Ignored-Fields"
LEASE = "X-miLLM-Lease"
LOAD_POLICY = "X-miLLM-Load-Policy"
PROFILE = "X-miLLM-Profile"
STRICT = "X-miLLM-Strict"

ANSWER_HEADERS = (
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
    WARM,
)
"""Headers of ours that an answer may have."""
RESPONSE_HEADERS = (*ANSWER_HEADERS, ERROR_CODE)
"""Headers of ours that a browser page may read."""

_STRICT_WORDS = {"true": True, "1": True, "false": False, "0": False}


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

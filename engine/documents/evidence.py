"""Evidence rungs: the four phrases, what would lift a circuit to the next, and the only place that spells them.

The phrases are protocol. Nothing shown or sent may call a circuit below rung 2 causal, and the absence of a rung is
never shown as rung 0. Observing a circuit never raises its rung.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from engine.documents.fields import as_whole

VALIDATED_RUNG = 2
"""From here on a circuit counts as validated."""
TOP_RUNG = 3

_LANGUAGE = (
    "associated",
    "suggested (attribution-supported)",
    "causally validated (edge)",
    "faithfulness-tested (circuit)",
)
_NEXT_STEP = (
    "run an attribution pass",
    "run intervention validation",
    "run circuit-level faithfulness",
    "nothing further: this is the top rung",
)
TESTED_ELSEWHERE = (
    "This program does not test circuits: the tool that made the document does (miStudio, or your own code); import "
    "the document again then."
)
"""Said wherever the next step is: advice that cannot be followed here says where it can."""

PERSISTENCE = "persistence"
"""The type of an edge whose effect is mostly the direct path along the residual stream."""

ONLY_PERSISTENCE = "persistence only: carried on, not computed"
"""Said beside the phrase where every edge of a circuit is persistence: the phrase alone promises more."""

PERSISTENCE_SENTENCE = (
    "Every edge of this circuit is persistence: for the larger part the residual stream carries a direction on from "
    "layer to layer; nothing computed anew was shown."
)

_CAUSAL = re.compile(r"caus(?:al|ation|es\b|ed\b)", re.IGNORECASE)


def parse_rung(value: object) -> int | None:
    """``value`` as a rung 0 to 3; None when it is none, which then counts as 0: evidence degrades, never improves."""
    rung = as_whole(value)
    return rung if rung is not None and 0 <= rung <= TOP_RUNG else None


def circuit_rung(edge_rungs: Iterable[int]) -> int:
    """A circuit's rung: its weakest edge's, 0 without edges."""
    return min(edge_rungs, default=0)


def is_validated(rung: int) -> bool:
    """Whether a circuit of this rung may be activated without an acknowledgement."""
    return rung >= VALIDATED_RUNG


def rung_language(rung: int) -> str:
    """The phrase of rung 0 to 3, to be shown word for word."""
    return _LANGUAGE[_known(rung)]


def is_only_persistence(edge_types: Iterable[str]) -> bool:
    """Whether all edges are persistence; a circuit without edges has nothing to be said of."""
    types = set(edge_types)
    return types == {PERSISTENCE}


def evidence_words(rung: int, only_persistence: bool = False) -> str:
    """The phrase of a rung word for word and, where all edges are persistence, that they are."""
    return f"{rung_language(rung)} · {ONLY_PERSISTENCE}" if only_persistence else rung_language(rung)


def short_evidence_words(rung: int, only_persistence: bool = False) -> str:
    """The same where there is little room, with one word for it."""
    return f"{rung_language(rung)} · {PERSISTENCE}" if only_persistence else rung_language(rung)


def rung_next_step(rung: int) -> str:
    """What would lift a circuit from this rung."""
    return _NEXT_STEP[_known(rung)]


def rung_header(rung: int) -> str:
    """The value of ``X-miLLM-Circuit-Rung``."""
    return f'{_known(rung)}; language="{_LANGUAGE[rung]}"'


def claims_causation(text: str) -> bool:
    """Whether ``text`` says something of cause and effect, which our own words may do from rung 2 on only."""
    return _CAUSAL.search(text) is not None


def _known(rung: int) -> int:
    if not 0 <= rung <= TOP_RUNG:
        raise ValueError(f"not an evidence rung: {rung}")
    return rung

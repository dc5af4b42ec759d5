"""The evidence gate: a circuit below rung 2 steers only for someone who has said that they know."""

from __future__ import annotations

from engine.documents.evidence import TESTED_ELSEWHERE, evidence_words, is_validated, rung_language, rung_next_step
from engine.steering.errors import UnvalidatedCircuit


def require_validated(circuit_id: str, rung: int, *, acknowledged: bool, only_persistence: bool = False) -> None:
    """Raises :class:`UnvalidatedCircuit` for a circuit below rung 2 unless ``acknowledged``.

    Asked at activation and again at every turn of the circuit's dial.
    """
    if is_validated(rung) or acknowledged:
        return
    raise UnvalidatedCircuit(
        f"This circuit's evidence is at rung {rung}: {evidence_words(rung, only_persistence)}.",
        details={
            "circuit_id": circuit_id,
            "rung": rung,
            "rung_language": rung_language(rung),
            "next_step": rung_next_step(rung),
        },
        remedy=(
            f"To use it as it is, acknowledge that it is unvalidated. To lift it, {rung_next_step(rung)}. "
            f"{TESTED_ELSEWHERE}"
        ),
    )

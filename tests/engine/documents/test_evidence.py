from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from engine.documents.binding import AttachedSae
from engine.documents.circuit import read_circuit
from engine.documents.evidence import (
    PERSISTENCE_SENTENCE,
    circuit_rung,
    claims_causation,
    evidence_words,
    is_only_persistence,
    is_validated,
    parse_rung,
    rung_header,
    rung_language,
    rung_next_step,
)
from engine.documents.ranges import DialBounds
from engine.documents.verdicts import judge_circuit
from engine.steering.claims import MEASURED_HAZARD, Claim, grant
from engine.steering.errors import CircuitLayerContention, UnvalidatedCircuit
from engine.steering.flatten import flatten
from engine.steering.hazards import hazards, require_validated
from engine.steering.slices import slice_document
from engine.wire import wire
from tests.engine.documents.samples import circuit

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("rung", "language", "next_step", "validated", "header"),
    [
        (0, "associated", "run an attribution pass", False, '0; language="associated"'),
        (
            1,
            "suggested (attribution-supported)",
            "run intervention validation",
            False,
            '1; language="suggested (attribution-supported)"',
        ),
        (
            2,
            "causally validated (edge)",
            "run circuit-level faithfulness",
            True,
            '2; language="causally validated (edge)"',
        ),
        (
            3,
            "faithfulness-tested (circuit)",
            "nothing further: this is the top rung",
            True,
            '3; language="faithfulness-tested (circuit)"',
        ),
    ],
)
def test_the_ladder(rung: int, language: str, next_step: str, validated: bool, header: str) -> None:
    assert rung_language(rung) == language
    assert rung_next_step(rung) == next_step
    assert is_validated(rung) is validated
    assert rung_header(rung) == header


@pytest.mark.parametrize("rung", [-1, 4])
def test_there_is_no_other_rung(rung: int) -> None:
    for render in (rung_language, rung_next_step, rung_header):
        with pytest.raises(ValueError):
            render(rung)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (3, 3),
        (2.0, 2),
        (True, None),
        ("2", None),
        (None, None),
        (4, None),
        (-1, None),
        (1.5, None),
        ([2], None),
    ],
)
def test_what_is_a_rung(value: object, expected: int | None) -> None:
    assert parse_rung(value) == expected


@pytest.mark.parametrize(("rungs", "expected"), [([], 0), ([3], 3), ([3, 1, 2], 1), ([2, 0], 0)])
def test_a_circuit_is_as_strong_as_its_weakest_edge(rungs: list[int], expected: int) -> None:
    assert circuit_rung(rungs) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Causal circuit", True),
        ("causally validated", True),
        ("it causes hedging", True),
        ("causation", True),
        ("because", False),
        ("a casual remark", False),
        ("the cause of the error", False),
    ],
)
def test_words_of_cause_and_effect_are_recognised(text: str, expected: bool) -> None:
    assert claims_causation(text) is expected


@pytest.mark.parametrize("rung", [0, 1])
def test_nothing_said_of_an_unvalidated_circuit_claims_causation(rung: int) -> None:
    raw = circuit(narrative=None)
    raw["edges"][0]["rung"] = rung
    document = read_circuit(raw)
    said = [rung_language(rung), rung_next_step(rung), rung_header(rung), *MEASURED_HAZARD.values()]
    with pytest.raises(UnvalidatedCircuit) as refused:
        require_validated("circ_1", document.rung, acknowledged=False)
    said += [refused.value.one_line(), str(refused.value.details)]
    attached = [AttachedSae("other", 6, 8192, 1024)]
    verdict = judge_circuit(document, attached, DialBounds())
    said += [*verdict.warnings, str(wire(verdict.layers))]
    flat = flatten(document)
    said += [str(wire(each)) for each in hazards(flat.strengths, document.definition.edges)]
    said.append(str(slice_document(document, 6, circuit_id="circ_1", intensity=1.0)))
    with pytest.raises(CircuitLayerContention) as contended:
        grant(
            [Claim(6, "circ_2", "other", False, frozenset({17}))],
            circuit_id="circ_1",
            circuit_name="mine",
            keys=flat.strengths,
            allow_concurrent=False,
            allow_layer_overlap=False,
        )
    said += [contended.value.one_line(), str(contended.value.details)]
    assert [text for text in said if claims_causation(text)] == []


def _texts(path: Path) -> list[str]:
    """The string literals of a source file that are no docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    notes = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in notes
    ]


def test_only_the_ladder_spells_the_word() -> None:
    """The texts of the program get it from the ladder, which knows the rung; they never spell it themselves."""
    said = re.compile(r"\bcausal", re.IGNORECASE)
    found = {
        str(path.relative_to(ROOT))
        for package in ("app", "engine", "server", "ui")
        for path in (ROOT / package).rglob("*.py")
        for text in _texts(path)
        if said.search(text)
    }
    assert found == {"engine/documents/evidence.py"}


@pytest.mark.parametrize(
    ("types", "only"),
    [
        ((), False),
        (("persistence",), True),
        (("persistence", "persistence"), True),
        (("persistence", "computed"), False),
        (("attention_mediated",), False),
    ],
)
def test_a_circuit_whose_edges_are_all_persistence_says_so(types: tuple[str, ...], only: bool) -> None:
    assert is_only_persistence(types) is only
    edges = [
        {"up": {"layer": 6, "feature_idx": 1}, "down": {"layer": 11, "feature_idx": 2}, "rung": 2, "type": each}
        for each in types
    ]
    assert read_circuit({**circuit(), "edges": edges}).only_persistence is only
    said = "causally validated (edge) · persistence only: carried on, not computed"
    assert evidence_words(2, only) == (said if only else "causally validated (edge)")
    assert not claims_causation(evidence_words(0, only)) and not claims_causation(PERSISTENCE_SENTENCE)

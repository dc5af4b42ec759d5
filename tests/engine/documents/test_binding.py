from __future__ import annotations

import pytest

from engine.documents.binding import AttachedSae, Cause, SaeReference, Verdict, bind

A6 = AttachedSae("a", 6, 100, 16)
A9 = AttachedSae("a", 9, 100, 16)
B9 = AttachedSae("b", 9, 200, 16)
C9 = AttachedSae("c", 9, 100, 16)

Row = tuple[str, SaeReference, list[AttachedSae], Verdict, Cause, AttachedSae | None]

ROWS: list[Row] = [
    ("nothing attached", SaeReference("a", 6), [], Verdict.UNBOUND, Cause.NOTHING_ATTACHED, None),
    ("exact", SaeReference("a", 6), [A9, A6], Verdict.BIND, Cause.EXACT, A6),
    ("exact among several on a layer", SaeReference("c", 9), [A9, B9, C9], Verdict.BIND, Cause.EXACT, C9),
    ("exact with its feature count", SaeReference("a", 6, 100), [A6], Verdict.BIND, Cause.EXACT, A6),
    ("exact with another feature count", SaeReference("a", 6, 99), [A6], Verdict.BLOCK, Cause.FEATURE_COUNT, None),
    ("exact from another width", SaeReference("a", 6, 100, 32), [A6], Verdict.WARN, Cause.EXACT, A6),
    ("id without a layer", SaeReference("b"), [A6, B9], Verdict.BIND, Cause.EXACT, B9),
    ("id at several layers", SaeReference("a"), [A6, A9], Verdict.UNBOUND, Cause.AMBIGUOUS, None),
    ("id not attached", SaeReference("x"), [A6], Verdict.UNBOUND, Cause.NOT_ATTACHED, None),
    ("another SAE at the layer", SaeReference("x", 9, 100), [A6, A9], Verdict.WARN, Cause.SUBSTITUTED, A9),
    ("another SAE, count not said", SaeReference("x", 9), [B9], Verdict.WARN, Cause.SUBSTITUTED, B9),
    ("another SAE, other count", SaeReference("x", 9, 100), [B9], Verdict.BLOCK, Cause.FEATURE_COUNT, None),
    ("another SAE, several there", SaeReference("x", 9, 100), [B9, C9], Verdict.UNBOUND, Cause.AMBIGUOUS, None),
    ("the id at another layer", SaeReference("a", 6), [A9], Verdict.UNBOUND, Cause.NOBODY_AT_LAYER, None),
    ("only the layer", SaeReference(None, 9), [A6, B9], Verdict.BIND, Cause.ONLY_AT_LAYER, B9),
    ("only the layer, several there", SaeReference(None, 9), [B9, C9], Verdict.UNBOUND, Cause.AMBIGUOUS, None),
    ("only the layer, nobody there", SaeReference(None, 7), [B9], Verdict.UNBOUND, Cause.NOBODY_AT_LAYER, None),
    ("nothing said, one attached", SaeReference(), [B9], Verdict.BIND, Cause.ONLY_ATTACHED, B9),
    ("nothing said but the count", SaeReference(None, None, 100), [B9], Verdict.BLOCK, Cause.FEATURE_COUNT, None),
    ("nothing said, two attached", SaeReference(), [A6, B9], Verdict.UNBOUND, Cause.AMBIGUOUS, None),
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_order_of_binding(row: Row) -> None:
    _, reference, attached, verdict, cause, sae = row
    binding = bind(reference, attached)
    assert (binding.verdict, binding.cause, binding.sae) == (verdict, cause, sae)
    assert (binding.reason is None) == (verdict is Verdict.BIND)
    assert binding.serves is (sae is not None)


def test_a_substitution_says_so() -> None:
    assert bind(SaeReference("x", 9), [B9]).reason == "substituted: made with 'x', runs on 'b' at layer 9"

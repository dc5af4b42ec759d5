from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.steering.errors import SteeringInvalid
from engine.steering.hashing import plan_digest, steering_set_hash

LFM = "LiquidAI--LFM2.5-1.2B-Instruct-sae--layer_11"
JBLOOM = "jbloom--gemma-2-2b-res-jb--layer_20--width_16k--average_l0_71"

VECTORS = [
    (LFM, {1234: 8.0}, "a4eae730e5105f422b93abeece7e03bda3c29b096c07aa9cee6f247e12844105"),
    (LFM, {1234: -8.0}, "cc6c48faa720096e5c65fc1b2afab1b9b87659fb4465f20db421a2ed7fed78a7"),
    (
        JBLOOM,
        {77: -2.5, 5: 0.1, 900: 0.0, 12: -0.0},
        "b843912201c5c18f872976e35af288e5f484d81e31a03a1dc16c3b9dbd82e710",
    ),
    (JBLOOM, {3: 500.0}, "3f51779e6e33ee248acf6f520cb9475b4ef62f68275060bb69d2e228033b78df"),
    ("demo--sae--layer_4", {7: 1.5, 42: -3.0}, "df8c15a130a30d4ac5eccbd59c56e9ed5c00ad7c966c57f00489c446aed9811d"),
]


@pytest.mark.parametrize(("sae_id", "strengths", "expected"), VECTORS)
def test_published_vectors(sae_id: str, strengths: dict[int, float], expected: str) -> None:
    assert steering_set_hash(sae_id, strengths) == f"sha256:{expected}"


def test_the_order_is_numeric_and_the_text_is_exact() -> None:
    text = b"millm.steering-set/v1\nsae=s\n9:3ff0000000000000\n10:4000000000000000\n100:bff0000000000000\n"
    assert steering_set_hash("s", {100: -1.0, 9: 1.0, 10: 2.0}) == "sha256:" + hashlib.sha256(text).hexdigest()


def test_the_empty_set_has_a_hash_of_its_own() -> None:
    text = b"millm.steering-set/v1\nsae=s\n"
    assert steering_set_hash("s", {1: -0.0}) == "sha256:" + hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize("sae_id", ["a\nb", "a\rb", "a\r\n"])
def test_ids_with_line_breaks_are_refused(sae_id: str) -> None:
    with pytest.raises(SteeringInvalid):
        steering_set_hash(sae_id, {1: 1.0})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_strengths_are_refused(value: float) -> None:
    with pytest.raises(SteeringInvalid):
        steering_set_hash("a", {1: value})


FINITE = st.floats(allow_nan=False, allow_infinity=False)
SETS = st.dictionaries(st.integers(0, 100_000), FINITE, max_size=8)


@given(SETS, st.randoms(use_true_random=False))
def test_neither_order_nor_zeros_nor_what_is_clamped_anyway_matters(
    strengths: dict[int, float], random: object
) -> None:
    pairs = list(strengths.items())
    random.shuffle(pairs)  # type: ignore[attr-defined]
    other = {index: max(-200.0, min(200.0, value)) for index, value in pairs} | {200_000: 0.0, 200_001: -0.0}
    assert steering_set_hash("a", other) == steering_set_hash("a", strengths)


@given(SETS, SETS)
def test_different_sets_have_different_hashes(first: dict[int, float], second: dict[int, float]) -> None:
    def plain(values: dict[int, float]) -> dict[int, float]:
        return {index: max(-200.0, min(200.0, value)) for index, value in values.items() if value != 0}

    same = plain(first) == plain(second)
    assert (steering_set_hash("a", first) == steering_set_hash("a", second)) is same
    assert steering_set_hash("a", first) != steering_set_hash("b", first)


def _digest(**changes: object) -> str:
    arguments = {
        "deltas": {6: b"\x00\x01", 11: b"\x02"},
        "position_rule": "not-first",
        "model_id": "m",
        "dtype": "float32",
    }
    return plan_digest(**{**arguments, **changes})  # type: ignore[arg-type]


def test_the_digest_covers_every_part() -> None:
    variants = [
        _digest(),
        _digest(deltas={}),
        _digest(deltas={6: b"\x00\x01"}),
        _digest(deltas={6: b"\x00\x01", 12: b"\x02"}),
        _digest(deltas={6: b"\x00", 11: b"\x01\x02"}),
        _digest(deltas={6: b"\x00\x01\x02", 11: b""}),
        _digest(position_rule="all"),
        _digest(model_id="n"),
        _digest(dtype="bfloat16"),
        _digest(model_id="mfloat32", dtype=""),
    ]
    assert len(set(variants)) == len(variants)
    assert all(len(each) == 64 for each in variants)
    assert _digest(deltas={11: b"\x02", 6: b"\x00\x01"}) == _digest()

"""What is typed to steer, and what steering is called; expected words are literals."""

from __future__ import annotations

import pytest

from engine.errors import InvalidParameter
from ui.steering_words import features, parse_features, report_words, scale_words, strength


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("1234", {1234: None}),
        ("1234:2.5", {1234: 2.5}),
        ("1234=2.5", {1234: 2.5}),
        ("1, 2:-3\n#7 = .5;9", {1: None, 2: -3.0, 7: 0.5, 9: None}),
        ("5 : −4", {5: -4.0}),
        ("0:0", {0: 0.0}),
    ],
)
def test_features_are_read(text: str, found: dict[int, float | None]) -> None:
    assert parse_features(text) == found


@pytest.mark.parametrize("text", ["abc", "1:", "1:x", "-1", "1.5", "1:1e9", "1:nan", "1:2:3", "7, 7:2"])
def test_what_is_no_feature_is_refused_in_words(text: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        parse_features(text)
    assert caught.value.remedy


def test_numbers_read_well() -> None:
    assert features(1) == "1 feature"
    assert features(2) == "2 features"
    assert strength(-2.5) == "−2.5"
    assert strength(1.0) == "1"
    assert scale_words(-10.0, 1.0, 20.0) == "0.5 × typical norm"


def _kept(*items: dict[str, object], changed: bool = False, rung: int | None = None) -> dict[str, object]:
    return {"steering": {"text": "", "changed": changed, "items": list(items)}, "rung": rung}


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({}, ""),
        (_kept({"kind": "none"}), "not steered"),
        (_kept({"kind": "manual", "features": 2}), "steered by hand: 2 features"),
        (
            _kept({"kind": "manual", "features": 2}, {"kind": "manual", "features": 1}, changed=True),
            "steered by hand: 3 features; this changed while it was written",
        ),
        (
            _kept({"kind": "profile", "name": "Sea", "intensity": "0.5", "features": 3}),
            "steered by Sea at λ 0.5: 3 features",
        ),
        (
            _kept({"kind": "circuit", "id": "c1", "name": "Two steps", "intensity": "1.0"}, rung=2),
            "steered by the circuit Two steps at λ 1 (causally validated (edge))",
        ),
        (
            _kept(
                {"kind": "circuit", "id": "c1", "name": "Two steps", "intensity": "1.0", "only_persistence": True},
                rung=2,
            ),
            "steered by the circuit Two steps at λ 1 (causally validated (edge) · persistence only: carried on, not "
            "computed)",
        ),
        (
            _kept({"kind": "circuit", "id": "c1", "intensity": "1.0"}),
            "steered by the circuit c1 at λ 1 (no evidence can be claimed)",
        ),
        (_kept({"kind": "unknown", "reason": "read_failed"}), "whether it was steered could not be read"),
    ],
)
def test_a_report_is_told_in_words(details: dict[str, object], words: str) -> None:
    assert report_words(details) == words

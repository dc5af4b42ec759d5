"""What is typed to steer, and what steering is called; expected words are literals."""

from __future__ import annotations

import pytest

from engine.errors import InvalidParameter
from ui.kit.steering_text import features, parse_features, report_words, scale_words, strength
from ui.talk.steering_path import former_steps, going_on


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
        ("1:2,3:4", {1: 2.0, 3: 4.0}),
        ("1:2.5,3", {1: 2.5, 3: None}),
        ("1,2", {1: None, 2: None}),
    ],
)
def test_features_are_read(text: str, found: dict[int, float | None]) -> None:
    assert parse_features(text) == found


@pytest.mark.parametrize(
    "text", ["abc", "1:", "1:x", "-1", "1.5", "1:1e9", "1:nan", "1:2:3", "7, 7:2", "1234:2,5", "1: -0,5", "3:1, 7:2,5"]
)
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
            "steering changed while it was written; at its end steered by hand: 3 features",
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


def _profile(intensity: str, name: str = "Sea") -> dict[str, object]:
    return {"kind": "profile", "name": name, "source": "active", "intensity": intensity, "features": 3}


def _hand(strengths: dict[str, float]) -> dict[str, object]:
    return {"kind": "manual", "sae": "s", "layer": 1, "features": len(strengths), "strengths": strengths}


NOTHING_ADDED: dict[str, object] = {"kind": "none"}


def _path(*steps: tuple[int, dict[str, object]], rung: int | None = None) -> dict[str, object]:
    kept = _kept(steps[-1][1], changed=True, rung=rung)
    kept["steering"]["path"] = [{"token": token, "text": "", "items": [item]} for token, item in steps]  # type: ignore[index]
    return kept


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (
            _path((0, _profile("1.0")), (12, _profile("2.0")), (40, NOTHING_ADDED)),
            "steered by Sea at λ 1 → 2 → 0 (λ 2 from token 12, λ 0 from token 40)",
        ),
        (
            _path((0, NOTHING_ADDED), (3, _profile("0.8"))),
            "steered by Sea at λ 0 → 0.8 (λ 0.8 from token 3)",
        ),
        (
            _path((0, _profile("1.0")), (0, _profile("0.5"))),
            "steered by Sea at λ 1 → 0.5 (λ 0.5 while the prompt was read)",
        ),
        (
            _path((0, _profile("1.0")), (5, _profile("1.0", "Clinic"))),
            "steered by Sea at λ 1: 3 features; from token 5 steered by Clinic at λ 1: 3 features",
        ),
        # The rung of the last state is not the whole's.
        (
            _path(
                (0, {"kind": "circuit", "id": "c", "name": "Two", "intensity": "1.0"}),
                (9, {"kind": "circuit", "id": "c", "name": "Two", "intensity": "2.0"}),
                rung=3,
            ),
            "steered by the circuit Two at λ 1 → 2 (λ 2 from token 9; no evidence can be claimed)",
        ),
        (
            _path((0, _hand({"3": 60.0, "5": -60.0})), (7, _hand({"3": 30.0, "5": -30.0})), (8, NOTHING_ADDED)),
            "steered by hand (2 features), in multiples of the first values, at × 1 → 0.5 → 0 "
            "(× 0.5 from token 7, × 0 from token 8)",
        ),
        (
            _path((0, _hand({"3": 60.0})), (7, _hand({"3": 60.0, "5": 1.5}))),
            "steered by hand: #3 at 60; from token 7 steered by hand: #3 at 60, #5 at 1.5",
        ),
        (
            _path(*((token, _profile(f"{token / 10}")) for token in range(0, 20, 2))),
            "steered by Sea at λ 0 → 0.2 → 0.4 → 0.6 → … → 1.8 (λ 0.2 from token 2, λ 0.4 from token 4, "
            "λ 0.6 from token 6, 5 more, λ 1.8 from token 18)",
        ),
    ],
)
def test_an_answer_that_was_turned_is_told_as_its_path(details: dict[str, object], words: str) -> None:
    assert report_words(details) == words


def test_an_export_tells_every_step() -> None:
    details = _path(*((token, _profile(f"{token / 10}")) for token in range(0, 20, 2)))
    told = report_words(details, every_step=True)
    assert "λ 0 → 0.2 → 0.4 → 0.6 → 0.8 → 1 → 1.2 → 1.4 → 1.6 → 1.8 (" in told
    assert told.count("from token") == 9


def test_a_write_without_a_difference_is_said_as_one() -> None:
    kept = _kept(_profile("1.0"), changed=True)
    kept["steering"]["path"] = [{"token": 0, "text": "", "items": [_profile("1.0")]}]  # type: ignore[index]
    assert report_words(kept) == "steered by Sea at λ 1: 3 features; set anew meanwhile, without a difference"


@pytest.mark.parametrize("path", [7, [7], [{}], [{"items": 3}, {"items": [1]}]])
def test_a_path_that_is_none_is_not_told(path: object) -> None:
    kept = _kept(_profile("1.0"))
    kept["steering"]["path"] = path  # type: ignore[index]
    assert report_words(kept) == "steered by Sea at λ 1: 3 features"


def test_a_text_that_goes_on_under_another_steering_has_the_path_of_both() -> None:
    former = former_steps({"steering": {"text": "a", "changed": False, "items": [_profile("2.0")]}})
    # The rest was written under nothing from its prompt on, and 30 tokens were there before.
    path = [
        {"token": 0, "text": "none", "items": [NOTHING_ADDED]},
        {"token": 4, "text": "b", "items": [_profile("1.0")]},
    ]
    joined = going_on(former, path, 30)
    assert [(step["token"], step["items"][0].get("intensity")) for step in joined] == [
        (0, "2.0"),
        (31, None),
        (34, "1.0"),
    ]
    # Under the same steering it is one step.
    assert len(going_on(former, [{"token": 0, "text": "a", "items": [_profile("2.0")]}], 30)) == 1
    # What is not known of its beginning is not made up.
    for details in ({}, {"steering": {"text": "none;changed", "changed": True, "items": [NOTHING_ADDED]}}):
        (unknown,) = former_steps(details)
        assert unknown["items"][0]["kind"] == "unknown"

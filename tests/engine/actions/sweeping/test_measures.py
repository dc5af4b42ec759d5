"""The measures of a sweep, by hand."""

from __future__ import annotations

import math

import pytest

from engine.actions.sweeping.actions import suggested_words
from engine.actions.sweeping.measures import perplexity, repeated_trigrams, topic_share, topic_words, words_of
from engine.actions.sweeping.settings import CellResult, SweepSettings, means, parse_intensities
from engine.errors import InvalidParameter
from engine.library.records import FeatureLabel
from engine.sampling import Sampling


def test_words() -> None:
    assert words_of("The SEA's 3 ships, Köln’s quay—sea_side.") == [
        "the",
        "sea's",
        "ships",
        "köln's",
        "quay",
        "sea",
        "side",
    ]
    assert topic_words("sea, ship\nHarbour  sea") == {"sea", "ship", "harbour"}


@pytest.mark.parametrize(
    ("text", "share"), [("The sea and the ship.", 0.4), ("seaside", 0.0), ("", 0.0), ("42 !", 0.0), ("Sea SEA", 1.0)]
)
def test_topic_share(text: str, share: float) -> None:
    assert topic_share(text, {"sea", "ship"}) == share


@pytest.mark.parametrize(
    ("ids", "share"),
    [([], 0.0), ([1, 2], 0.0), ([1, 2, 3], 0.0), ([1, 2, 3, 1, 2, 3], 0.25), ([7, 7, 7, 7, 7, 7], 0.75)],
)
def test_repeated_trigrams(ids: list[int], share: float) -> None:
    assert repeated_trigrams(ids) == share


def test_perplexity() -> None:
    assert perplexity(0.0) == 1.0
    assert perplexity(math.log(7.5)) == pytest.approx(7.5)
    assert perplexity(1e9) == pytest.approx(485_165_195.4)
    assert perplexity(None) is None and perplexity(math.nan) is None


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.5, 1, 1.5", (0.5, 1.0, 1.5)),
        ("0 0.5 2", (0.0, 0.5, 2.0)),
        ("0..1 by 0.25", (0.0, 0.25, 0.5, 0.75, 1.0)),
        ("0–0.3/0.1", (0.0, 0.1, 0.2, 0.3)),
        ("0 to 1 step 0.5; 2", (0.0, 0.5, 1.0, 2.0)),
        ("0..0.5", (0.0, 0.25, 0.5)),
        ("1, 1, 1", (1.0,)),
        ("0.5,1,1.5", (0.5, 1.0, 1.5)),
        ("0,1,2", (0.0, 1.0, 2.0)),
    ],
)
def test_intensities_as_written(text: str, values: tuple[float, ...]) -> None:
    assert parse_intensities(text) == values


@pytest.mark.parametrize(
    "text",
    ["", "x", "1..0", "0..2 by 0", "0..2 by -1", "0..2 by 0.001", "1/2", "nan", "0..inf", "0,8", "0,5 1 1,5", "0,5; 1"],
)
def test_intensities_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InvalidParameter):
        parse_intensities(text)


def test_settings_are_checked() -> None:
    made = SweepSettings(("a", "b"), (1.0, 0.0, 0.5, 1.0))
    assert (made.intensities, made.cells) == ((0.0, 0.5, 1.0), 6)
    for wrong in (
        {"prompts": ()},
        {"prompts": ("a", " ")},
        {"intensities": ()},
        {"intensities": (2.5,)},
        {"intensities": (math.nan,)},
        {"max_tokens": 0},
        {"sampling": Sampling(temperature=0.0)},
        {"max_tokens": 4, "sampling": Sampling(seed=0, min_tokens=5)},
    ):
        with pytest.raises(InvalidParameter):
            SweepSettings(**{"prompts": ("a",), "intensities": (1.0,), **wrong})  # type: ignore[arg-type]


def test_means_weigh_perplexity_by_tokens_and_leave_out_what_failed() -> None:
    cells = [
        CellResult(0, 0.0, "x", 10, "stop", 0.1, 2.0, math.log(4), 0.0),
        CellResult(1, 0.0, "y", 30, "stop", 0.3, 4.0, math.log(8), 0.5),
        CellResult(0, 1.0, "", 0, "stop", 0.0, None, None, 0.0),
        CellResult(1, 1.0, error="it broke"),
    ]
    plain, steered = means(cells, (0.0, 0.5, 1.0))
    assert (plain.intensity, plain.answers, plain.topic, plain.features, plain.trigrams) == (0.0, 2, 0.2, 3.0, 0.25)
    # e^((10 ln 4 + 30 ln 8) / 40) = 4^(1/4) · 8^(3/4)
    assert plain.perplexity == pytest.approx(6.7271713)
    assert (steered.intensity, steered.answers, steered.features, steered.perplexity) == (1.0, 1, None, None)


def test_topic_words_are_suggested_from_what_is_known() -> None:
    labels = [
        FeatureLabel(1, "Ships and the sea", top_tokens=(" harbour", "ing", " Sea", " a")),
        FeatureLabel(2, "sea, words about winter"),
    ]
    assert suggested_words(labels) == ("ships", "sea", "harbour", "winter")

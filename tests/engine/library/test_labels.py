"""What is known about the features of SAEs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.errors import InvalidParameter
from engine.library.database import Library
from engine.library.errors import SaeNotFound
from engine.library.records import FeatureLabel, SaeRecord, SaeSource

SHIPS = FeatureLabel(
    feature_idx=310,
    label="ships and quays",
    source="neuronpedia",
    confidence=0.8,
    density=0.0125,
    max_activation=4.25,
    top_tokens=(" boat", "Kai\ud800", " 船"),
    extra={"model": "judge", "scores": [1, None, 0.5]},
)


@pytest.fixture(autouse=True)
def sea(library: Library) -> None:
    library.saes.add(SaeRecord("sea", "sea", SaeSource.LOCAL, d_sae=16384))


def test_a_label_comes_back_as_it_was_stored(library: Library) -> None:
    assert library.labels.upsert("sea", [SHIPS]) == 1
    assert library.labels.get("sea", 310) == SHIPS
    assert library.labels.get("sea", 311) is None
    assert library.labels.get("lake", 310) is None


def test_a_later_label_takes_the_place_of_an_earlier_one(library: Library) -> None:
    library.labels.upsert("sea", [SHIPS, FeatureLabel(1, "one")])
    assert (
        library.labels.upsert("sea", [FeatureLabel(310, "harbours"), FeatureLabel(2, "a"), FeatureLabel(2, "b")]) == 3
    )
    assert library.labels.get("sea", 310) == FeatureLabel(310, "harbours")
    assert library.labels.get("sea", 1) == FeatureLabel(1, "one")
    assert library.labels.get("sea", 2) == FeatureLabel(2, "b")
    assert library.labels.count("sea") == 3


def test_many_are_stored_and_looked_up_at_once(library: Library) -> None:
    assert library.labels.upsert("sea", (FeatureLabel(n, f"feature {n}") for n in range(16384))) == 16384
    assert library.labels.count("sea") == 16384
    found = library.labels.of("sea", range(16383, -1, -2))
    assert list(found) == list(range(1, 16384, 2))
    assert found[16383].label == "feature 16383"
    assert library.labels.of("sea", [5, 5, 2, 99_999, -1, 2**63, 2**70]) == {
        2: FeatureLabel(2, "feature 2"),
        5: FeatureLabel(5, "feature 5"),
    }
    assert library.labels.of("sea", []) == {}


@pytest.mark.parametrize(
    ("search", "indices"),
    [
        ("sea", [3, 9, 4, 7]),
        ("SEA", [3, 9, 4, 7]),
        ("straße", [5]),
        ("STRASSE", [5]),
        ("море", [6]),
        ("%", [8]),
        ("_", []),
        ("  ", [3, 4, 5, 6, 7, 8, 9]),
        ("", [3, 4, 5, 6, 7, 8, 9]),
        ("\ud800", []),
        ("nothing", []),
    ],
)
def test_search_knows_no_case_and_has_beginnings_first(library: Library, search: str, indices: list[int]) -> None:
    labels = {
        7: "the open sea",
        4: "research",
        9: "sea",
        3: "Seaside",
        5: "eine Straße",
        6: "МОРЕ",
        8: "100% sure",
    }
    library.labels.upsert("sea", [FeatureLabel(index, label) for index, label in labels.items()])
    library.saes.add(SaeRecord("lake", "lake", SaeSource.LOCAL))
    library.labels.upsert("lake", [FeatureLabel(1, "sea")])
    assert [label.feature_idx for label in library.labels.search("sea", search)] == indices
    assert [label.feature_idx for label in library.labels.search("sea", search, limit=2)] == indices[:2]
    assert library.labels.search("sea", search, limit=0) == []
    assert library.labels.search("missing", search) == []


def test_labels_need_their_sae(library: Library) -> None:
    for sae_id in ("lake", "\ud800"):
        with pytest.raises(SaeNotFound):
            library.labels.upsert(sae_id, [SHIPS])
        with pytest.raises(SaeNotFound):
            library.labels.clear(sae_id)
        assert library.labels.count(sae_id) == 0


@pytest.mark.parametrize("index", [-1, 16384, 2**70, True])
def test_labels_for_features_that_are_not_there_store_nothing(library: Library, index: int) -> None:
    with pytest.raises(InvalidParameter) as caught:
        library.labels.upsert("sea", [SHIPS, FeatureLabel(index, "x")])
    assert caught.value.param == "feature_idx"
    assert library.labels.count("sea") == 0


def test_a_source_that_breaks_off_stores_nothing(library: Library) -> None:
    def broken() -> Iterator[FeatureLabel]:
        yield SHIPS
        raise OSError("the file ends here")

    with pytest.raises(OSError, match="ends here"):
        library.labels.upsert("sea", broken())
    with pytest.raises(TypeError):
        library.labels.upsert("sea", [SHIPS, FeatureLabel(1, "x", extra={"a": object()})])
    assert library.labels.count("sea") == 0


def test_figures_that_are_no_numbers_are_not_kept(library: Library) -> None:
    library.labels.upsert("sea", [FeatureLabel(1, "x\ud800", confidence=float("inf"), density=float("nan"))])
    assert library.labels.get("sea", 1) == FeatureLabel(1, "x\ufffd", confidence=None, density=None)


def test_labels_can_be_cleared(library: Library) -> None:
    library.labels.upsert("sea", [SHIPS, FeatureLabel(1, "one")])
    assert library.labels.clear("sea") == 2
    assert library.labels.clear("sea") == 0
    assert library.saes.get("sea") is not None

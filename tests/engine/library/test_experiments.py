"""Saved comparisons: kept whole, found again, deleted and brought back."""

from __future__ import annotations

import pytest

from engine.errors import InvalidParameter, NotFound
from engine.library.database import Library
from engine.library.records import ExperimentRecord


def made(title: str = "Sea", **fields: object) -> ExperimentRecord:
    given: dict[str, object] = {
        "title": title,
        "model": "tiny-llama",
        "prompt": "Describe a place you like.",
        "plain": "A quiet garden.",
        "steered": "A harbour by the Ägäis.",
        "settings": {"temperature": 0.7, "noise_seed": 7},
        "steering": {"text": "manual", "items": []},
        "evidence": {"rung": None},
        "versions": {"miLLM Desktop": "0.1.0"},
        "plain_details": {"completion_tokens": 3},
        "steered_details": {"completion_tokens": 5},
        **fields,
    }
    return ExperimentRecord(**given)  # type: ignore[arg-type]


def test_a_comparison_comes_back_as_it_was(library: Library) -> None:
    kept = library.experiments.add(made())
    again = library.experiments.get(kept.id)
    assert again == kept
    assert again is not None and again.settings == {"temperature": 0.7, "noise_seed": 7}
    assert again.evidence == {"rung": None}
    assert again.created_at.utcoffset() is not None


def test_newest_first_and_searched_in_titles_and_texts(library: Library) -> None:
    first, second = library.experiments.add(made()), library.experiments.add(made("Medicine", steered="A clinic."))
    assert [each.id for each in library.experiments.list()] == [second.id, first.id]
    assert [each.title for each in library.experiments.list("ägäis")] == ["Sea"]
    assert [each.title for each in library.experiments.list("MEDI")] == ["Medicine"]
    assert len(library.experiments.list("  ")) == 2
    assert library.experiments.list("100%") == []


def test_renamed_removed_and_restored(library: Library) -> None:
    kept = library.experiments.add(made())
    assert library.experiments.rename(kept.id, "Ships").title == "Ships"
    gone = library.experiments.remove(kept.id)
    assert library.experiments.get(kept.id) is None
    library.experiments.restore(gone)
    assert library.experiments.get(kept.id) == gone
    for missing in (999, 0, -1, 2**70):
        with pytest.raises(NotFound, match="saved comparison"):
            library.experiments.remove(missing)


def test_what_is_not_json_is_refused(library: Library) -> None:
    with pytest.raises(InvalidParameter, match="settings"):
        library.experiments.add(made(settings={"when": object()}))
    assert library.experiments.list() == []

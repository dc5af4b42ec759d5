"""Values remembered between starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.library.database import Library


def test_values_survive_a_restart(tmp_path: Path) -> None:
    with Library.open(tmp_path / "millm.db") as library:
        assert library.state.get("last_model") is None
        assert library.state.get("last_model", "none") == "none"
        library.state.set("last_model", 3)
        library.state.set("window_geometry", {"x": 10, "y": [1.5, None, "ä"]})
        library.state.set("last_model", 4)
    with Library.open(tmp_path / "millm.db") as library:
        assert library.state.get("last_model") == 4
        assert library.state.get("window_geometry") == {"x": 10, "y": [1.5, None, "ä"]}


@pytest.mark.parametrize("value", [2**80, 0.1, "12", "1e5", True, [], {"1": None}])
def test_values_keep_their_kind(library: Library, value: object) -> None:
    library.state.set("a", value)
    found = library.state.get("a")
    assert found == value and type(found) is type(value)


def test_none_is_a_value(library: Library) -> None:
    library.state.set("a", None)
    assert library.state.get("a", "default") is None
    library.state.remove("a")
    library.state.remove("a")
    assert library.state.get("a", "default") == "default"


def test_what_is_not_json_is_refused_and_changes_nothing(library: Library) -> None:
    library.state.set("a", 1)
    with pytest.raises(TypeError):
        library.state.set("a", object())
    assert library.state.get("a") == 1

"""The very first start: what is asked, what is remembered, and who is never asked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from app import first_run
from app.options import Options
from app.paths import Paths, note_file, remember, remembered
from engine.errors import DataDirectoryUnusable
from tests.app.processes import app

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere the system's folders cannot be moved by the environment"
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person who has never started the program."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return tmp_path / "home"


def test_a_first_start_asks_and_offers_the_systems_place(tmp_path: Path) -> None:
    assert first_run.question(Options(), {}) == first_run.Question(tmp_path / "share" / "miLLM Desktop")


def test_who_names_a_folder_is_not_asked(tmp_path: Path) -> None:
    assert first_run.question(Options(data_dir=str(tmp_path / "d")), {}) is None
    assert first_run.question(Options(), {"MILLM_DATA_DIR": str(tmp_path / "d")}) is None


def test_who_has_a_library_already_is_not_asked() -> None:
    paths = Paths.default()
    paths.prepare()
    paths.database.touch()
    assert first_run.question(Options(), {}) is None


def test_the_answer_holds_for_all_later_starts(tmp_path: Path) -> None:
    chosen = tmp_path / "disk" / "Müller"
    first_run.settle(chosen)
    assert sorted(path.name for path in chosen.iterdir()) == ["logs", "models", "saes"]
    assert json.loads(note_file().read_text(encoding="utf-8")) == {"data_dir": str(chosen)}
    assert first_run.question(Options(), {}) is None
    assert Paths.find(None, {}) == Paths(chosen, remembered=True)
    assert Paths.find(str(tmp_path / "other"), {}).data_dir == tmp_path / "other"
    assert Paths.find(None, {"MILLM_DATA_DIR": str(tmp_path / "third")}).data_dir == tmp_path / "third"


def test_the_default_leaves_no_note() -> None:
    remember(Path("/somewhere/else"))
    first_run.settle(Paths.default().data_dir)
    assert not note_file().exists()
    assert Paths.find(None, {}) == Paths.default()


def test_a_folder_that_cannot_be_made_is_not_remembered(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(DataDirectoryUnusable, match="file"):
        first_run.settle(tmp_path / "file" / "data")
    assert not note_file().exists()


def test_a_note_that_cannot_be_read_is_no_choice() -> None:
    note_file().parent.mkdir(parents=True)
    for text in ("", "{", "[]", '{"data_dir": 5}', '{"data_dir": "not/absolute"}'):
        note_file().write_text(text, encoding="utf-8")
        assert remembered() is None
    assert first_run.question(Options(), {}) is not None


def test_a_chosen_folder_that_is_gone_is_asked_for_again_and_not_made_anew(tmp_path: Path) -> None:
    chosen = tmp_path / "disk"
    first_run.settle(chosen)
    chosen.rename(tmp_path / "unplugged")
    asked = first_run.question(Options(), {})
    assert asked is not None
    assert asked.missing == chosen
    ended = app("serve", "--port", "0")
    assert ended.returncode == 1
    assert f"{chosen}, chosen at the first start, is not there" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not chosen.exists()
    doctor = app("doctor", "--port", "0")
    assert "chosen at the first start, is not there" in doctor.stdout
    assert doctor.returncode == 1


def test_a_picked_folder_with_other_things_in_it_gets_one_of_its_own_inside(tmp_path: Path) -> None:
    empty, full, ours = (tmp_path / name for name in ("empty", "full", "ours"))
    for folder in (empty, full, ours):
        folder.mkdir()
    (full / "letter.txt").write_text("", encoding="utf-8")
    Paths(ours).database.touch()
    assert first_run.own_folder_in(empty) == empty
    assert first_run.own_folder_in(tmp_path / "new") == tmp_path / "new"
    assert first_run.own_folder_in(full) == full / "miLLM Desktop"
    assert first_run.own_folder_in(ours) == ours


def test_room_is_known_for_folders_that_do_not_exist_yet(tmp_path: Path) -> None:
    assert first_run.free_bytes(tmp_path / "a" / "b") == first_run.free_bytes(tmp_path)

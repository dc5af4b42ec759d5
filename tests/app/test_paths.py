"""The data directory: found in the right order, made, and refused with one clear line."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from app.options import Options
from app.paths import Paths
from app.startup import opened
from engine.errors import DataDirectoryUnusable


def test_the_command_line_wins_over_the_environment(tmp_path: Path) -> None:
    environ = {"MILLM_DATA_DIR": str(tmp_path / "environment")}
    assert Paths.find(str(tmp_path / "asked"), environ).data_dir == tmp_path / "asked"
    assert Paths.find(None, environ).data_dir == tmp_path / "environment"
    assert Paths.find(None, {}).data_dir.name == "miLLM Desktop"


def test_paths_are_absolute_and_home_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Paths.find("here", {}).data_dir == tmp_path / "here"
    assert Paths.find("~/there", {}).data_dir == tmp_path / "home" / "there"


def test_prepare_makes_all_folders_whatever_their_letters(tmp_path: Path) -> None:
    paths = Paths.find(str(tmp_path / "Müller 数据" / "\u3000"), {})
    paths.prepare()
    assert sorted(path.name for path in paths.data_dir.iterdir()) == ["logs", "models", "saes"]
    paths.prepare()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(DataDirectoryUnusable) as caught:
        Paths.find(str(tmp_path / "file" / "data"), {}).prepare()
    line = caught.value.one_line()
    assert str(tmp_path / "file" / "data") in line
    assert "--data-dir" in line


# --- nobody else reads it ---------------------------------------------------------------------------------------------


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def _rights(folder: Path) -> dict[str, int]:
    """Rights of everything below ``folder`` that is not a model's file."""
    return {
        str(path.relative_to(folder)): _mode(path)
        for path in folder.rglob("*")
        if path.relative_to(folder).parts[0] not in ("models", "saes")
    }


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
def test_a_new_data_directory_is_closed_to_others(tmp_path: Path) -> None:
    """Looked at from within a running program, with everything it writes in its first moments and a crash report."""
    paths = Paths(tmp_path / "data")
    before = os.umask(0o022)
    try:
        with opened(Options("doctor", data_dir=str(paths.data_dir))) as program:
            program.library.conversations.list()
            assert program.crashes.report(ValueError("secret"), "a test") is not None
            paths.settings_file.write_text("{}", encoding="utf-8")
            (paths.data_dir / "export.md").write_text("a chat", encoding="utf-8")
            rights = _rights(paths.data_dir)
        assert os.umask(0o022) == 0o022  # as it was before
    finally:
        os.umask(before)
    assert _mode(paths.data_dir) == 0o700
    assert {"millm.db", "millm.db-wal", "settings.json", "instance.json", "logs/millm.log", "export.md"} <= set(rights)
    assert any(name.startswith("logs/crash-") for name in rights)
    assert {name: oct(mode) for name, mode in rights.items() if mode & 0o077} == {}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
def test_the_data_directory_of_an_earlier_version_is_closed(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "data")
    model = paths.models / "m" / "config.json"
    files = [
        paths.database,
        paths.data_dir / "millm.db-wal",
        paths.data_dir / "millm.db-shm",
        paths.data_dir / "millm.db.bak-0001",
        paths.settings_file,
        paths.instance_file,
        paths.logs / "millm.log",
        paths.logs / "millm.log.1",
        paths.logs / "crash-20260101-000000-1-1.txt",
        model,
        paths.data_dir / "somebody's own.txt",
    ]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("", encoding="utf-8")
        file.chmod(0o644)
    for folder in (paths.data_dir, paths.logs, paths.models):
        folder.chmod(0o755)
    paths.prepare()
    assert [_mode(file) for file in files[:-2]] == [0o600] * 9
    assert [_mode(folder) for folder in (paths.data_dir, paths.logs, paths.models, paths.saes)] == [0o700] * 4
    # What lies inside a closed folder, or is not the program's, stays as it is.
    assert (_mode(model), _mode(files[-1])) == (0o644, 0o644)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
def test_a_folder_everybody_works_in_is_not_closed(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    Paths(shared).prepare()
    assert _mode(shared) == 0o1777
    assert _mode(shared / "logs") == 0o700


def test_rights_that_cannot_be_changed_keep_nothing_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    tmp_path.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", refused)
    Paths(tmp_path).prepare()

"""The data directory: found in the right order, made, and refused with one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.paths import Paths
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

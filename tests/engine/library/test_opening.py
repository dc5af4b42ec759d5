"""What may lie where the database should be, and what is said about it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from engine.errors import DataDirectoryUnusable, LibraryUnusable
from engine.library.database import Library


def test_a_fresh_library_is_made_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "dätä 東京 %41" / "millm.db"
    with Library.open(path) as library:
        assert library.models.list() == []
        assert library.path == path
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert raw.execute("SELECT version_num FROM alembic_version").fetchall() == [("0007",)]
    assert sorted(os.listdir(path.parent)) == ["millm.db"]


def test_an_empty_file_becomes_a_library(tmp_path: Path) -> None:
    (tmp_path / "millm.db").touch()
    with Library.open(tmp_path / "millm.db") as library:
        assert library.models.list() == []


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"not a database at all", "is not an SQLite database"), (b"SQLite format 3\0" + b"\1" * 4000, "is damaged")],
)
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "millm.db"
    path.write_bytes(content)
    with pytest.raises(LibraryUnusable, match=words) as caught:
        Library.open(path)
    assert caught.value.remedy is not None and str(path) in caught.value.message
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["millm.db"]


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "millm.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE cookies (name TEXT)")
        raw.commit()
    before = path.read_bytes()
    with pytest.raises(LibraryUnusable, match="another program"):
        Library.open(path)
    assert path.read_bytes() == before


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "millm.db").mkdir()
    with pytest.raises(LibraryUnusable, match="is a folder"):
        Library.open(tmp_path / "millm.db")


def test_a_data_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataDirectoryUnusable) as caught:
        Library.open(tmp_path / "file" / "data" / "millm.db")
    assert str(tmp_path / "file" / "data") in caught.value.message
    assert "--data-dir" in (caught.value.remedy or "")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="permissions do not bind root")
def test_a_data_directory_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o500)
    with pytest.raises(DataDirectoryUnusable, match="cannot be written"):
        Library.open(folder / "millm.db")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="permissions do not bind root")
def test_a_library_that_may_only_be_read(tmp_path: Path) -> None:
    path = tmp_path / "millm.db"
    Library.open(path).close()
    path.chmod(0o400)
    with pytest.raises(DataDirectoryUnusable, match="cannot be written"):
        Library.open(path)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a file system that refuses even root")
def test_a_file_system_that_takes_no_files() -> None:
    with pytest.raises(DataDirectoryUnusable, match="cannot be written"):
        Library.open(Path("/proc/self/millm.db"))


def test_a_closed_library_says_so(tmp_path: Path) -> None:
    library = Library.open(tmp_path / "millm.db")
    library.close()
    library.close()
    with pytest.raises(LibraryUnusable, match="closed"):
        library.models.list()
    with pytest.raises(LibraryUnusable, match="closed"):
        library.state.set("a", 1)


def test_a_database_damaged_while_in_use_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "millm.db"
    with Library.open(path) as library:
        for number in range(50):
            library.conversations.create(f"{number} " + "x" * 2000)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(LibraryUnusable) as caught:
        with Library.open(path) as library:
            library.conversations.list()
    assert str(path) in caught.value.message

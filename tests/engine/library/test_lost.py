"""A database that is deleted, replaced or damaged under the running program: nothing is confirmed that is lost."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.config import EngineSettings
from engine.engine import Engine
from engine.errors import LibraryLost, LibraryUnusable
from engine.events import Event, LibraryStateChanged
from engine.library.database import Library


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "millm.db"


@pytest.fixture
def library(path: Path) -> Iterator[Library]:
    with Library.open(path) as opened:
        opened.state.set("before", 1)
        yield opened


def kept(path: Path) -> list[str]:
    """The keys of the state in a file, as another program reads it."""
    with closing(sqlite3.connect(path)) as raw:
        return [row[0] for row in raw.execute("SELECT key FROM state ORDER BY key")]


def put_another_there(path: Path) -> None:
    other = path.with_name("other.db")
    Library.open(other).close()
    os.replace(other, path)


def log_of(path: Path, ending: str = "-wal") -> Path:
    return path.with_name(path.name + ending)


LOSSES: dict[str, Callable[[Path], object]] = {
    "deleted": lambda path: path.unlink(),
    "renamed": lambda path: path.rename(path.with_name("mine.db")),
    "replaced": put_another_there,
    "with its log": lambda path: [each.unlink() for each in (path, log_of(path), log_of(path, "-shm"))],
    "its folder renamed": lambda path: path.parent.rename(path.parent.with_name("elsewhere")),
    "its folder replaced": lambda path: (
        path.parent.rename(path.parent.with_name("elsewhere")),
        Library.open(path).close(),
    ),
    "its log deleted": lambda path: log_of(path).unlink(),
    "its index deleted": lambda path: log_of(path, "-shm").unlink(),
    "its log replaced": lambda path: os.replace(shutil.copy(log_of(path), path.with_name("copy")), log_of(path)),
    "emptied": lambda path: os.truncate(path, 0),
    "cut short": lambda path: os.truncate(path, 4096),
    "overwritten": lambda path: overwrite(path, 0),
    "overwritten further in": lambda path: overwrite(path, 4096),
}


def overwrite(path: Path, begin: int) -> None:
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(begin)
        file.write(b"\xff" * (size - begin))


@pytest.mark.skipif(os.name == "nt", reason="Windows deletes and renames no open file")
@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_is_confirmed_any_more(library: Library, path: Path, loss: str) -> None:
    heard: list[LibraryUnusable | None] = []
    library.listen(heard.append)
    assert library.trouble() is None
    LOSSES[loss](path)
    for _ in range(2):
        with pytest.raises(LibraryLost) as caught:
            library.state.set("after", 2)
        assert caught.value.code == "library_lost" and caught.value.remedy
    assert library.trouble() is not None
    assert [type(each) for each in heard] == [LibraryLost]


@pytest.mark.skipif(os.name == "nt", reason="Windows deletes no open file")
def test_a_loss_in_the_middle_of_a_write_is_not_confirmed(library: Library, path: Path) -> None:
    with pytest.raises(LibraryLost), library.step():
        path.unlink()


@pytest.mark.skipif(os.name == "nt", reason="Windows deletes no open file")
def test_what_was_confirmed_is_saved_and_an_empty_library_does_not_take_its_place(path: Path) -> None:
    with Library.open(path) as library:
        library.state.set("before", 1)
        path.unlink()
        with pytest.raises(LibraryLost) as caught:
            library.state.set("after", 2)
        (saved,) = path.parent.glob("millm.db.rescued-*")
        assert str(saved) in str(caught.value.remedy)
        # Its log would be played into whatever file gets its name.
        assert sorted(os.listdir(path.parent)) == [saved.name]
    assert kept(saved) == ["before"]
    with pytest.raises(LibraryUnusable, match="is missing or empty") as refused:
        Library.open(path)
    assert saved.name in str(refused.value.remedy) and not path.exists()
    saved.rename(path)
    with Library.open(path) as library:
        assert library.state.get("before") == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows deletes no open file")
def test_what_a_lost_log_held_is_in_the_file(library: Library, path: Path) -> None:
    log_of(path).unlink()
    with pytest.raises(LibraryLost):
        library.state.set("after", 2)
    # As after a kill: nobody has closed anything.
    assert kept(Path(shutil.copy(path, path.with_name("copy.db")))) == ["before"]


@pytest.mark.skipif(os.name == "nt", reason="Windows renames no open file")
def test_a_file_that_was_only_renamed_is_whole_by_itself(library: Library, path: Path) -> None:
    mine = path.rename(path.with_name("mine.db"))
    with pytest.raises(LibraryLost):
        library.state.set("after", 2)
    assert kept(mine) == ["before"]


@pytest.mark.skipif(os.name == "nt", reason="Windows replaces no open file")
def test_a_copy_put_in_its_place_is_not_mixed_with_the_old_log(path: Path, tmp_path: Path) -> None:
    with Library.open(tmp_path / "copy.db") as other:
        other.state.set("of the copy", 1)
    library = Library.open(path)
    library.state.set("before", 1)
    os.replace(tmp_path / "copy.db", path)
    with pytest.raises(LibraryLost):
        library.state.set("after", 2)
    # As after a kill: nobody has closed anything.
    with Library.open(path) as again:
        assert (again.state.get("of the copy"), again.state.get("before")) == (1, None)
    library.close()
    assert kept(path) == ["of the copy"]


@pytest.mark.skipif(os.name == "nt", reason="Windows renames no open file")
def test_put_back_it_is_used_again(library: Library, path: Path) -> None:
    heard: list[LibraryUnusable | None] = []
    library.listen(heard.append)
    moved = path.parent.rename(path.parent.with_name("elsewhere"))
    with pytest.raises(LibraryLost):
        library.state.set("after", 2)
    moved.rename(path.parent)
    library.state.set("after", 3)
    assert heard[1:] == [None]
    assert kept(path) == ["after", "before"]


def test_writes_go_on_where_nothing_is_wrong(library: Library, path: Path) -> None:
    """Also when the log is folded into the file, which changes its length and its time, and beside another reader."""
    for number in range(40):
        library.state.set(f"key {number:02d}", "x" * 200_000)
        assert len(kept(path)) == number + 2
    assert library.trouble() is None


def test_a_log_without_its_library_is_no_fresh_start(path: Path) -> None:
    path.parent.mkdir()
    log_of(path).write_bytes(b"confirmed")
    with pytest.raises(LibraryUnusable, match=r"missing or empty, and its log millm\.db-wal is there"):
        Library.open(path)
    assert os.listdir(path.parent) == ["millm.db-wal"]


def test_a_library_damaged_inside_is_refused_at_the_start_and_left_as_it_is(path: Path) -> None:
    with Library.open(path) as library:
        for number in range(50):
            library.conversations.create(f"{number} " + "x" * 2000)
    overwrite(path, path.stat().st_size // 2)
    before = path.read_bytes()
    with pytest.raises(LibraryUnusable, match="is damaged") as caught:
        Library.open(path)
    assert "move millm.db" in str(caught.value.remedy) and "millm.db-wal" in str(caught.value.remedy)
    assert path.read_bytes() == before


def test_the_remedy_names_the_copies_there_are(path: Path) -> None:
    Library.open(path).close()
    shutil.copy(path, path.with_name("millm.db.bak-0005"))
    path.write_bytes(b"not a database")
    with pytest.raises(LibraryUnusable) as caught:
        Library.open(path)
    assert "millm.db.bak-0005" in str(caught.value.remedy)


@pytest.mark.skipif(os.name == "nt", reason="Windows deletes no open file")
def test_the_faces_hear_of_it(library: Library, path: Path) -> None:
    engine = Engine(EngineSettings(), library)
    heard: list[Event] = []
    engine.events.subscribe(heard.append, LibraryStateChanged)
    path.unlink()
    with pytest.raises(LibraryLost) as caught:
        engine.library.state.set("after", 2)
    assert heard == [LibraryStateChanged("lost", caught.value.one_line())]
    assert heard[0].data()["state"] == "lost"


def test_a_write_that_the_disk_refuses_is_told_until_one_succeeds(library: Library) -> None:
    with closing(sqlite3.connect(library.path)) as other:
        most = other.execute("PRAGMA page_count").fetchone()[0] + 2
    with library._sessions._engine.connect() as connection:  # the one that the next write gets from the pool
        connection.exec_driver_sql(f"PRAGMA max_page_count={most}")
    with pytest.raises(LibraryUnusable, match="full") as caught:
        library.state.set("large", "x" * 1_000_000)
    assert not isinstance(caught.value, LibraryLost) and caught.value.code == "insufficient_disk"
    assert library.refused is not None and "full" in library.refused
    library.state.set("small", 1)
    assert library.refused is None

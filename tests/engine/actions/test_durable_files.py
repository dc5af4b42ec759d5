"""What the system refuses while files are written into the data directory, in words."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from engine.actions.durable_files import BLOCK, Writing, copy_file, remove_tree
from engine.errors import DataDirectoryUnusable, InsufficientDisk, InvalidParameter
from tests.pipes import pipe


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk(tmp_path: Path, number: int) -> None:
    with pytest.raises(InsufficientDisk) as caught, Writing(tmp_path, "the model").translated():
        raise OSError(number, "no")
    assert caught.value.message == f"The disk of {tmp_path} has no room for the model."


def test_a_disk_that_would_be_full(tmp_path: Path) -> None:
    writing = Writing(tmp_path, "a copy of the SAE")
    writing.require_space(0)
    free = shutil.disk_usage(tmp_path).free
    with pytest.raises(InsufficientDisk) as caught:
        writing.require_space(4 * free)
    assert caught.value.message.startswith(f"The disk of {tmp_path} has no room for a copy of the SAE: it takes ")
    assert caught.value.details["needed_mb"] > 2 * caught.value.details["free_mb"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    writing = Writing(tmp_path / "file", "a copy of the SAE")
    with pytest.raises(DataDirectoryUnusable) as caught, writing.translated():
        (writing.root / "below").mkdir()
    said = f"A copy of the SAE could not be written to {tmp_path / 'file'}: "
    assert caught.value.message.startswith(said) and caught.value.remedy


def test_a_copy_asks_before_each_block_and_never_waits(tmp_path: Path) -> None:
    asked: list[int] = []
    (tmp_path / "a").write_bytes(bytes(2 * BLOCK + 1))
    copy_file(tmp_path / "a", tmp_path / "b", lambda: asked.append(1))
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes() and len(asked) == 3
    with pytest.raises(OSError, match="no ordinary file"):
        copy_file(pipe(tmp_path / "pipe"), tmp_path / "c")


def test_removing_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    remove_tree(tmp_path / "a")
    remove_tree(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_grows_or_cannot_be_read_is_the_sources_fault(tmp_path: Path) -> None:
    source = tmp_path / "log"
    source.write_bytes(bytes(BLOCK))

    def grow() -> None:
        with source.open("ab") as file:
            file.write(bytes(BLOCK))

    with pytest.raises(InvalidParameter, match="it grew while it was read") as caught:
        with Writing(tmp_path, "the model").translated():
            copy_file(source, tmp_path / "copy", grow)
    assert caught.value.param == "local_path"
    with pytest.raises(InvalidParameter, match="No such file"), Writing(tmp_path, "the SAE", "path").translated():
        copy_file(tmp_path / "nothing", tmp_path / "copy")


def test_a_name_too_long_for_the_disk(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(InvalidParameter, match="too long"), Writing(tmp_path, "the model").translated():
        copy_file(tmp_path / "a", tmp_path / ("x" * 300))

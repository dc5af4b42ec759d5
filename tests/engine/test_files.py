"""Opening a person's files: nothing that waits is ever waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.files import NoOrdinaryFile, open_file, read_text, write_text
from tests.pipes import pipe


def test_a_file_is_read_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"GGUF\0rest")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("file", "link"):
        with open_file(tmp_path / name) as file:
            assert (file.read(4), file.read()) == (b"GGUF", b"\0rest")


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(pipe(tmp_path / "pipe"))
    for path in (tmp_path / "pipe", tmp_path / "link", Path(os.devnull)):
        with pytest.raises(NoOrdinaryFile) as caught:
            open_file(path)
        assert caught.value.strerror == "it is no ordinary file" and caught.value.filename == str(path)
    with pytest.raises(OSError):
        open_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "nothing")


def test_a_text_is_no_longer_than_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes("naïve".encode())
    assert read_text(tmp_path / "file", 6) == "naïve"
    with pytest.raises(OSError, match="more than 5 bytes"):
        read_text(tmp_path / "file", 5)
    (tmp_path / "file").write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        read_text(tmp_path / "file", 5)


def test_a_text_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "kept.md"
    write_text(file, "ä\r\nb\n")
    assert file.read_bytes() == "ä\r\nb\n".encode()
    file.chmod(0o640)
    (tmp_path / "link").symlink_to(file)
    write_text(tmp_path / "link", "second")
    # The link is followed, and the file keeps its rights.
    assert (tmp_path / "link").is_symlink() and file.read_text() == "second"
    assert file.stat().st_mode & 0o777 == 0o640
    with pytest.raises(UnicodeEncodeError):
        write_text(file, "\ud800")
    for path, error in ((tmp_path / "no" / "folder.md", FileNotFoundError), (pipe(tmp_path / "pipe"), NoOrdinaryFile)):
        with pytest.raises(error):
            write_text(path, "x")
    assert file.read_text() == "second"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kept.md", "link", "pipe"]

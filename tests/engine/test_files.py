"""Opening a person's files: nothing that waits is ever waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.files import NoOrdinaryFile, open_file, read_text
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

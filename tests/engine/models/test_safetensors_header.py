"""Headers made to stop whoever reads them: refused after a bounded number of steps."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from engine.models.inspection import safetensors_header
from engine.models.inspection.safetensors_header import MAX_HEADER_BYTES, SafetensorsHeaderError, read_header


def written(path: Path, header: Any, data: bytes = b"") -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)
    return path


def entry(shape: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 8]}}


def test_a_shape_of_a_million_sides_is_never_multiplied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    multiplied: list[int] = []

    class Counting:
        """``math`` as far as it is used, noting how much is multiplied at once."""

        @staticmethod
        def prod(sides: Any) -> int:
            multiplied.append(len(sides))
            return safe(sides)

    import math

    safe = math.prod
    monkeypatch.setattr(safetensors_header, "math", Counting)
    for shape in ([10**17] * 1_000_000, [10**4000] * 4_000, [[]] * 1_000_000):
        with pytest.raises(SafetensorsHeaderError, match="cannot be read"):
            read_header(written(tmp_path / "x", entry(shape), b"\0" * 8))
    for shape in ([2**63], [2**62] * 65, [10**4000]):
        with pytest.raises(SafetensorsHeaderError, match="damaged shape"):
            read_header(written(tmp_path / "x", entry(shape), b"\0" * 8))
    assert multiplied == []
    with pytest.raises(SafetensorsHeaderError, match="does not fill its place"):
        read_header(written(tmp_path / "x", entry([2**62] * 64), b"\0" * 8))
    assert multiplied == [64]


def test_a_number_of_a_million_digits_is_no_header(tmp_path: Path) -> None:
    with pytest.raises(SafetensorsHeaderError, match="cannot be read"):
        read_header(written(tmp_path / "x", b'{"a": {"dtype": "F32", "shape": [' + b"9" * 1_000_000 + b"]}}"))


def test_a_header_longer_than_any_real_one_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", MAX_HEADER_BYTES + 1))
        file.truncate(MAX_HEADER_BYTES + 100)
    with pytest.raises(SafetensorsHeaderError, match="longer than any real one"):
        read_header(path)


def test_an_odd_number_format_is_named(tmp_path: Path) -> None:
    odd = {"a": {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]}}
    with pytest.raises(SafetensorsHeaderError, match="unknown number format"):
        read_header(written(tmp_path / "x", odd, b"\0" * 8))

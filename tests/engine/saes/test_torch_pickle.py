"""Pickles that run no code and still take the machine: told before torch's loader follows them."""

from __future__ import annotations

import io
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.saes.errors import SaeLoadFailed
from engine.saes.formats import torch_file
from engine.saes.formats.weights import open_weights

PROTO = b"\x80\x02"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value: int) -> bytes:
    return b"\x8a\x08" + value.to_bytes(8, "little")


def called(name: str, *arguments: bytes) -> bytes:
    module, _, function = name.rpartition(".")
    return b"c" + module.encode() + b"\n" + function.encode() + b"\n(" + b"".join(arguments) + b"tR"


def storage(count: int) -> bytes:
    return b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + number(count) + b"tQ"


def tensor(count: int) -> bytes:
    sizes = b"(" + number(count) + b"t(" + number(1) + b"t"
    return called(
        "torch._utils._rebuild_tensor_v2", storage(count), number(0), sizes, b"\x89", called("collections.OrderedDict")
    )


def nested(levels: int) -> bytes:
    """A tuple of twice the same tuple, and so on: small to write, endless to hash."""
    return b")" + b"".join(b"q" + bytes([n]) + b"h" + bytes([n]) + b"\x86" for n in range(levels))


BOMBS = {
    "bytearray": PROTO + called("builtins.bytearray", number(10**12)) + b".",
    "bytearray of Python 2": PROTO + called("__builtin__.bytearray", number(10**12)) + b".",
    "bytearray in a dict": PROTO + b"}" + text("a") + called("builtins.bytearray", number(10**12)) + b"s.",
    "tensor made of a length": PROTO + called("torch.Tensor", number(10**12)) + b".",
    "storage made of a length": PROTO + called("torch.storage.UntypedStorage", number(10**12)) + b".",
    "codec": PROTO + called("_codecs.encode", text("a"), text("zip")) + b".",
    "set": PROTO + called("builtins.set", b"]") + b".",
    "sparse": PROTO + called("torch._utils._rebuild_sparse_tensor", b")") + b".",
    "claimed values": PROTO + b"}" + text("a") + tensor(10**12) + b"s.",
    "claimed negative values": PROTO + b"}" + text("a") + storage(2**64 - 5) + b"s.",
    "a key that is endless to hash": PROTO + b"}" + nested(60) + b"K\x01s.",
    "a name that is endless to write": PROTO + b"}" + text("a") + b"(" + nested(60) + nested(60) + b"ttQs.",
    "an object to call": PROTO + nested(60) + b")R.",
    "a newer opcode": PROTO + b"\x96" + struct.pack("<Q", 10**12) + b".",
    "a long text": PROTO + b"X" + struct.pack("<I", 2**32 - 1) + b"a.",
    "a high memo": PROTO + b"}r" + struct.pack("<I", 2**32 - 1) + b"0.",
}


def legacy(bomb: bytes) -> bytes:
    whole = io.BytesIO()
    torch.save({}, whole, _use_new_zipfile_serialization=False)
    content = whole.getvalue()
    place = content.index(b"\x80\x02}q\x00.")
    return content[:place] + bomb + content[place + 6 :]


def zipped(bomb: bytes, packing: int = zipfile.ZIP_STORED) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", packing) as archive:
        archive.writestr("archive/data.pkl", bomb)
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/data/0", b"\0" * 8)
    return whole.getvalue()


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What torch's loader was given."""
    seen: list[Any] = []
    plain = torch.load

    def noted(path: Any, **options: Any) -> Any:
        seen.append(path)
        return plain(path, **options)

    monkeypatch.setattr(torch_file.torch, "load", noted)
    return seen


@pytest.mark.parametrize("packed", [bytes, legacy, zipped])
@pytest.mark.parametrize("name", BOMBS)
def test_a_pickle_that_takes_the_machine_never_reaches_the_loader(
    tmp_path: Path, loads: list[Any], name: str, packed: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "ae.pt").write_bytes(packed(BOMBS[name]))
    with pytest.raises(SaeLoadFailed, match=r"ae\.pt"):
        open_weights(tmp_path / "ae.pt")
    assert loads == []


def test_an_archive_that_expands_is_refused(tmp_path: Path, loads: list[Any]) -> None:
    bomb = PROTO + b"}" + text("a" * 50_000_000) + b"K\x01s."
    (tmp_path / "ae.pt").write_bytes(zipped(bomb, zipfile.ZIP_DEFLATED))
    with pytest.raises(SaeLoadFailed, match="expands"):
        open_weights(tmp_path / "ae.pt")
    (tmp_path / "ae.pt").write_bytes(zipped(b"\x80" * 17_000_000))
    with pytest.raises(SaeLoadFailed, match="pickle of 17,000,000 bytes"):
        open_weights(tmp_path / "ae.pt")
    assert loads == []


@pytest.mark.parametrize("new", [True, False])
def test_what_torch_saves_is_read(tmp_path: Path, new: bool) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    content: dict[str, Any] = OrderedDict(module.state_dict())
    content._metadata = module.state_dict()._metadata  # type: ignore[attr-defined]
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.bool, torch.uint8):
        content[str(dtype)] = torch.ones(4, dtype=dtype)
    content["parameter"] = torch.nn.Parameter(torch.ones(2, 3))
    content["view"] = torch.arange(10.0)[2:6].t()
    content["cfg"] = {"k": 5, "lr": 0.5, "dtype": torch.float32, "device": torch.device("cpu"), "size": torch.Size([2])}
    content["names"] = ["a", ("b", None, True)]
    content["big"] = 1 << 60
    torch.save(content, tmp_path / "ae.pt", _use_new_zipfile_serialization=new)
    found = open_weights(tmp_path / "ae.pt")
    assert set(found.tensors) == {name for name, value in content.items() if isinstance(value, torch.Tensor)}
    assert found.extras["cfg"] == {"k": 5, "lr": 0.5, "dtype": "dtype", "device": "device", "size": "Size"}
    assert found.read("view").tolist() == [2.0, 3.0, 4.0, 5.0]
    assert torch.equal(found.read("parameter"), torch.ones(2, 3))


def test_an_npz_header_that_is_a_nest_of_brackets(tmp_path: Path) -> None:
    header = ("(" * 9_000).ljust(9_999) + "\n"
    member = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("W_enc.npy", member)
    with pytest.raises(SaeLoadFailed, match="damaged"):
        open_weights(tmp_path / "a.npz")

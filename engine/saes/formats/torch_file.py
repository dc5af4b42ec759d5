"""torch's own files (``.pt``, ``.pth``): read with ``weights_only``, which builds tensors and plain containers only."""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.saes.errors import SaeLoadFailed
from engine.saes.formats.torch_pickle import Damaged, Oversized, Unsafe, check_pickles
from engine.saes.formats.weights import Stored, WeightsFile, damaged, unsafe

MAX_PICKLE_BYTES = 16_000_000
"""Of the names and places of the tensors; the values are beside it."""

_LEGACY_PICKLES = 5
"""In torch's old format: a number, a version, the system, the object, and the storages' names."""

_WANTED = re.compile(r"GLOBAL ([\w.]+)")


@dataclass(frozen=True)
class TorchFile(WeightsFile):
    """A torch file holding a dict. Tensors inside inner dicts are not listed; the dicts are among ``extras``."""

    @property
    def kind(self) -> str:
        """``torch``."""
        return "torch"

    def read(self, name: str) -> Tensor:
        """One tensor, backed by the mapped file where the format allows it."""
        self.shape(name)
        tensor = _load(self.path)[name]
        return _owned_size(self.path, name, tensor)


def open_torch(path: Path) -> TorchFile:
    """The names and shapes in the file. Raises SaeLoadFailed when it is damaged, wants code run, or is no dict."""
    loaded = _load(path)
    tensors, extras = {}, {}
    for name, value in loaded.items():
        if isinstance(value, Tensor):
            _owned_size(path, name, value)
            tensors[name] = Stored(tuple(value.shape), str(value.dtype).removeprefix("torch."))
        else:
            extras[name] = _summary(value)
    return TorchFile(path, tensors, extras)


def _load(path: Path) -> Mapping[str, Any]:
    try:
        zipped = zipfile.is_zipfile(path)
        _check(path, zipped)
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except SaeLoadFailed:
        raise
    except pickle.UnpicklingError as error:
        wanted = _WANTED.search(str(error))
        if wanted or "weights_only" in str(error).lower():
            asked = f" ({wanted[1]})" if wanted else ""
            raise unsafe(path, f"asks for Python code to be run when it is opened{asked}") from error
        raise damaged(path, "is cut short or damaged") from error
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror or error})") from error
    except Exception as error:
        # The restricted unpickler meets hostile bytes with almost any exception; all of them mean the same here.
        raise damaged(path, "is damaged or not a torch checkpoint") from error
    if not isinstance(loaded, dict):
        raise damaged(path, f"holds a {type(loaded).__name__} where a dict of tensors belongs")
    return {str(name): value for name, value in loaded.items()}


def _check(path: Path, zipped: bool) -> None:
    """Raise for a file whose pickles ask for more than a dict of tensors needs; see ``torch_pickle``."""
    size = path.stat().st_size
    try:
        if zipped:
            record = _pickle_of(path, size)
            check_pickles(io.BytesIO(record), size, 1)
        else:
            with path.open("rb") as file:
                check_pickles(file, size, _LEGACY_PICKLES)
    except Unsafe as error:
        raise unsafe(path, f"asks for Python code to be run when it is opened ({error})") from error
    except Oversized as error:
        raise damaged(path, "is damaged: it claims more values than it has bytes") from error
    except Damaged as error:
        raise damaged(path, str(error)) from error


def _pickle_of(path: Path, size: int) -> bytes:
    """The pickle in torch's zip format, as torch itself finds it; torch packs nothing, so nothing may expand."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    for member in members:
        if member.file_size > size or member.file_size != member.compress_size:
            raise damaged(path, f"expands {member.filename[:60]}, which torch never packs")
        if member.filename.endswith("data.pkl") and member.file_size > MAX_PICKLE_BYTES:
            raise damaged(path, f"has a pickle of {member.file_size:,} bytes, more than any checkpoint")
    record: bytes = torch._C.PyTorchFileReader(str(path)).get_record("data.pkl")
    return record


def _owned_size(path: Path, name: str, tensor: Tensor) -> Tensor:
    """``tensor`` unless it claims more values than the file stores for it (a view that repeats memory)."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise damaged(path, f"keeps {name} in a form that is no plain tensor")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise damaged(path, f"is damaged: {name} claims more values than are stored")
    return tensor.detach()


def _summary(value: Any) -> Any:
    """Plain values as they are, inner dicts by their plain values; nothing that would keep the file mapped."""
    if isinstance(value, dict):
        return {str(key): _summary(inner) for key, inner in value.items() if not isinstance(inner, dict)}
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.item()
    return type(value).__name__

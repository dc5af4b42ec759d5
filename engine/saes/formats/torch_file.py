"""torch's own files (``.pt``, ``.pth``): read with ``weights_only``, which builds tensors and plain containers only."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.saes.formats.weights import Stored, WeightsFile, damaged, unsafe

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
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
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

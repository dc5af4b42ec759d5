"""Weight files: what tensors they hold, told by their content, and single tensors out of them.

Three containers occur: safetensors, NumPy's npz, and torch's own (zip or legacy pickle). Names and shapes are read
without the values. No code stored in a file is ever run: npz members with objects are refused, and pickles go through
torch's restricted loader. Nothing is held open between calls.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from engine.saes.config import BYTES_PER_VALUE
from engine.saes.errors import SaeLoadFailed

WEIGHT_ENDINGS = frozenset({".safetensors", ".npz", ".pt", ".pth", ".bin", ".ckpt"})
"""Files looked into when a folder is given; what they are is then told by their content."""

_PREFIXES = ("module.", "model.", "sae.", "autoencoder.", "dictionary.")
"""What stands before every name when what was saved holds the SAE: data parallelism, a trainer's own module."""

_WRAPPED_PART = re.compile(
    r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module)\."
)
"""What ``torch.compile`` and other wrappers put into names, before all of them or within."""

_LFS_POINTER = b"version https://git-lfs"


@dataclass(frozen=True)
class Stored:
    """A tensor as the file describes it. ``dtype`` is torch's word (``float32``)."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class WeightsFile(ABC):
    """A weight file. ``extras`` are values beside the tensors (torch files only)."""

    path: Path
    tensors: Mapping[str, Stored]
    extras: Mapping[str, Any] = field(default_factory=dict)

    @property
    @abstractmethod
    def kind(self) -> str:
        """``safetensors``, ``npz`` or ``torch``."""

    @abstractmethod
    def read(self, name: str) -> Tensor:
        """One tensor, on the CPU. It may share memory with the file, so it is copied before it is kept."""

    def floats(self, name: str) -> Tensor:
        """One tensor of weights, as :meth:`read` gives it.

        Raises :class:`SaeLoadFailed` unless it is in a number format of ``BYTES_PER_VALUE``: torch computes little or
        nothing with the others.
        """
        value = self.read(name)
        if str(value.dtype).removeprefix("torch.") not in BYTES_PER_VALUE:
            known = ", ".join(BYTES_PER_VALUE)
            raise damaged(self.path, f"stores {name} as {value.dtype}, not as floating-point numbers ({known})")
        return value

    def has(self, *names: str) -> bool:
        """Whether every one of these tensors is there."""
        return all(name in self.tensors for name in names)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor. Raises :class:`SaeLoadFailed` when it is not there."""
        if name not in self.tensors:
            raise SaeLoadFailed(
                f"{self.path.name} has no tensor {name}.",
                details={"file": str(self.path), "tensors": sorted(self.tensors)[:50]},
                remedy="Download the file again; if that does not help, it is not the format it seems to be.",
            )
        return self.tensors[name].shape


def open_weights(path: Path) -> WeightsFile:
    """The file at ``path``, judged by its first bytes. Raises :class:`SaeLoadFailed` when it is damaged or unsafe.

    What a module was wrapped in when it was saved is taken off its tensors' names, alike for every format.
    """
    return _unwrapped(_open(path))


def _open(path: Path) -> WeightsFile:
    from engine.saes.formats.npz_file import open_npz
    from engine.saes.formats.safetensors_file import open_safetensors
    from engine.saes.formats.torch_file import open_torch

    try:
        with path.open("rb") as file:
            start = file.read(64)
        size = path.stat().st_size
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror or error})") from error
    if start.startswith(_LFS_POINTER):
        raise damaged(path, "is a Git LFS pointer: the weights themselves were never downloaded")
    if not start:
        raise damaged(path, "is empty")
    if start.startswith(b"PK"):
        # npz and torch's format are both zip archives; their members differ.
        found = open_npz(path)
        return found if found is not None else open_torch(path)
    if start.startswith(b"\x80") and not _safetensors_length_fits(start, size):
        return open_torch(path)
    return open_safetensors(path)


@dataclass(frozen=True)
class _Unwrapped(WeightsFile):
    """A weight file under the names its module has by itself; ``written`` gives the names in the file."""

    inner: WeightsFile = field(kw_only=True)
    written: Mapping[str, str] = field(kw_only=True)

    @property
    def kind(self) -> str:
        """The file's own."""
        return self.inner.kind

    def read(self, name: str) -> Tensor:
        """One tensor, as the file gives it."""
        self.shape(name)
        return self.inner.read(self.written[name])


def _unwrapped(weights: WeightsFile) -> WeightsFile:
    bare = {name: _WRAPPED_PART.sub("", name) for name in weights.tensors}
    while bare:
        first = next(iter(bare.values()))
        prefix = next((each for each in _PREFIXES if first.startswith(each)), None)
        if prefix is None or not all(name.startswith(prefix) for name in bare.values()):
            break
        bare = {name: short.removeprefix(prefix) for name, short in bare.items()}
    written = {short: name for name, short in bare.items()}
    if len(written) < len(bare) or all(name == short for name, short in bare.items()):
        return weights
    wrapping = {name.removesuffix(short) for name, short in bare.items()}
    extras = {_without(wrapping, name): value for name, value in weights.extras.items()}
    tensors = {short: weights.tensors[name] for short, name in written.items()}
    return _Unwrapped(weights.path, tensors, extras, inner=weights, written=written)


def _without(wrapping: Collection[str], name: str) -> str:
    return next((name.removeprefix(each) for each in wrapping if each and name.startswith(each)), name)


def damaged(path: Path, what: str) -> SaeLoadFailed:
    """The error for a file that cannot be used; ``what`` continues the file's name."""
    return SaeLoadFailed(
        f"{path.name} {what}.",
        details={"file": str(path)},
        remedy="Download or copy the file again.",
    )


def unsafe(path: Path, what: str) -> SaeLoadFailed:
    """The error for a file that wants code to be run."""
    return SaeLoadFailed(
        f"{path.name} {what}. It was not run and nothing was loaded.",
        details={"file": str(path), "unsafe": True},
        remedy="Use a safetensors version of this SAE, from someone you trust.",
    )


def _safetensors_length_fits(start: bytes, size: int) -> bool:
    """A header of exactly such a length may begin with a pickle's first byte; the brace after it tells."""
    return len(start) > 8 and start[8:9] == b"{" and 8 + int.from_bytes(start[:8], "little") <= size

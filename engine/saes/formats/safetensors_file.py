"""safetensors: names and shapes from the header, tensors mapped from the file one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.saes.formats.weights import Stored, WeightsFile, damaged

MAX_HEADER_BYTES = 4_000_000
"""The library parses a header in one step, in which nothing else goes on. An SAE's few tensors need some kilobytes."""

_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True)
class SafetensorsFile(WeightsFile):
    """A safetensors file; ``read`` maps the tensor, so its values come in when they are copied."""

    @property
    def kind(self) -> str:
        """``safetensors``."""
        return "safetensors"

    def read(self, name: str) -> Tensor:
        """One tensor, backed by the mapped file."""
        self.shape(name)
        with _opened(self.path) as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor


def open_safetensors(path: Path) -> SafetensorsFile:
    """The file's header. Raises SaeLoadFailed when the file is cut short or is something else."""
    try:
        with path.open("rb") as raw:
            length, size = int.from_bytes(raw.read(8), "little"), path.stat().st_size
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror or error})") from error
    if MAX_HEADER_BYTES < length <= size:
        raise damaged(path, f"is no SAE's file: its header alone has {length:,} bytes")
    with _opened(path) as file:
        tensors = {}
        for name in file.keys():  # noqa: SIM118 - not a dict
            part = file.get_slice(name)
            word = str(part.get_dtype())
            tensors[name] = Stored(tuple(part.get_shape()), _DTYPES.get(word, word.lower()))
    if not tensors:
        raise damaged(path, "holds no tensors")
    return SafetensorsFile(path, tensors)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            yield file
    except SafetensorError as error:
        # The library checks on opening that header and length agree, so a cut or altered file ends here.
        raise damaged(path, "is cut short, damaged or not a safetensors file") from error
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror or error})") from error

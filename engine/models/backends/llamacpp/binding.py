"""The way to the library: starting it, its log, and the few calls on tensors that ``llama_cpp`` does not wrap.

llama.cpp writes to the terminal unless told otherwise; here its words go to our log, and the last of them are kept for
error messages, since its calls themselves only say that they failed.
"""

from __future__ import annotations

import ctypes
import logging
from collections import deque
from functools import cache
from pathlib import Path
from typing import Any

from engine.errors import EngineUnsupported
from engine.models.backends.engines import BUILD

log = logging.getLogger(__name__)

_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.INFO, 4: logging.WARNING}
"""ggml's levels: debug, info, warn, error. Its warnings are mostly about files as they are, and about nothing to do."""
_CONTINUED = 5
_F32 = 0


class _Log:
    """Gathers llama.cpp's words line by line. Called from any of its threads; must never raise."""

    def __init__(self) -> None:
        self.complaints: deque[str] = deque(maxlen=8)
        self._level = logging.DEBUG
        self._line = ""

    def write(self, level: int, text: bytes | None, user_data: object) -> None:
        if level != _CONTINUED:
            self._level = _LEVELS.get(level, logging.DEBUG)
        self._line += (text or b"").decode("utf-8", "replace")
        *lines, self._line = self._line.split("\n")
        for line in lines:
            if not line.strip(" ."):
                continue
            log.log(self._level, "%s", line)
            if self._level >= logging.INFO:
                self.complaints.append(line.strip())


_words = _Log()


@cache
def library() -> Any:
    """The module ``llama_cpp``, started once. Raises :class:`EngineUnsupported` when it cannot be imported."""
    try:
        import llama_cpp
    except Exception as error:  # a library that was built for another machine raises OSError or RuntimeError
        raise EngineUnsupported(
            f"llama.cpp cannot be used: {' '.join(str(error).split())[:300]}",
            param="model",
            remedy=f"Compile it for this machine: {BUILD}",
        ) from error
    callback = llama_cpp.llama_log_callback(_words.write)
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    _kept.append(callback)
    llama_cpp.llama_backend_init()
    return llama_cpp


_kept: list[Any] = []
"""Callbacks the library holds for as long as the program runs."""


def forget_complaints() -> None:
    """Begin anew to gather what goes wrong."""
    _words.complaints.clear()


def complaints() -> str:
    """What llama.cpp said last about what went wrong, as the end of a message; empty where it said nothing."""
    said = [line for line in _words.complaints if line]
    return f" llama.cpp says: {'; '.join(said[-3:])[:500]}" if said else ""


class Tensors:
    """Reads what a ``ggml_tensor`` is and holds. Addresses are plain integers."""

    def __init__(self) -> None:
        for name, result in (
            ("ggml_get_name", ctypes.c_void_p),
            ("ggml_get_data", ctypes.c_void_p),
            ("ggml_nbytes", ctypes.c_size_t),
            ("ggml_is_contiguous", ctypes.c_bool),
        ):
            function = ggml_function(name)
            function.restype, function.argtypes = result, [ctypes.c_void_p]
            setattr(self, "_" + name, function)
        for name in ("ggml_backend_tensor_get", "ggml_backend_tensor_set"):
            function = ggml_function(name)
            function.restype = None
            function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
            setattr(self, "_" + name, function)

    _ggml_get_name: Any
    _ggml_get_data: Any
    _ggml_nbytes: Any
    _ggml_is_contiguous: Any
    _ggml_backend_tensor_get: Any
    _ggml_backend_tensor_set: Any

    def name(self, tensor: int) -> bytes:
        """Its name in the graph, such as ``b"l_out-3"``."""
        return ctypes.string_at(self._ggml_get_name(tensor))

    def is_plain_float32(self, tensor: int) -> bool:
        """Whether it is float32 without gaps. The type is the first field of the structure."""
        return ctypes.c_int32.from_address(tensor).value == _F32 and bool(self._ggml_is_contiguous(tensor))

    def nbytes(self, tensor: int) -> int:
        return int(self._ggml_nbytes(tensor))

    def address(self, tensor: int) -> int:
        """Where its values are, in the memory of whichever device it is on."""
        return int(self._ggml_get_data(tensor) or 0)

    def read(self, tensor: int, into: int, nbytes: int) -> None:
        """Copy its first ``nbytes`` from its device to the address ``into``."""
        self._ggml_backend_tensor_get(tensor, into, 0, nbytes)

    def write(self, tensor: int, source: int, nbytes: int) -> None:
        """Copy ``nbytes`` from the address ``source`` to its device."""
        self._ggml_backend_tensor_set(tensor, source, 0, nbytes)


def ggml_function(name: str) -> Any:
    """A function of ggml, the library below llama.cpp, in the very copy that llama.cpp uses.

    Its wheel holds the library several times under several names, and each copy has a state of its own. What llama.cpp
    itself was linked to is found by way of llama.cpp, but for Windows, where there is one copy.
    """
    llama = library()
    try:
        return getattr(llama.llama_cpp._lib, name)
    except AttributeError:
        return getattr(_ggml_base(Path(llama.__file__).parent / "lib"), name)


@cache
def _ggml_base(folder: Path) -> ctypes.CDLL:
    from llama_cpp._ctypes_extensions import load_shared_library

    library: ctypes.CDLL = load_shared_library("ggml-base", folder)
    return library

"""Keeps the process when llama.cpp gives up on a file that is being loaded.

Some of ggml's checks of what a file says end the process instead of failing (``ggml_abort``), and only llama.cpp knows
all of them. It calls back before it does; a callback that never returns keeps the process. So a load runs in a thread
of its own, which is then left behind with what it holds, and the load is refused. Once a model is loaded nothing more
can be saved that way, since whoever computes would be the thread that is left: then the cause is in the log.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from engine.errors import ModelLoadFailed
from engine.models.backends.llamacpp.binding import ggml_function

log = logging.getLogger(__name__)

T = TypeVar("T")


class _Load:
    """One load: what it gave, or why llama.cpp gave up."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None
        self.gave_up: str | None = None


_under_way: _Load | None = None
_one_at_a_time = threading.Lock()


def guarded(work: Callable[[], T], name: str) -> T:
    """What ``work`` gives, which loads the file ``name`` and uses nothing that is loaded already.

    Raises what it raises, and :class:`ModelLoadFailed` where llama.cpp would have ended the process.
    """
    global _under_way
    _listen()
    load = _Load()

    def run() -> None:
        try:
            load.value = work()
        except BaseException as error:
            load.error = error
        load.over.set()

    with _one_at_a_time:
        _under_way = load
        try:
            threading.Thread(target=run, name="llama.cpp-load", daemon=True).start()
            load.over.wait()
        finally:
            _under_way = None
    if load.gave_up is not None:
        raise ModelLoadFailed(
            f"llama.cpp gave up on {name}: {load.gave_up}",
            details={"file": name},
            remedy="Download the file again, or update llama-cpp-python if the model is newer than it is. Memory that "
            "the attempt took is free again when the program is restarted.",
        )
    if load.error is not None:
        raise load.error
    return load.value


def _on_abort(message: bytes | None) -> None:
    """Called by whichever thread of llama.cpp failed a check; when this returns, the process ends."""
    said = " ".join((message or b"").decode("utf-8", "replace").split())
    # It begins with the path of a source file on the machine that built the library.
    said = said[said.rfind("/", 0, said.find(":") + 1) + 1 :][:300]
    load = _under_way
    if load is None:
        log.critical("llama.cpp ends the process: %s", said)
        return
    log.error("llama.cpp gave up while a model was loaded: %s", said)
    load.gave_up = said
    load.over.set()
    threading.Event().wait()


@cache
def _listen() -> None:
    """Ask ggml, once, to be told before it ends the process."""
    kind = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
    callback = kind(_on_abort)
    _kept.append(callback)
    tell = ggml_function("ggml_set_abort_callback")
    tell.argtypes, tell.restype = [kind], ctypes.c_void_p
    tell(callback)


_kept: list[Any] = []
"""The library holds only the address."""

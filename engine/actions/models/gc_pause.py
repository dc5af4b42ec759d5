"""Keeps Python's garbage collector from stopping the program.

A full collection looks at every object there is and holds the interpreter meanwhile: with torch, transformers and a
window that takes a fifth of a second, in which nothing is drawn and no stream goes on. It comes by itself while
libraries are imported, and is asked for when a model leaves. Nearly all of these objects belong to libraries and stay
to the end of the program; so they are set aside once, when the libraries are there and no model is yet.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Collector:
    """One for the process, as the garbage collector is; see :data:`COLLECTOR`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set_aside = False

    @contextmanager
    def importing(self) -> Iterator[None]:
        """While the heavy libraries come in: no collection. The first time, all there is then is set aside.

        What is set aside is freed as soon as nothing refers to it, like any object; only circles of such objects are
        not found any more. So no model may be in memory yet: weights in a circle would never be freed.
        """
        with self._lock:
            if self._set_aside:
                yield
                return
            was_on = gc.isenabled()
            gc.disable()
            try:
                yield
                gc.freeze()
                self._set_aside = True
            finally:
                if was_on:
                    gc.enable()


COLLECTOR = Collector()
"""The process's own."""

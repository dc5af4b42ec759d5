"""A progress that moves through steps inside libraries that say nothing of theirs."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[float, str], None]
"""Called with 0–100 and a short phrase."""

BEAT_SECONDS = 0.25


@contextmanager
def moving(progress: Progress, start: float, end: float, phrase: str, seconds: float) -> Iterator[None]:
    """While the block runs, go from ``start`` towards ``end`` percent, about two thirds of it in ``seconds``.

    For steps inside a library that says nothing: a bar that stands still looks like a program that does.
    """
    over = threading.Event()

    def beat() -> None:
        passed = 0.0
        while not over.wait(BEAT_SECONDS):
            passed += BEAT_SECONDS
            progress(start + (end - start) * (1 - math.exp(-passed / seconds)), phrase)

    progress(start, phrase)
    beating = threading.Thread(target=beat, name="progress", daemon=True)
    beating.start()
    try:
        yield
    finally:
        over.set()
        beating.join()

"""Waiting for a condition with a deadline, for state that no event announces."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], what: str, timeout: float = 30.0) -> None:
    """Return as soon as ``condition()`` is true; fail naming ``what`` after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s in vain for: {what}")
        # Yields the interpreter so that the thread waited for can run; not a guess at how long it needs.
        time.sleep(0.001)

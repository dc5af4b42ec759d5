"""The one lock under which steering is managed: attach, detach, activate, dial, release.

It keeps what the library says and what the desk holds in step. Requests never take it, and neither does anything that
runs on the engine thread: whoever holds it may wait for that thread. Slow work (reading weights, waiting for requests)
is done before it is taken.
"""

from __future__ import annotations

import threading
from types import TracebackType


class SteeringLock:
    """Held for one change at a time; the same thread may take it again inside."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

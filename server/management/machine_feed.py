"""The machine's figures for those who listen at the event socket: read every two seconds, and only while somebody does.

Lives on the server's loop; the reading itself is done on a pool's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from engine.events import Event, SystemMetrics
from server.context import ServerContext
from server.health.machine import read_machine

log = logging.getLogger(__name__)

INTERVAL_S = 2.0


class MachineFeed:
    """Sends :class:`SystemMetrics` to everybody who has joined, at once and then every ``INTERVAL_S`` seconds."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._listeners: list[Callable[[Event], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._latest: SystemMetrics | None = None

    @property
    def running(self) -> bool:
        """Whether the machine is being read."""
        return self._task is not None

    def join(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Send to ``listener`` until the function returned is called, which is harmless to do twice."""
        self._listeners.append(listener)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        elif self._latest is not None:
            listener(self._latest)

        def leave() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)
            if not self._listeners and self._task is not None:
                self._task.cancel()
                self._task = self._latest = None

        return leave

    async def _run(self) -> None:
        while True:
            try:
                self._latest = await self._context.aside(read_machine)
            except Exception:
                log.exception("the machine's figures could not be read")
            else:
                for listener in list(self._listeners):
                    listener(self._latest)
            await asyncio.sleep(INTERVAL_S)

"""What the routes share: the engine, the settings, the register of requests and the pools for work that blocks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from typing import TypeVar

from engine.engine import Engine
from server.aliases import AliasDesk, Aliases
from server.config import ServerSettings
from server.in_flight import Exchanges, current_exchange
from server.metrics import Metrics

T = TypeVar("T")

DISTRIBUTION = "millm-desktop"
QUICK_THREADS = 4
LOAD_THREADS = 64
MANAGEMENT_THREADS = 8
PREPARING_THREADS = 16


class ServerContext:
    """Shared by the routes of one app; owned by whoever made the app.

    Look-ups, what makes tokens of requests, loads and downloads, and changes to what steers have pools of their own, so
    that none holds up another. An answer that waits for its model takes no thread.
    """

    def __init__(
        self, engine: Engine, settings: ServerSettings, exchanges: Exchanges, aliases: AliasDesk | None = None
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.exchanges = exchanges
        self._aliases = AliasDesk(settings.MODEL_ALIASES) if aliases is None else aliases
        self.started = time.monotonic()
        self.metrics = Metrics(engine, version())
        exchanges.on_end(self.metrics.answered)
        self._quick = ThreadPoolExecutor(QUICK_THREADS, thread_name_prefix="server-quick")
        self._loads = ThreadPoolExecutor(LOAD_THREADS, thread_name_prefix="server-load")
        # A template that does not end, or megabytes of text, must not keep the server's own reports waiting.
        self._preparing = ThreadPoolExecutor(PREPARING_THREADS, thread_name_prefix="server-preparing")
        self._changes = ThreadPoolExecutor(MANAGEMENT_THREADS, thread_name_prefix="server-management")

    @property
    def aliases(self) -> Aliases:
        """Other names of models, as they are now."""
        return self._aliases.now

    async def quick(self, call: Callable[[], T]) -> T:
        """Run ``call`` (milliseconds) off the loop, for the current request."""
        return await current_exchange().wait_for(asyncio.get_running_loop().run_in_executor(self._quick, call))

    async def prepare(self, call: Callable[[], T]) -> T:
        """Run ``call``, which makes tokens of what the current request holds, off the loop.

        Milliseconds as a rule; as long as a chat template or a text as long as the window may take.
        """
        return await current_exchange().wait_for(asyncio.get_running_loop().run_in_executor(self._preparing, call))

    async def aside(self, call: Callable[[], T]) -> T:
        """Run ``call`` off the loop for no request in particular."""
        return await asyncio.get_running_loop().run_in_executor(self._quick, call)

    async def load(self, call: Callable[[], T]) -> T:
        """Run ``call`` (up to minutes) off the loop, for the current request. It goes on when the client leaves."""
        return await current_exchange().wait_for(asyncio.get_running_loop().run_in_executor(self._loads, call))

    async def manage(self, call: Callable[[], T]) -> T:
        """Run ``call`` (a change that may wait for others, up to minutes) off the loop, for the current request.

        Once begun it goes on when the client leaves.
        """
        return await current_exchange().wait_for(asyncio.get_running_loop().run_in_executor(self._changes, call))

    def close(self) -> None:
        """Let the pools end; work under way is not waited for."""
        self.metrics.close()
        self._quick.shutdown(wait=False, cancel_futures=True)
        self._loads.shutdown(wait=False, cancel_futures=True)
        self._preparing.shutdown(wait=False, cancel_futures=True)
        self._changes.shutdown(wait=False, cancel_futures=True)


def version() -> str:
    """The program's version; ``unrecorded`` when it runs from a tree that was not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unrecorded"

"""Who wants to hear how requests go, beside their owners: for figures about the whole program.

No text and no token ever comes this way, only counts and seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, Literal, Protocol

from engine.errors import MillmError
from engine.generation.request import Delta, RequestFailed, RequestFinished, TextDelta, Usage

log = logging.getLogger(__name__)

Work = Literal["generation", "scoring", "embeddings"]
"""What a request asked for."""


class RequestObserver(Protocol):
    """Hears about every request of every face, mostly on the engine thread; must return at once."""

    def tokens_written(self, count: int) -> None:
        """``count`` more tokens were written."""

    def finished(self, work: Work, usage: Usage, queued_s: float, first_token_s: float | None, total_s: float) -> None:
        """A request ended well. ``first_token_s`` counts from its submission; None where nothing is written."""

    def failed(self, work: Work, code: str) -> None:
        """A request ended with the error ``code``."""


class RequestObservers:
    """The list of them. Adding and removing are thread-safe, as is watching."""

    def __init__(self) -> None:
        self._observers: tuple[RequestObserver, ...] = ()

    def add(self, observer: RequestObserver) -> Callable[[], None]:
        """Tell ``observer`` from now on; the function returned ends that."""
        self._observers = (*self._observers, observer)

        def remove() -> None:
            self._observers = tuple(each for each in self._observers if each is not observer)

        return remove

    def watch(self, sink: Callable[[Delta], None]) -> Callable[[Delta], None]:
        """``sink``, with the observers told of what passes through it."""
        if not self._observers:
            return sink
        written: dict[int, int] = {}

        def watched(delta: Delta) -> None:
            # The reader comes first: it waits for its text.
            sink(delta)
            if isinstance(delta, TextDelta):
                new = delta.completion_tokens - written.get(delta.index, 0)
                written[delta.index] = delta.completion_tokens
                self._tell(lambda each: each.tokens_written(new))
            elif isinstance(delta, RequestFinished):
                # Tokens that showed nothing, and choices that lost against others.
                rest = delta.usage.completion_tokens - sum(written.values())
                self._tell(lambda each: each.tokens_written(rest))
                self._tell(
                    lambda each: each.finished(
                        "generation",
                        delta.usage,
                        delta.seconds_queued,
                        delta.seconds_to_first_token,
                        delta.seconds_total,
                    )
                )
            elif isinstance(delta, RequestFailed):
                code = delta.error.code
                self._tell(lambda each: each.failed("generation", code))

        return watched

    def watch_reading(self, future: Future[Any], work: Work) -> None:
        """Tell the observers how a reading ends. Its result has ``usage`` and ``figures``."""
        if not self._observers:
            return
        began = time.monotonic()

        def ended(done: Future[Any]) -> None:
            try:
                result = done.result()
            except CancelledError:
                self._tell(lambda each: each.failed(work, "request_cancelled"))
            except MillmError as error:
                code = error.code
                self._tell(lambda each: each.failed(work, code))
            else:
                total = time.monotonic() - began
                queued = result.figures.seconds_queued
                self._tell(lambda each: each.finished(work, result.usage, queued, None, total))

        future.add_done_callback(ended)

    def _tell(self, call: Callable[[RequestObserver], None]) -> None:
        for observer in self._observers:
            try:
                call(observer)
            except Exception:
                log.exception("an observer of requests failed")

"""What lanes take from the prefix cache and leave in it.

A lane begins with a copy of the longest beginning that was read before under its plan; when its prompt is read, and
again when its answer is written, it leaves a copy for the next turn. What was read under a plan that changed midway is
nobody's past and is never kept. Requests that promise the same bytes again or ask for activations read everything
themselves.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from engine.config import EngineSettings
from engine.counting import MB
from engine.errors import InsufficientMemory
from engine.generation.lane import Lane
from engine.generation.prefix_cache import PrefixCache
from engine.steering.plan import SteeringPlan

if TYPE_CHECKING:
    from engine.models.backends.backend import Backend, KVStore

log = logging.getLogger(__name__)


class PastReuse:
    """The prefix cache in the hands of the scheduler. Engine thread only."""

    def __init__(self, settings: EngineSettings) -> None:
        self.cache = PrefixCache(settings.PREFIX_CACHE_MB * MB)

    def begin(self, lane: Lane, backend: Backend, live: SteeringPlan) -> None:
        """Give ``lane`` its store: with what can be taken over, or empty."""
        if lane.may_share_past and self.cache.enabled:
            match = self.cache.longest(lane.prompt_ids, lane.plan_now(live).digest)
            if match is not None:
                taken = self._fork(backend, match.prefix.store, 0, match.length)
                if taken is not None:
                    lane.take_past(taken, match.length, match.prefix.digest)
                    return
        lane.store = backend.new_store(
            # It promises the same numbers whoever else is being answered.
            alone=not lane.may_share_past,
            tokens=len(lane.prompt_ids) + lane.cap,
        )

    def keep_prompt(self, lane: Lane, backend: Backend, store: KVStore) -> None:
        """The prompt of ``lane`` is in the one row of ``store``: leave a copy."""
        self._keep(lane, lane.prompt_ids, backend, store, 0)

    def keep_answer(self, lane: Lane, backend: Backend, store: KVStore, row: int) -> None:
        """``lane`` has ended with its text in ``row`` of ``store``: leave a copy for the conversation's next turn.

        The last token was chosen and never fed, so it is not part of it.
        """
        self._keep(lane, (*lane.prompt_ids, *lane.written[:-1]), backend, store, row)

    def clear(self) -> None:
        """The model is leaving, or memory is short."""
        self.cache.clear()

    def _keep(self, lane: Lane, token_ids: tuple[int, ...], backend: Backend, store: KVStore, row: int) -> None:
        digest = lane.read_under
        if digest is None or not lane.may_share_past or not self.cache.wants(token_ids, digest):
            return
        if store.lengths[row] != len(token_ids):
            log.error("a row holds %d tokens where %d were expected", store.lengths[row], len(token_ids))
            return
        copy = self._fork(backend, store, row, len(token_ids))
        if copy is not None:
            self.cache.put(token_ids, digest, copy)

    def _fork(self, backend: Backend, store: KVStore, row: int, length: int) -> KVStore | None:
        try:
            return backend.fork(store, row, length)
        except InsufficientMemory:
            # What is kept for later must not cost what is wanted now.
            log.warning("no memory for a copy of %d tokens; the prefix cache is emptied", length)
            self.clear()
            return None

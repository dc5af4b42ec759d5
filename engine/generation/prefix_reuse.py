"""What lanes take from the prefix cache and leave in it.

A lane begins with a copy of the longest beginning that was read before under its plan; when its prompt is read, and
again when its answer is written, it leaves a copy for the next turn. What was read under a plan that changed midway is
nobody's past and is never kept. Requests that promise the same bytes again or ask for activations read everything
themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from engine.checked import there
from engine.config import EngineSettings
from engine.counting import MB
from engine.errors import InsufficientMemory
from engine.generation.lane import Lane
from engine.generation.prefix_cache import PrefixCache, as_tokens, shared_length
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

    def begin_scored(self, lane: Lane, backend: Backend, live: SteeringPlan) -> None:
        """As :meth:`begin`, for a lane whose prompt's tokens are reported; also where its reading pauses.

        It goes on from what another prompt has read up to one of its pauses, if that was in the same passes and what it
        found on the way is kept too. Such passes share nothing with others, so a store of its own stands alone.
        """
        digest = lane.plan_now(live).digest
        pausing = lane.fed == 0 or (lane.fed in lane.pauses and lane.read_under == digest)
        for length in reversed([each for each in lane.pauses if each > lane.fed]) if pausing else ():
            match = self.cache.longest(lane.prompt_ids[: length + 1], _passes_of(lane, length, digest))
            if match is None or match.length < length or match.prefix.scores is None or not lane.may_share_past:
                continue
            taken = self._fork(backend, match.prefix.store, 0, length)
            if taken is not None:
                lane.take_past(taken, length, digest)
                there(lane.scores).take_over(match.prefix.scores)
                return
        if lane.store is None and not self._take_left(lane, backend, digest):
            lane.store = backend.new_store(alone=True, tokens=lane.running.longest)

    def leave_scored(self, lane: Lane, backend: Backend, store: KVStore) -> None:
        """The prompt of ``lane`` is read, and its answer goes on in a copy: where stores cannot be copied for others,
        the next prompt that begins like it goes on in this one.
        """
        if backend.capabilities.cuts_lone and lane.pauses and not lane.solo and lane.may_share_past:
            lane.running.left = lane, store

    def _take_left(self, lane: Lane, backend: Backend, digest: str) -> bool:
        """Have ``lane`` go on where its prompt parts from the one read last, in that one's store."""
        if lane.running.left is None or not self.cache.enabled or not lane.may_share_past:
            return False
        last, store = lane.running.left
        length = _last_common_pause(lane, last)
        if not length or last.read_under != digest:
            return False
        lane.running.left = None
        backend.cut(store, length)
        lane.take_past(store, length, digest)
        there(lane.scores).take_over(there(last.scores).so_far.until(length))
        return True

    def keep_scored(self, lane: Lane, backend: Backend, store: KVStore) -> None:
        """The reading of ``lane`` pauses: leave a copy, with what was found, for others that go on from there."""
        if lane.read_under is None or not lane.may_share_past:
            return
        token_ids, digest = lane.prompt_ids[: lane.fed], _passes_of(lane, lane.fed, lane.read_under)
        if self.cache.wants(token_ids, digest):
            copy = self._fork(backend, store, 0, lane.fed)
            if copy is not None:
                self.cache.put(token_ids, digest, copy, there(lane.scores).so_far)

    def is_read_for(self, lane: Lane, reading: Iterable[Lane], backend: Backend) -> bool:
        """Whether one of ``reading`` is further on the way to a pause that ``lane`` has too, and will leave a copy
        there. Where stores that stand alone cannot be copied they are large as well, so one prompt is read after
        another.
        """
        if not backend.capabilities.copies_lone:
            return lane.scores is not None and not lane.fed and any(each.fed and each.scores for each in reading)
        pausing = lane.fed == 0 or lane.fed in lane.pauses
        if not lane.pauses or not pausing or not lane.may_share_past or not self.cache.enabled:
            return False
        return any(
            lane.fed < other.fed and other.running is lane.running and other.fed < _last_common_pause(lane, other)
            for other in reading
        )

    @staticmethod
    def goes_on(lane: Lane) -> bool:
        """Whether ``lane`` would go on where its prompt parts from the one its request has read last."""
        left = lane.running.left
        return left is not None and not lane.fed and _last_common_pause(lane, left[0]) > 0

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


def _last_common_pause(lane: Lane, other: Lane) -> int:
    """How far the reading of two prompts of one request goes by the same passes; 0: nowhere."""
    common = shared_length(as_tokens(lane.prompt_ids), as_tokens(other.prompt_ids))
    return max((each for each in lane.pauses if each < common and each in other.pauses), default=0)


def _passes_of(lane: Lane, length: int, digest: str) -> str:
    """What the first ``length`` tokens of a scored prompt were read under, in which passes and for what: where any of
    it differs, so may the last bit. The token that follows is in it, since how likely that is was found too.
    """
    pauses = [each for each in lane.pauses if each <= length]
    return f"scored:{digest}:{there(lane.scores).k}:{pauses}:{lane.prompt_ids[length]}"

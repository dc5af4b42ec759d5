"""Reading prompts: chunk by chunk, in turns, the shortest every other time, and short ones together.

A chunk is small (``PREFILL_CHUNK`` tokens), so that answers being written lose little time between two of their tokens
and a client that leaves is noticed soon. Short prompts that wait at the same moment are read in one pass, padded at
the end, as long as that pass is no larger than a chunk: the weights are then fetched once for all of them.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.checked import there
from engine.config import EngineSettings
from engine.generation.interventions import PassComposer
from engine.generation.lane import Lane, PrefilledPrompt
from engine.generation.pace import PaceKeeper
from engine.generation.prefix_reuse import PastReuse
from engine.generation.prompt_scores import MOST_LOGITS, PromptScores
from engine.steering.plan import SteeringPlan

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.backends.backend import Backend

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadPrompt:
    """What a step has made of a lane: its prompt's past, or the error that ended it."""

    lane: Lane
    past: PrefilledPrompt | None
    error: Exception | None = None


class Prefill:
    """The lanes whose prompts are being read. Engine thread only."""

    def __init__(self, settings: EngineSettings, passes: PassComposer, reuse: PastReuse, pace: PaceKeeper) -> None:
        self._settings = settings
        self._pace = pace
        self._passes = passes
        self._reuse = reuse
        self._lanes: deque[Lane] = deque()
        self._shortest_first = False

    def __len__(self) -> int:
        return len(self._lanes)

    def add(self, lane: Lane) -> None:
        """Have its prompt read, behind the others'."""
        self._lanes.append(lane)

    def discard(self, lane: Lane) -> None:
        """Its request has ended."""
        if lane in self._lanes:
            self._lanes.remove(lane)

    def step(self, backend: Backend, live: SteeringPlan) -> list[ReadPrompt]:
        """One pass: the next chunk of one prompt, or several short prompts whole. Returns the lanes that are done."""
        first = self._next(backend)
        group = [first]
        try:
            self._begin(first, backend, live)
            if self._may_be_read_together(first, backend):
                group += self._companions(first, backend, live)
            if len(group) > 1:
                return self._read_together(group, backend)
            return self._read_chunk(first, backend)
        except Exception as error:
            if len(group) > 1:
                log.warning("reading %d prompts in one pass failed; each is read alone", len(group), exc_info=error)
                return [done for lane in group for done in self._read_alone(lane, backend, live)]
            self.discard(first)
            return [ReadPrompt(first, None, error)]

    def _read_alone(self, lane: Lane, backend: Backend, live: SteeringPlan) -> list[ReadPrompt]:
        """Read the next chunk of a prompt from its beginning; what fails there is its own fault."""
        lane.store, lane.fed = None, 0
        try:
            self._begin(lane, backend, live)
            return self._read_chunk(lane, backend)
        except Exception as error:
            return [ReadPrompt(lane, None, error)]

    def _next(self, backend: Backend) -> Lane:
        """Whose turn it is: by turns the one with least left to read, and the one that has waited longest.

        So a short prompt waits for one chunk of the long ones, however many there are, and a long one for no more than
        every other pass.
        """
        self._shortest_first = not self._shortest_first
        # Who would read what another is reading waits for its copy.
        lanes = [each for each in self._lanes if not self._reuse.is_read_for(each, self._lanes, backend)]
        lane = lanes[0]
        if self._shortest_first:
            lane = min(lanes, key=lambda each: len(each.prompt_ids) - each.fed)
        if lane.running.left is not None:
            # Whoever can go on where its last prompt ended does so before that is lost.
            lane = next((each for each in lanes if each.running is lane.running and self._reuse.goes_on(each)), lane)
        self._lanes.remove(lane)
        return lane

    def _begin(self, lane: Lane, backend: Backend, live: SteeringPlan) -> None:
        if lane.scores is not None:
            self._reuse.begin_scored(lane, backend, live)
        elif lane.store is None:
            self._reuse.begin(lane, backend, live)

    def _may_be_read_together(self, lane: Lane, backend: Backend) -> bool:
        """A solo lane promises the same bytes again, which padding may change; who reads along sees one row; and where
        the prompt's tokens are reported, all of its logits are wanted.
        """
        return (
            backend.capabilities.reads_together
            and not lane.solo
            and lane.scores is None
            and lane.fed == 0
            and len(lane.prompt_ids) <= self._settings.PREFILL_CHUNK
            and not self._passes.is_watched(lane)
        )

    def _companions(self, first: Lane, backend: Backend, live: SteeringPlan) -> list[Lane]:
        """Others that fit into the pass beside ``first``; they leave the line."""
        found: list[Lane] = []
        longest = len(first.prompt_ids)
        for lane in list(self._lanes):
            width = max(longest, len(lane.prompt_ids))
            if lane.scores is not None:
                continue
            if width * (len(found) + 2) > self._settings.PREFILL_CHUNK:
                continue
            try:
                self._begin(lane, backend, live)
            except Exception:
                continue  # it is told when its turn comes
            if not self._may_be_read_together(lane, backend):
                continue
            longest = width
            found.append(lane)
            self._lanes.remove(lane)
        return found

    def _read_chunk(self, lane: Lane, backend: Backend) -> list[ReadPrompt]:
        store = there(lane.store)
        size = self._settings.PREFILL_CHUNK if backend.capabilities.chunks else len(lane.prompt_ids)
        if lane.scores is not None:
            return self._read_scored(lane, lane.scores, size, backend)
        chunk = lane.prompt_ids[lane.fed : lane.fed + size]
        logits = backend.extend(store, chunk, self._passes.one_row(lane, chunk))
        return self._after_chunk(lane, len(chunk), logits, backend)

    def _read_scored(self, lane: Lane, scores: PromptScores, size: int, backend: Backend) -> list[ReadPrompt]:
        """The next chunk of a prompt whose tokens are reported: no further than its next pause."""
        store = there(lane.store)
        size = min(size, max(1, MOST_LOGITS // backend.info.vocab_size)) if backend.capabilities.all_logits else 1
        pause = next((each for each in lane.pauses if each > lane.fed), len(lane.prompt_ids))
        chunk = lane.prompt_ids[lane.fed : min(lane.fed + size, pause)]
        work = self._passes.one_row(lane, chunk)
        if backend.capabilities.all_logits:
            rows = backend.extend_all(store, chunk, work)
        else:
            rows = backend.extend(store, chunk, work)[None]
        scores.read(lane.fed, rows)
        # A copy: a view would keep all of them.
        read = self._after_chunk(lane, len(chunk), rows[-1].clone(), backend)
        if lane.fed in lane.pauses:
            self._reuse.keep_scored(lane, backend, store)
        return read

    def _after_chunk(self, lane: Lane, tokens: int, logits: Tensor, backend: Backend) -> list[ReadPrompt]:
        lane.fed += tokens
        self._pace.prefilled(tokens, 1)
        if lane.fed < len(lane.prompt_ids):
            self._lanes.append(lane)
            return []
        return [self._done(lane, logits, backend)]

    def _read_together(self, lanes: list[Lane], backend: Backend) -> list[ReadPrompt]:
        prompts = [lane.prompt_ids for lane in lanes]
        stores, logits = backend.read_together(prompts, self._passes.prompts(lanes))
        self._pace.prefilled(sum(map(len, prompts)), len(prompts))
        done = []
        for lane, store, row in zip(lanes, stores, logits, strict=True):
            lane.store, lane.fed = store, len(lane.prompt_ids)
            done.append(self._done(lane, row, backend))
        return done

    def _done(self, lane: Lane, logits: Tensor, backend: Backend) -> ReadPrompt:
        store = there(lane.store)
        siblings = lane.running.choices_left(lane.prompt) if backend.capabilities.batching else 0
        if lane.scores is None:
            # Who asks how likely a text is does not go on with it.
            self._reuse.keep_prompt(lane, backend, store)
        elif not siblings:
            self._reuse.leave_scored(lane, backend, store)
        repeated = lane.prompt_repeated()
        past = PrefilledPrompt(store, logits, 1 + siblings, lane.read_under, lane.path, repeated)
        lane.store = None
        lane.running.reading.discard(lane.prompt)
        if siblings:
            lane.running.pasts[lane.prompt] = past
        return ReadPrompt(lane, past)

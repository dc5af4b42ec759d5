"""Requests that are compared with each other: what differs between two of them is the steering's doing, to the letter.

Two rows that read the same tokens under the same vectors have the same logits by definition; what differs is
rounding: one began with a copy from the prefix cache, was read in other chunks, or lies elsewhere in the pass, and in
bfloat16 that is enough to turn a word. So of requests that share a ``noise_seed`` and differ in nothing but their
steering, those that add the same choose from one row of logits, the first one's, for as long as they add the same. Each
still has a row of its own, so that one of them can go its own way at any token, and whoever reads along sees each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.generation.lane import Lane, PrefilledPrompt, RunningRequest
from engine.steering.request import FOLLOW_LIVE

if TYPE_CHECKING:
    from engine.generation.prefill_job import PrefillJob
    from engine.steering.desk import SteeringDesk


class Comparing:
    """The lanes that choose from another's logits. Engine thread only."""

    def __init__(self, desk: SteeringDesk) -> None:
        self._desk = desk
        self._held: dict[Lane, PrefilledPrompt] = {}

    def sides_of(
        self, running: RunningRequest, others: Iterable[RunningRequest | PrefillJob[Any]]
    ) -> list[RunningRequest]:
        """Those of ``others`` that would have the same row as ``running``, if both began now."""
        if running.prepared.solo or running.prepared.request.noise_seed is None:
            return []
        return [
            other
            for other in others
            if isinstance(other, RunningRequest)
            and not other.cancelled
            and self._digest(other) == self._digest(running)
            and _differ_in_steering_only(running, other)
        ]

    def link(self, lane: Lane, lanes: Sequence[Lane]) -> None:
        """``lane`` begins beside ``lanes``: from now on it, and those it is compared with, choose from one row.

        Not where one of them has begun to write: its first tokens are chosen.
        """
        begun = [each for each in lanes if each.count == 0]
        sides = self.sides_of(lane.running, [each.running for each in begun])
        peers = [each for each in begun if each.running in sides]
        if not peers:
            return
        # Whose steering is its own goes ahead: it stays as it is when the live one moves.
        ahead = next((each for each in (*peers, lane) if each.running.prepared.steering.plan is not None), peers[0])
        for each in (*peers, lane):
            each.follows = None if each is ahead else ahead

    @staticmethod
    def is_followed(lane: Lane, lanes: Iterable[Lane]) -> bool:
        """Whether others choose from its logits."""
        return any(each.follows is lane for each in lanes)

    def hold(self, lane: Lane, past: PrefilledPrompt) -> None:
        """The prompt of ``lane`` is read; it begins to write when those it is compared with can."""
        self._held[lane] = past

    def drop(self, lane: Lane) -> None:
        """``lane`` has ended, wherever it was."""
        self._held.pop(lane, None)

    def ready(self, lanes: Sequence[Lane]) -> list[tuple[Lane, PrefilledPrompt]]:
        """Held lanes that can begin now, those that go ahead first."""
        found: list[tuple[Lane, PrefilledPrompt]] = []
        for lane in sorted(self._held, key=lambda each: each.follows is not None):
            ahead = lane.follows or lane
            group = [each for each in lanes if each is ahead or each.follows is ahead]
            if any(each.count == 0 and each not in self._held for each in group):
                continue
            past = self._held[lane]
            if ahead is not lane and ahead in self._held and _same(lane.read_under, ahead.read_under):
                past.logits = self._held[ahead].logits
            found.append((lane, past))
        for lane, _past in found:
            del self._held[lane]
        return found

    @staticmethod
    def rows_read(lanes: Sequence[Lane]) -> list[int]:
        """For each of ``lanes``, rows of a pass that was just made, the row whose logits it chooses from."""
        places = {lane: row for row, lane in enumerate(lanes)}
        rows = list(range(len(lanes)))
        for row, lane in enumerate(lanes):
            ahead = lane.follows
            if ahead in places and lane.count == ahead.count and _same(lane.read_under, ahead.read_under):
                rows[row] = places[ahead]
        return rows

    def _digest(self, running: RunningRequest) -> str:
        own = running.prepared.steering.plan
        return (self._desk.live_plan if own is None else own).digest


def _differ_in_steering_only(one: RunningRequest, other: RunningRequest) -> bool:
    mine, theirs = one.prepared, other.prepared
    return (
        mine.loaded is theirs.loaded
        and mine.prompts == theirs.prompts
        and mine.caps == theirs.caps
        and mine.solo == theirs.solo
        and len(mine.prompts) == mine.request.choices_written == 1
        and replace(mine.request, steering=FOLLOW_LIVE, request_id="")
        == replace(theirs.request, steering=FOLLOW_LIVE, request_id="")
    )


def _same(mine: str | None, theirs: str | None) -> bool:
    """Whether all of two rows was read under one plan. None: under several."""
    return mine is not None and mine == theirs

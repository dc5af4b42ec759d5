"""What a pass carries: the deltas of its rows and who reads along.

Rows of one batch may have plans of their own. Their vectors are stacked per layer and kept until a row's plan
changes, so that a steered step costs one addition per layer and nothing else.

A pass over all rows that fails is made again row by row, to find out whose fault it was. It has added nothing to its
rows that counts: their lengths from before say what is theirs. So each row goes on from a copy of that, in a pass of
its own, and those that can are put together again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.generation.lane import Lane
from engine.monitor.live import LiveMonitor
from engine.monitor.rows import NO_OBSERVERS, Observers, RowInfo
from engine.steering.desk import SteeringDesk
from engine.steering.plan import SteeringPlan

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.backends.backend import Backend, KVStore
    from engine.models.backends.residual import Intervention


class PassComposer:
    """Makes the work of each pass. Engine thread only."""

    def __init__(self, desk: SteeringDesk, monitor: LiveMonitor, *, steer_first: bool) -> None:
        self._desk = desk
        self._monitor = monitor
        self._steer_first = steer_first
        self._stacked_for: tuple[SteeringPlan, ...] = ()
        self._stacked: Mapping[int, Tensor] = {}

    def one_row(self, lane: Lane, token_ids: Sequence[int]) -> Intervention | None:
        """The work of a pass that feeds ``token_ids`` to one lane's own store: a prefill chunk or a solo token."""
        plan = lane.use_plan(self._desk.live_plan)
        observers: Observers = NO_OBSERVERS
        if self._monitor.watching or lane.capture is not None:
            row = [self._row(lane, token_ids)]
            observers = self._monitor.observers(row)
            if lane.capture is not None:
                observers = _merged(observers, lane.capture.observers(row))
        if plan.is_empty and not observers:
            return None
        from engine.models.backends.residual import Intervention

        deltas = {layer: delta[None] for layer, delta in plan.deltas.items()}
        exempt = 1 if lane.position == 0 and not self._steer_first else 0
        return Intervention(deltas, exempt, observers)

    def is_watched(self, lane: Lane) -> bool:
        """Whether anybody reads its activations along."""
        return self._monitor.watching or lane.capture is not None

    def prompts(self, lanes: Sequence[Lane]) -> Intervention | None:
        """The work of a pass that reads whole prompts of several lanes from their first positions; nobody watches."""
        live = self._desk.live_plan
        plans = tuple(lane.use_plan(live) for lane in lanes)
        if all(plan.is_empty for plan in plans):
            return None
        from engine.models.backends.residual import Intervention

        return Intervention(_stacked(plans), 0 if self._steer_first else 1)

    def batch(self, lanes: Sequence[Lane]) -> Intervention | None:
        """The work of a decode pass over ``lanes``, row by row. Every row is past its first position."""
        live = self._desk.live_plan
        plans = tuple(lane.use_plan(live) for lane in lanes)
        observers: Observers = NO_OBSERVERS
        if self._monitor.watching:
            observers = self._monitor.observers([self._row(lane, (lane.next_token,)) for lane in lanes])
        if not observers and all(plan.is_empty for plan in plans):
            return None
        from engine.models.backends.residual import Intervention

        return Intervention(self._stack(plans), 0, observers)

    def forget(self) -> None:
        """Let go of stacked vectors; used when the rows are gone."""
        self._stacked_for, self._stacked = (), {}

    def _stack(self, plans: tuple[SteeringPlan, ...]) -> Mapping[int, Tensor]:
        same = len(plans) == len(self._stacked_for) and all(
            mine is theirs for mine, theirs in zip(plans, self._stacked_for, strict=True)
        )
        if not same:
            self._stacked_for, self._stacked = plans, _stacked(plans)
        return self._stacked

    @staticmethod
    def _row(lane: Lane, token_ids: Sequence[int]) -> RowInfo:
        return RowInfo(
            lane.running.prepared.request.request_id,
            lane.position,
            tuple(token_ids),
            choice=lane.index,
            prompt_tokens=len(lane.prompt_ids),
        )


def _stacked(plans: tuple[SteeringPlan, ...]) -> Mapping[int, Tensor]:
    """Layer → ``[rows, d_model]``; rows whose plan adds nothing there are zero."""
    import torch

    stacked: dict[int, Tensor] = {}
    for layer in sorted({layer for plan in plans for layer in plan.deltas}):
        zero = torch.zeros_like(next(plan.deltas[layer] for plan in plans if layer in plan.deltas))
        stacked[layer] = torch.stack([plan.deltas.get(layer, zero) for plan in plans])
    return stacked


def _merged(first: Observers, second: Observers) -> Observers:
    return {layer: (*first.get(layer, ()), *second.get(layer, ())) for layer in {*first, *second}}


log = logging.getLogger(__name__)


@dataclass(eq=False)
class Apart:
    """What came of it.

    Attributes:
        batch: The rows that went well, in the order of ``logits``.
        logits: float32 ``[vocab]`` of each of them.
        errors: Why the others did not.
    """

    batch: KVStore
    logits: dict[Lane, Tensor] = field(default_factory=dict)
    errors: dict[Lane, Exception] = field(default_factory=dict)


def decode_apart(
    backend: Backend,
    batch: KVStore,
    lanes: Sequence[Lane],
    lengths: Sequence[int],
    passes: PassComposer,
    error: Exception,
) -> Apart:
    """Feed each lane's next token to a copy of its row of ``batch``, the first ``lengths[row]`` tokens of it.

    ``error`` is how the pass over all of them ended; a row that cannot be copied ends so too.
    """
    log.warning("a pass over %d rows failed; it is made again row by row", len(lanes), exc_info=error)
    found = Apart(backend.new_batch())
    for row, lane in enumerate(lanes):
        try:
            store = backend.fork(batch, row, lengths[row])
            if store is None:
                raise error
            alone = backend.new_batch()
            backend.join(alone, store)
            (logits,) = backend.decode(alone, [lane.next_token], passes.batch([lane]))
            backend.join(found.batch, alone)
            found.logits[lane] = logits
        except Exception as its_own:
            found.errors[lane] = its_own
    return found

"""What a pass carries: the deltas of its rows and who reads along.

Rows of one batch may have plans of their own. Their vectors are stacked per layer and kept until a row's plan
changes, so that a steered step costs one addition per layer and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from engine.generation.lane import Lane
from engine.monitor.live import LiveMonitor
from engine.monitor.rows import NO_OBSERVERS, Observers, RowInfo
from engine.steering.desk import SteeringDesk
from engine.steering.plan import SteeringPlan

if TYPE_CHECKING:
    from torch import Tensor

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

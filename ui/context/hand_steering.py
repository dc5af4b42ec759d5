"""Steering by hand from the window: changes go to the engine one after the other and can be undone. No widgets.

A dial that is turned makes more values than the engine needs: of those that wait, only the latest of a feature is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal

from engine.engine import Engine
from engine.public.steering import AttachmentKey, Entry, LiveState, restore
from ui.bridge import Bridge
from ui.kit.steering_text import can_steer

MOST_STEPS = 100
"""Steps that can be undone."""


@dataclass(frozen=True)
class _Step:
    """What a change replaced. It holds as long as the same SAEs, profile and circuits are in force."""

    gesture: object | None
    frame: tuple[object, ...]
    before: Mapping[AttachmentKey, Entry]


class LiveHand(QObject):
    """One queue of changes for the whole window. All methods are for the GUI thread."""

    settled = Signal()
    """A change is done, or was refused."""
    failed = Signal(object, object)
    """(place or None, the error)."""

    def __init__(self, engine: Engine, bridge: Bridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._bridge = bridge
        self._waiting: dict[object, tuple[AttachmentKey | None, Callable[[], object]]] = {}
        self._running: object | None = None
        # Touched by the change that runs, one at a time, so it needs no lock.
        self._steps: list[_Step] = []
        self._paused: tuple[AttachmentKey, ...] = ()

    def set_value(self, place: AttachmentKey, index: int, value: float, gesture: object | None = None) -> None:
        """Set one strength; changes with the same ``gesture`` are undone together."""
        hand = self._engine.hand_steering
        self._put(
            (place, index),
            place,
            lambda: hand.set_value(index, value, sae_id=place[0], layer=place[1]),
            gesture=gesture,
        )

    def set_values(self, place: AttachmentKey, values: Mapping[int, float | None]) -> None:
        """Set several strengths and keep the others; None is the strength a feature is first tried with."""
        hand, wanted = self._engine.hand_steering, dict(values)

        def change() -> None:
            filled = hand.with_first_strengths(*place, wanted)
            hand.set_values(filled, sae_id=place[0], layer=place[1])

        self._put(object(), place, change)

    def remove(self, place: AttachmentKey, index: int) -> None:
        """Take one feature out."""
        hand = self._engine.hand_steering
        self._put(object(), place, lambda: hand.remove_value(index, sae_id=place[0], layer=place[1]))

    def clear(self, place: AttachmentKey) -> None:
        """Take every value of a place out."""
        hand = self._engine.hand_steering
        self._put(object(), place, lambda: hand.clear(sae_id=place[0], layer=place[1]))

    def switch(self, place: AttachmentKey, on: bool) -> None:
        """Switch one place on or off, values kept."""
        hand = self._engine.hand_steering
        self._put(object(), place, lambda: hand.set_enabled(on, sae_id=place[0], layer=place[1]))

    def switch_all(self, on: bool) -> None:
        """Switch everything off, or on again what was switched off here (else every place with something set)."""
        hand, desk = self._engine.hand_steering, self._engine.desk

        def change() -> None:
            places = can_steer(desk.now)
            if on:
                wanted = [place for place in self._paused if place in places] or places
            else:
                wanted = [place for place in places if desk.state.entry(place).enabled]
                self._paused = tuple(wanted)
            with desk.changes():
                for sae_id, layer in wanted:
                    hand.set_enabled(on, sae_id=sae_id, layer=layer)

        self._put(object(), None, change)

    def undo(self) -> None:
        """Take the last change made here back."""
        steering, desk = self._engine.hand_steering, self._engine.desk

        def change() -> None:
            step = self._steps.pop() if self._steps else None
            with desk.changes() as draft:
                state = draft.state
                if step is not None and step.frame == _frame(state):
                    desk.apply(restore(replace(state, entries={**state.entries, **step.before})))

        self._enqueue(object(), None, lambda: steering.alone(change))

    @property
    def can_undo(self) -> bool:
        """Whether a change made here can be taken back: nothing else came into force since."""
        return bool(self._steps) and self._steps[-1].frame == _frame(self._engine.desk.state)

    @property
    def busy(self) -> bool:
        """Whether a change is under way or waits."""
        return self._running is not None or bool(self._waiting)

    def pending(self, place: AttachmentKey, index: int) -> bool:
        """Whether a newer strength of a feature is on its way to the engine."""
        return (place, index) in self._waiting or self._running == (place, index)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _put(
        self, key: object, place: AttachmentKey | None, change: Callable[[], object], *, gesture: object | None = None
    ) -> None:
        steering = self._engine.hand_steering

        def run() -> None:
            state, after = steering.alone(change)
            frame = _frame(state)
            before = _changed(state, after, [place] if place is not None else state.entries)
            merged = gesture is not None and bool(self._steps) and self._steps[-1].gesture is gesture
            if before and not merged:
                self._steps.append(_Step(gesture, frame, before))
                del self._steps[:-MOST_STEPS]

        self._enqueue(key, place, run)

    def _enqueue(self, key: object, place: AttachmentKey | None, run: Callable[[], object]) -> None:
        # Taken out first: a later value goes behind what was asked for in between.
        self._waiting.pop(key, None)
        self._waiting[key] = (place, run)
        self._pump()

    def _pump(self) -> None:
        if self._running is not None or not self._waiting:
            return
        key = next(iter(self._waiting))
        place, run = self._waiting.pop(key)
        self._running = key

        def ended() -> None:
            self._running = None
            self._pump()
            self.settled.emit()

        def refused(error: Exception) -> None:
            self.failed.emit(place, error)
            ended()

        self._bridge.run_in_background(run, lambda _nothing: ended(), refused, owner=self)


def _frame(state: LiveState) -> tuple[object, ...]:
    return (state.profile, state.circuits, state.attachments)


def _changed(before: LiveState, after: LiveState, places: Iterable[AttachmentKey]) -> dict[AttachmentKey, Entry]:
    return {place: before.entry(place) for place in places if before.entry(place) != after.entry(place)}

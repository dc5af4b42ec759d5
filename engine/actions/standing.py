"""What was attached to a model and chosen to steer it, kept for each model and put back when it is loaded again.

Kept while it changes, in the library's state; a model that leaves memory leaves what was kept as it was. What is put
back is set and switched off: nothing steers before a person says so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from engine.actions.saes.attachments import Attachments
from engine.actions.saes.steering import HandSteering
from engine.actions.steering.circuits import CircuitActions
from engine.actions.steering.profiles import ProfileActions
from engine.counting import plural
from engine.errors import MillmError
from engine.events import CircuitsChanged, Event, EventBus, ProfilesChanged, SaeAttached, SaeDetached, SteeringUpdated
from engine.library.database import Library
from engine.library.records import ModelRecord
from engine.models.registry import ModelShelf
from engine.steering import transitions
from engine.steering.desk import SteeringDesk
from engine.steering.live import AttachmentKey, LiveState

log = logging.getLogger(__name__)

SETTLE_SECONDS = 0.3
"""A dial that is turned makes many changes; what is kept is the last of them."""


@dataclass(frozen=True)
class KeptState:
    """What a model had: SAEs by place, hand-set values by place, and what was in force with its dial."""

    saes: tuple[AttachmentKey, ...] = ()
    values: tuple[tuple[AttachmentKey, dict[int, float]], ...] = ()
    profile: str | None = None
    circuits: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, state: LiveState) -> KeptState:
        """What ``state`` has, whether it is switched on or not."""
        profile = state.profile
        own = None if profile is None else profile.place
        return cls(
            tuple((each.sae_id, each.layer) for each in state.attachments),
            # The values of an active profile's place are the profile's.
            tuple(
                (place, dict(entry.values)) for place, entry in state.entries.items() if entry.values and place != own
            ),
            None if profile is None else profile.profile_id,
            tuple((each.circuit_id, each.intensity) for each in state.circuits),
        )

    def to_json(self, model: str) -> dict[str, Any]:
        """As the library keeps it."""
        return {
            "model": model,
            "saes": [list(place) for place in self.saes],
            "values": [[*place, {str(index): value for index, value in given.items()}] for place, given in self.values],
            "profile": self.profile,
            "circuits": [list(each) for each in self.circuits],
        }

    @classmethod
    def from_json(cls, value: Any, model: str) -> KeptState:
        """What :meth:`to_json` gave for that model; nothing where it cannot be read."""
        try:
            if value["model"] != model:
                return cls()
            profile = value["profile"]
            return cls(
                tuple((str(sae_id), int(layer)) for sae_id, layer in value["saes"]),
                tuple(
                    ((str(sae_id), int(layer)), {int(index): float(each) for index, each in given.items()})
                    for sae_id, layer, given in value["values"]
                ),
                None if profile is None else str(profile),
                tuple((str(circuit_id), float(intensity)) for circuit_id, intensity in value["circuits"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return cls()

    @property
    def layers(self) -> str:
        """The layers of the SAEs, in words."""
        layers = sorted({layer for _, layer in self.saes})
        return f"{plural(len(layers), 'layer')} {', '.join(map(str, layers))}"


@dataclass(frozen=True)
class PutBack:
    """What was put back, and what could not be, each in a sentence."""

    attached: tuple[AttachmentKey, ...] = ()
    steering: bool = False
    problems: tuple[str, ...] = field(default=())

    def in_words(self) -> str:
        """For a person; empty where there was nothing to put back."""
        said = []
        if self.attached:
            said.append(f"The SAEs of last time are attached again, on {KeptState(self.attached).layers}.")
        if self.steering:
            said.append("What steered is set and switched off.")
        return " ".join([*said, *self.problems])


class Standing:
    """Keeps what each model had. All methods may be called from any thread but the engine's."""

    def __init__(
        self,
        library: Library,
        desk: SteeringDesk,
        shelf: ModelShelf,
        events: EventBus,
        attachments: Attachments,
        hand: HandSteering,
        profiles: ProfileActions,
        circuits: CircuitActions,
    ) -> None:
        self._library = library
        self._desk = desk
        self._shelf = shelf
        self._attachments = attachments
        self._hand = hand
        self._profiles = profiles
        self._circuits = circuits
        self._condition = threading.Condition()
        self._waiting: dict[int, tuple[str, KeptState]] = {}
        self._writer: threading.Thread | None = None
        self._stopped = False
        events.subscribe(self._on_event, SaeAttached, SaeDetached, SteeringUpdated, ProfilesChanged, CircuitsChanged)

    def kept(self, record: ModelRecord) -> KeptState:
        """What that model had last. Reads the library."""
        with self._condition:
            waiting = self._waiting.get(record.id)
        if waiting is not None:
            return waiting[1]
        return KeptState.from_json(self._library.state.get(_key(record.id)), record.name)

    def to_put_back(self) -> KeptState:
        """What the resident model had and has not; nothing where something is attached. Reads the library."""
        resident = self._shelf.resident
        return KeptState() if resident is None or self._desk.state.attachments else self.kept(resident.record)

    def put_back(self) -> PutBack:
        """Attach what the resident model had and set what steered it, switched off; what is gone is left out and said.

        Does nothing where something is attached. Never raises for a part that cannot be put back. Reads files.
        """
        wanted = self.to_put_back()
        if not wanted.saes:
            return PutBack()
        problems: list[str] = []
        attached = self._attach(wanted.saes, problems)
        before = len(problems)
        steps = self._steps(wanted, attached)
        if steps:
            self._hand.alone(lambda: self._set(steps, problems))
        steering = bool(steps) and len(problems) - before < len(steps)
        for problem in problems:
            log.warning("%s", problem)
        return PutBack(attached, steering, tuple(problems))

    def stop(self) -> None:
        """Write what waits; for the end of the program, before the library is closed."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        if self._writer is not None:
            self._writer.join(1.0)

    # --- putting back -----------------------------------------------------------------------------------------------

    def _attach(self, places: Sequence[AttachmentKey], problems: list[str]) -> tuple[AttachmentKey, ...]:
        try:
            self._attachments.attach_set(places)
        except MillmError:
            # One that is gone does not keep the others away.
            for place in places:
                try:
                    self._attachments.attach_set([place])
                except MillmError as error:
                    problems.append(f"The SAE {place[0]!r} could not be attached again: {error.one_line()}")
        there = {(each.sae_id, each.layer) for each in self._desk.state.attachments}
        return tuple(place for place in places if place in there)

    def _steps(self, wanted: KeptState, attached: Sequence[AttachmentKey]) -> list[Callable[[], object]]:
        hand, profiles, circuits = self._hand, self._profiles, self._circuits
        steps: list[Callable[[], object]] = []
        if wanted.profile is not None:
            steps.append(partial(profiles.activate, wanted.profile))
        for circuit_id, intensity in wanted.circuits:
            # It was acknowledged when it was chosen, and it steers nothing yet.
            steps.append(partial(circuits.activate, circuit_id, acknowledge_unvalidated=True, intensity=intensity))
        for (sae_id, layer), values in wanted.values:
            if (sae_id, layer) in attached:
                steps.append(partial(hand.set_values, values, sae_id=sae_id, layer=layer))
        return steps

    def _set(self, steps: Sequence[Callable[[], object]], problems: list[str]) -> None:
        """As one change, so that nothing steers in between."""
        with self._desk.changes() as draft:
            for step in steps:
                try:
                    step()
                except MillmError as error:
                    problems.append(f"What steered could not be set again: {error.one_line()}")
            for place, entry in draft.state.entries.items():
                if entry.enabled:
                    self._desk.apply(transitions.set_enabled(place, False))

    # --- keeping ----------------------------------------------------------------------------------------------------

    def _on_event(self, _event: Event) -> None:
        state, resident = self._desk.state, self._shelf.resident
        # A model that goes takes its state along; what was kept stays.
        if resident is None or state.stream is None or state.stream.model_name != resident.record.name:
            return
        with self._condition:
            if self._stopped:
                return
            self._waiting[resident.record.id] = (resident.record.name, KeptState.of(state))
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="standing", daemon=True)
                self._writer.start()
            self._condition.notify_all()

    def _write(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: bool(self._waiting) or self._stopped)
                self._condition.wait_for(lambda: self._stopped, SETTLE_SECONDS)
                waiting = dict(self._waiting)
                stopped = self._stopped
            for model_id, (name, kept) in waiting.items():
                try:
                    self._library.state.set(_key(model_id), kept.to_json(name))
                except MillmError as error:
                    log.warning("what is attached to %s could not be kept for the next start: %s", name, error)
            with self._condition:
                for model_id, each in waiting.items():
                    if self._waiting.get(model_id) is each:
                        del self._waiting[model_id]
                if stopped:
                    return


def _key(model_id: int) -> str:
    return f"standing:{model_id}"

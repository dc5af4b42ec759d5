"""What every steering action is made of: one change of the desk and one transaction of the library that end together.

The order is fixed: the desk drafts the change, which checks it; the library commits; the draft is put in place, which
cannot fail. So a refusal or a full disk leaves both as they were, and a process that is killed in between comes back
with rows that say nothing is active, which is true.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from engine.actions.lock import SteeringLock
from engine.config import EngineSettings
from engine.documents.ranges import DialBounds
from engine.events import Event, EventBus
from engine.library.database import Library, LibraryStep
from engine.steering.desk import Draft, SteeringDesk
from engine.steering.stored import dial_bounds

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Change:
    """A change under way. Ask ``draft`` for the live state, and read and write rows through ``step`` alone."""

    desk: SteeringDesk
    draft: Draft
    step: LibraryStep
    bounds: DialBounds


class SteeringActions:
    """Base of the actions. All public methods of all actions may be called from any thread but the engine's."""

    def __init__(
        self,
        settings: EngineSettings,
        library: Library,
        desk: SteeringDesk,
        events: EventBus,
        lock: SteeringLock,
    ) -> None:
        self._settings = settings
        self._library = library
        self._desk = desk
        self._events = events
        self._lock = lock
        self._bounds = dial_bounds(settings)

    @contextmanager
    def _change(self) -> Iterator[Change]:
        """All of a change, or, when the block raises, nothing of it."""
        with self._lock, self._desk.changes() as draft, self._library.step() as step:
            yield Change(self._desk, draft, step, self._bounds)

    def _publish(self, *events: Event) -> None:
        for event in events:
            self._events.publish(event)


def each_alone(parts: Mapping[str, Callable[[], object]]) -> tuple[str, ...]:
    """Do every part, whatever becomes of the others; returns the names of those that failed, which are logged."""
    failed = []
    for name, part in parts.items():
        try:
            part()
        except Exception:
            log.exception("%s could not be released", name)
            failed.append(name)
    return tuple(failed)

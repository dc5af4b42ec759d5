"""The actions on SAEs over a real engine, and the few things every test here needs."""

from __future__ import annotations

from collections.abc import Callable

from engine.actions.lock import SteeringLock
from engine.actions.saes.attachments import Attachments
from engine.actions.saes.context import SaeContext
from engine.actions.saes.views import Viewer
from engine.engine import Engine
from engine.events import Event


def attachments_on(engine: Engine, on_detached: Callable[[str], None]) -> Attachments:
    """The attachments as the engine wires them, with an ear of the test's own."""
    return Attachments(context_of(engine), Viewer(context_of(engine), None), on_detached)


def context_of(engine: Engine) -> SaeContext:
    """What the actions of ``engine`` act on, with a lock of the test's own."""
    return SaeContext(
        engine.settings,
        engine.library,
        engine.desk,
        engine.monitor,
        engine.shelf,
        engine._scheduler,
        engine._thread,
        engine.events,
        SteeringLock(),
    )


def hearing(engine: Engine, *types: type[Event]) -> list[Event]:
    """A list that fills with the events of these types."""
    heard: list[Event] = []
    engine.events.subscribe(heard.append, *types)
    return heard


def locked(engine: Engine) -> list[str]:
    """The names of the locked models."""
    return [each.name for each in engine.library.models.list() if each.locked]


def attached(engine: Engine) -> list[tuple[str, int]]:
    """What is attached."""
    return [(each.sae_id, each.layer) for each in engine.desk.state.attachments]


def hooked(engine: Engine) -> set[int]:
    """Layers of the resident model with a hook, asked between two ticks."""
    resident = engine.shelf.resident
    assert resident is not None
    return set(engine._thread.run(lambda: resident.backend._hooks.layers).result(60))  # type: ignore[attr-defined]

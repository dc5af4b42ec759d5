"""The one installation of the demo model, as the window sees it: begun from any button, followed by all. No widgets."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from PySide6.QtCore import QObject, Signal, Slot

from engine.engine import Engine
from engine.errors import LoadCancelled, ModelBusy
from engine.events import Event, ModelLoadProgress
from engine.public.library import ModelRecord, ModelSource
from engine.public.models import can_run
from ui.bridge import Bridge, Inbox
from ui.context.services import AppServices, DemoFacts

log = logging.getLogger(__name__)

INSTALL_SHARE = 60.0
"""Percent of the way to a model that is ready at which it is installed; the rest is its load."""


_NEVER = datetime.min.replace(tzinfo=UTC)


def suggestion(records: list[ModelRecord]) -> ModelRecord | None:
    """The model to offer: the one used last, else the first that can be run here."""
    usable = [record for record in records if can_run(record.engine)]
    return max(usable, key=lambda record: record.last_used_at or _NEVER, default=None)


class DemoInstall(QObject):
    """Installs the demo model and its pack, then loads it and attaches its SAEs, so that it is ready to be steered.

    For the GUI thread. Whoever begins while it is under way has begun nothing: there is one state for every button.
    """

    changed = Signal()
    """It began, moved on, or ended."""
    ended = Signal(object)
    """The error it ended with, or None."""

    def __init__(self, services: AppServices, bridge: Bridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._services = services
        self._bridge = bridge
        self._inbox: Inbox | None = None
        self.running = False
        self.progress = 0.0
        """0–100, of the whole way; never goes back."""
        self._ready = True
        self.stage = ""
        self.installed = False
        """The files are here; the load and the SAEs follow."""
        bridge.event_arrived.connect(self._on_event)

    @property
    def in_words(self) -> str:
        """How far it is, as a sentence; empty while nothing is under way."""
        if not self.running:
            return ""
        if self.installed:
            return "The demo model is installed and is being made ready."
        return f"The demo model is being installed: {self.stage.rstrip('.…')}, {self.progress:.0f}\N{NO-BREAK SPACE}%."

    def begin(self, *, ready: bool = True) -> None:
        """Install; does nothing while it is under way.

        Args:
            ready: Load the model and attach its SAEs afterwards, where nothing else is in memory.
        """
        if self.running:
            return
        self.running, self.installed, self._ready = True, False, ready
        self.progress, self.stage = 0.0, "Starting…"
        inbox = self._inbox = Inbox(parent=self)
        inbox.arrived.connect(self._on_steps)
        install, engine, facts = self._services.install_demo, self._services.engine, self._services.demo
        bridge = self._bridge

        def task() -> None:
            install(lambda progress, stage: inbox.put((progress, stage)))
            # The way that the load's own events come, so that none of them is here before.
            bridge.post(self._on_installed)
            if ready:
                make_ready(engine, facts)

        self.changed.emit()
        bridge.run_in_background(task, lambda _nothing: self._end(None), self._end, owner=self)

    def _on_steps(self, steps: list[tuple[float, str]]) -> None:
        if self.installed:
            return
        done, self.stage = steps[-1]
        self.progress = max(self.progress, done * INSTALL_SHARE / 100 if self._ready else done)
        self.changed.emit()

    def _on_installed(self) -> None:
        self.installed = True
        self.changed.emit()

    @Slot(object)
    def _on_event(self, event: Event) -> None:
        """The load that follows is the second part of the same way."""
        if self.running and self.installed and isinstance(event, ModelLoadProgress):
            self.stage = event.stage
            self.progress = max(self.progress, INSTALL_SHARE + event.progress * (100 - INSTALL_SHARE) / 100)
            self.changed.emit()

    def _end(self, error: Exception | None) -> None:
        if error is not None:
            log.error("the demo model could not be installed", exc_info=error)
        if self._inbox is not None:
            self._inbox.close()
            self._inbox.deleteLater()
            self._inbox = None
        self.running = self.installed = False
        self.changed.emit()
        self.ended.emit(error)


def make_ready(engine: Engine, facts: DemoFacts | None) -> None:
    """Load the demo model and attach its SAEs, unless a person keeps something else in memory. Blocks for seconds.

    Raises what the load or the attaching raises; a load that a person cancels is no error.
    """
    record = suggestion([each for each in engine.shelf.list() if each.source is ModelSource.DEMO])
    resident = engine.shelf.resident
    if record is None or (resident is not None and resident.record.id != record.id):
        return
    try:
        engine.models.begin_load(record.id).result()
    except (LoadCancelled, ModelBusy):
        return
    if facts is None or engine.desk.state.attachments or engine.library.attach_sets.get(facts.attach_set) is None:
        return
    engine.attachments.attach_saved_set(facts.attach_set)

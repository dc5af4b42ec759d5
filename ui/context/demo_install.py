"""The one installation of the demo model, as the window sees it: begun from any button, followed by all. No widgets."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from PySide6.QtCore import QObject, Signal

from engine.engine import Engine
from engine.errors import LoadCancelled, ModelBusy
from engine.library.records import ModelRecord, ModelSource
from engine.models.backends.llamacpp.availability import can_run
from ui.bridge import Bridge, Inbox
from ui.context.services import AppServices, DemoFacts

log = logging.getLogger(__name__)


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
        """0–100, of the installation."""
        self.stage = ""
        self.installed = False
        """The files are here; the load and the SAEs follow."""

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
        self.running, self.installed = True, False
        self.progress, self.stage = 0.0, "Starting…"
        inbox = self._inbox = Inbox(parent=self)
        inbox.arrived.connect(self._on_steps)
        install, engine, facts = self._services.install_demo, self._services.engine, self._services.demo

        def task() -> None:
            install(lambda progress, stage: inbox.put((progress, stage)))
            inbox.put(None)
            if ready:
                make_ready(engine, facts)

        self.changed.emit()
        self._bridge.run_in_background(task, lambda _nothing: self._end(None), self._end, owner=self)

    def _on_steps(self, steps: list[tuple[float, str] | None]) -> None:
        last = steps[-1]
        if last is None:
            self.installed = True
        else:
            self.progress, self.stage = last
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
        engine.loader.load(record.id).result()
    except (LoadCancelled, ModelBusy):
        return
    if facts is None or engine.desk.state.attachments or engine.library.attach_sets.get(facts.attach_set) is None:
        return
    engine.attachments.attach_saved_set(facts.attach_set)

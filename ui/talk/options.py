"""Keeps the chat's sampling settings between starts, under one key of the library's state."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, QTimer

from engine.errors import InvalidParameter
from engine.public.library import EngineKind, Library, ModelRecord
from engine.public.models import LoadedModel, read_sampling_defaults
from ui.bridge import Bridge
from ui.context.services import DemoFacts
from ui.kit.chat_options import Suggested
from ui.talk.chat_settings import ChatSettings

OPTIONS_KEY = "chat_options"
DELAY_MS = 500


OWN_SETTINGS = "By the model's own settings."
MEASURED = "Without a penalty the demo model repeats itself; this is the mildest that reads well."


def suggestions(record: ModelRecord, demo: DemoFacts | None) -> Suggested:
    """How a model reads best. Reads a small file; for a background thread."""
    said = {} if record.engine is EngineKind.LLAMACPP else read_sampling_defaults(Path(record.local_path or ""))
    if said:
        return Suggested(said, OWN_SETTINGS)
    if demo is not None and record.name.split(":", 1)[0] == demo.model:
        return Suggested({"repetition_penalty": demo.repetition_penalty}, MEASURED)
    return Suggested()


class OptionsKeeper(QObject):
    """Fills the panel once at start and writes it down a moment after each change."""

    def __init__(self, library: Library, bridge: Bridge, panel: ChatSettings, parent: QObject) -> None:
        super().__init__(parent)
        self._state = library.state
        self._bridge = bridge
        self._panel = panel
        self._touched = False
        self._followed: int | None = None
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(DELAY_MS)
        self._timer.timeout.connect(self.write)
        panel.changed.connect(self._on_changed)
        state = self._state
        bridge.run_in_background(lambda: state.get(OPTIONS_KEY), self._restore, owner=self)

    def write(self) -> None:
        """Write what is set now; an unusable seed is not kept."""
        try:
            value = self._panel.own()
        except InvalidParameter:
            return
        state = self._state
        self._bridge.run_in_background(lambda: state.set(OPTIONS_KEY, value), owner=self)

    def follow(self, resident: LoadedModel | None, demo: DemoFacts | None) -> None:
        """Another model is loaded: its own settings come first, then what was measured of the demo model."""
        if resident is None or resident.record.id == self._followed:
            return
        record = resident.record
        self._followed = record.id

        self._bridge.run_in_background(lambda: suggestions(record, demo), self._panel.suggest, owner=self)

    def _restore(self, value: object) -> None:
        # A person may have been quicker than the database.
        if value is None or self._touched:
            return
        self._panel.restore(value)
        self._timer.stop()
        self._touched = False

    def _on_changed(self) -> None:
        self._touched = True
        self._timer.start()

"""Where the chat was left: the conversation that was open, and whether answers were compared.

Kept while it changes, for each model by itself and once for whichever was last.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from engine.public.library import ConversationRecord, Library
from ui.context.page_context import PageContext

LEFT_OFF_KEY = "chat_left_off"
SETTLE_MS = 200


class LeftOff(QObject):
    """Reads it once, where the settings say that what a person had last comes back, and writes what is noted."""

    found = Signal(object, bool)
    """The conversation (None where it is gone, or was none), whether answers were compared."""

    def __init__(self, frame: PageContext, parent: QObject) -> None:
        super().__init__(parent)
        self._bridge = frame.bridge
        self._state = frame.engine.library.state
        self._noted: dict[str, object] | None = None
        self._noted_with: str | None = None
        """The model that was in memory then: by the time it is written another may be."""
        self._shelf = frame.engine.shelf
        self._library = frame.engine.library
        self._first_model = bool(frame.services.settings.get("RESTORE_LAST").value)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SETTLE_MS)
        self._timer.timeout.connect(self._write)
        if self._first_model:
            library = frame.engine.library
            self._bridge.run_in_background(lambda: read(library), self._on_read, owner=self)

    def on_loaded(self, model: str) -> None:
        """A model is in memory. The first one of this run may be another than the last of the run before: then the chat
        is found again that was left with it.
        """
        if self._first_model:
            self._first_model = False
            library, key = self._library, key_for(model)

            def told(left: tuple[ConversationRecord | None, bool] | None) -> None:
                if left is not None:
                    self.found.emit(*left)

            self._bridge.run_in_background(lambda: read_at(library, key), told, owner=self)

    def note(self, conversation: int | None, comparing: bool) -> None:
        """How the chat stands now."""
        resident = self._shelf.resident
        self._noted = {"conversation": conversation, "comparing": comparing}
        self._noted_with = None if resident is None else resident.record.name
        self._timer.start()

    def write(self) -> None:
        """Write what was noted, now: the window closes."""
        if self._timer.isActive() and self._noted is not None:
            self._timer.stop()
            self._keep(self._noted, self._noted_with)

    def _write(self) -> None:
        noted, model = self._noted, self._noted_with
        self._bridge.run_in_background(lambda: self._keep(noted, model), owner=self)

    def _keep(self, noted: dict[str, object] | None, model: str | None) -> None:
        if model is not None:
            self._state.set(key_for(model), noted)
        self._state.set(LEFT_OFF_KEY, noted)

    def _on_read(self, left: tuple[ConversationRecord | None, bool]) -> None:
        # A person may have been quicker than the database.
        if self._noted is None:
            self.found.emit(*left)


def key_for(model: str) -> str:
    """Where it is kept how the chat was left with a model."""
    return f"{LEFT_OFF_KEY}:{model}"


def read(library: Library) -> tuple[ConversationRecord | None, bool]:
    """What was noted last. For a background thread."""
    return read_at(library, LEFT_OFF_KEY) or (None, False)


def read_at(library: Library, key: str) -> tuple[ConversationRecord | None, bool] | None:
    """What was noted under ``key``; None where nothing was."""
    value = library.state.get(key)
    if not isinstance(value, dict):
        return None
    number = value.get("conversation")
    record = library.conversations.get(number) if isinstance(number, int) and not isinstance(number, bool) else None
    return record, value.get("comparing") is True

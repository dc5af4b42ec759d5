"""Where the chat was left: the conversation that was open, and whether answers were compared. Kept while it changes."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from engine.library.database import Library
from engine.library.records import ConversationRecord
from ui.frame import Frame

LEFT_OFF_KEY = "chat_left_off"
SETTLE_MS = 200


class LeftOff(QObject):
    """Reads it once, where the settings say that what a person had last comes back, and writes what is noted."""

    found = Signal(object, bool)
    """The conversation (None where it is gone, or was none), whether answers were compared."""

    def __init__(self, frame: Frame, parent: QObject) -> None:
        super().__init__(parent)
        self._bridge = frame.bridge
        self._state = frame.engine.library.state
        self._noted: dict[str, object] | None = None
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SETTLE_MS)
        self._timer.timeout.connect(self._write)
        if frame.services.settings.get("RESTORE_LAST").value:
            library = frame.engine.library
            self._bridge.run_in_background(lambda: read(library), self._on_read, owner=self)

    def note(self, conversation: int | None, comparing: bool) -> None:
        """How the chat stands now."""
        self._noted = {"conversation": conversation, "comparing": comparing}
        self._timer.start()

    def write(self) -> None:
        """Write what was noted, now: the window closes."""
        if self._timer.isActive() and self._noted is not None:
            self._timer.stop()
            self._state.set(LEFT_OFF_KEY, self._noted)

    def _write(self) -> None:
        state, noted = self._state, self._noted
        self._bridge.run_in_background(lambda: state.set(LEFT_OFF_KEY, noted), owner=self)

    def _on_read(self, left: tuple[ConversationRecord | None, bool]) -> None:
        # A person may have been quicker than the database.
        if self._noted is None:
            self.found.emit(*left)


def read(library: Library) -> tuple[ConversationRecord | None, bool]:
    """What was noted last. For a background thread."""
    value = library.state.get(LEFT_OFF_KEY)
    if not isinstance(value, dict):
        return None, False
    number = value.get("conversation")
    record = library.conversations.get(number) if isinstance(number, int) and not isinstance(number, bool) else None
    return record, value.get("comparing") is True

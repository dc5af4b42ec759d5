"""Keeps the chat's sampling settings between starts, under one key of the library's state."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer

from engine.errors import InvalidParameter
from engine.library.database import Library
from ui.bridge import Bridge
from ui.chat_state import ChatOptions
from ui.widgets.chat_settings import ChatSettings

OPTIONS_KEY = "chat_options"
DELAY_MS = 500


class OptionsKeeper(QObject):
    """Fills the panel once at start and writes it down a moment after each change."""

    def __init__(self, library: Library, bridge: Bridge, panel: ChatSettings, parent: QObject) -> None:
        super().__init__(parent)
        self._state = library.state
        self._bridge = bridge
        self._panel = panel
        self._touched = False
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
            value = self._panel.options().to_json()
        except InvalidParameter:
            return
        state = self._state
        self._bridge.run_in_background(lambda: state.set(OPTIONS_KEY, value), owner=self)

    def _restore(self, value: object) -> None:
        # A person may have been quicker than the database.
        if value is None or self._touched:
            return
        kept = ChatOptions.from_json(value)
        prompt = self._panel.system.toPlainText()
        self._panel.set_options(ChatOptions(prompt, kept.temperature, kept.max_tokens, kept.seed))
        self._timer.stop()
        self._touched = False

    def _on_changed(self) -> None:
        self._touched = True
        self._timer.start()

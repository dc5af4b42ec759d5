"""The bar that is always visible: which model, where the server is, and the latest word from the program."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QProgressBar, QWidget

from engine.models.shelf import LoadedModel, LoadingState
from ui import theme
from ui.widgets.basics import CopyButton, Dot, ElidedLabel, IconButton, Surface, column, label, line

BAR_HEIGHT = 54
STRIP = 3
MESSAGE_MS = 8_000

_SERVER = {
    "running": ("good", ""),
    "starting": ("warn", "starting…"),
    "stopped": ("quiet", "stopped"),
    "error": ("bad", "not running"),
}


class StateCell(QWidget):
    """A light, a caption, and a value under it."""

    def __init__(self, caption: str) -> None:
        super().__init__()
        self.dot = Dot()
        self.value = ElidedLabel("", "strong")
        self.value.setMinimumWidth(60)
        texts = column(spacing=0)
        texts.addStretch(1)
        texts.addWidget(label(caption, "caption"))
        texts.addWidget(self.value)
        texts.addStretch(1)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S + 2)
        layout.addWidget(self.dot, 0, Qt.AlignmentFlag.AlignVCenter)
        layout.addLayout(texts, 1)


class TopBar(Surface):
    """Shows the model's and the server's state and one message at a time."""

    def __init__(self) -> None:
        super().__init__("topBar")
        self.setFixedHeight(BAR_HEIGHT)
        self._address: str | None = None
        self.model = StateCell("Model")
        self.server = StateCell("Server")
        self.copy = CopyButton(lambda: self._address or "", "Copy the server's address")
        self.message = ElidedLabel("", "muted")
        self.message.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.dismiss = IconButton("close", "Dismiss this message", lambda: self.say(""))
        self.progress = QProgressBar()
        self.progress.setObjectName("thin")
        self.progress.setTextVisible(False)
        cells = line(self.model, theme.L, self._separator(), theme.L, self.server, self.copy, spacing=0)
        cells.addSpacing(theme.L)
        cells.addWidget(self.message, 1)
        cells.addWidget(self.dismiss)
        cells.setContentsMargins(theme.L, 0, theme.M, 0)
        self.setLayout(cells)
        # Lies over the lower edge instead of taking room, so that nothing jumps when a load begins.
        self.progress.setParent(self)
        self.progress.raise_()
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(lambda: self.say(""))
        self.show_model(None, None)
        self.show_server("stopped", None)
        self.say("")

    def show_model(self, resident: LoadedModel | None, loading: LoadingState | None) -> None:
        """Name the model and say how it stands."""
        if loading is not None:
            self.model.value.set_text(f"Loading {loading.model_name} · {loading.progress:.0f} %")
            self.model.dot.set_tone("warn")
            self.progress.setValue(round(loading.progress))
        elif resident is not None:
            self.model.value.set_text(resident.record.name)
            self.model.dot.set_tone("good")
        else:
            self.model.value.set_text("none loaded")
            self.model.dot.set_tone("quiet")
        self.progress.setVisible(loading is not None)

    def show_server(self, state: str, address: str | None) -> None:
        """Give the address while the server runs, else its state in words."""
        self._address = address if state == "running" else None
        tone, words = _SERVER.get(state, ("quiet", state))
        self.server.value.set_text(self._address or words)
        self.server.dot.set_tone(tone)
        self.copy.setVisible(self._address is not None)

    def say(self, words: str, *, lasting: bool = False) -> None:
        """Show a message for a while, or until the next one where it is ``lasting``."""
        self.message.set_text(words)
        self.dismiss.setVisible(bool(words))
        self._timer.stop()
        if words and not lasting:
            self._timer.start(MESSAGE_MS)

    def _separator(self) -> QFrame:
        made = QFrame()
        made.setObjectName("upright")
        made.setFixedSize(1, 28)
        return made

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the strip of progress along the lower edge."""
        super().resizeEvent(event)
        self.progress.setGeometry(0, self.height() - STRIP, self.width(), STRIP)

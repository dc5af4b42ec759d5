"""The bar that is always visible: model, SAEs, what steers right now, the server, and the latest word."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QProgressBar, QWidget

from engine.models.shelf import LoadedModel, LoadingState
from engine.steering.desk import Snapshot
from engine.steering.live import LiveState
from engine.steering.moves import place_of
from engine.steering.plan import EMPTY_PLAN
from ui import theme
from ui.steering_words import any_on, attached_words, can_steer, live_evidence, live_words, place_words
from ui.widgets.basics import CopyButton, Dot, ElidedLabel, IconButton, Surface, add_all, column, line
from ui.widgets.switch import Switch

BAR_HEIGHT = 54
STRIP = 3
STEERING_NOW = "Steering now"
MESSAGE_MS = 8_000
MODEL_WIDTH = 240
SAES_WIDTH = 230
STEERING_WIDTH = 330
OTHERS_WIDTH = 780
"""What the bar's other parts need to be read."""
LEAST_WIDTH = 80

_SERVER = {
    "running": ("good", ""),
    "starting": ("warn", "starting…"),
    "stopped": ("quiet", "stopped"),
    "error": ("bad", "not running"),
}


class StateCell(QWidget):
    """A light, a caption, and a value under it."""

    def __init__(self, caption: str, cut: Qt.TextElideMode = Qt.TextElideMode.ElideRight) -> None:
        super().__init__()
        self.dot = Dot()
        self.caption = ElidedLabel(caption, "caption")
        self.value = ElidedLabel("", "strong", cut)
        self.value.setMinimumWidth(60)
        texts = column(spacing=0)
        texts.addStretch(1)
        texts.addWidget(self.caption)
        texts.addWidget(self.value)
        texts.addStretch(1)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.S + 2)
        layout.addWidget(self.dot, 0, Qt.AlignmentFlag.AlignVCenter)
        layout.addLayout(texts, 1)


class TopBar(Surface):
    """Shows the model's, the steering's and the server's state and one message at a time."""

    steering_wanted = Signal(bool)
    """A person switched all steering on or off."""

    def __init__(self) -> None:
        super().__init__("topBar")
        self.setFixedHeight(BAR_HEIGHT)
        self._address: str | None = None
        self.model = StateCell("Model")
        self.model.setMaximumWidth(MODEL_WIDTH)
        self.saes = StateCell("SAEs", Qt.TextElideMode.ElideMiddle)
        self.saes.setMaximumWidth(SAES_WIDTH)
        self.steering = StateCell(STEERING_NOW)
        self.steering.setMaximumWidth(STEERING_WIDTH)
        self.switch = Switch("Steering on or off; values are kept")
        self.switch.clicked.connect(self._on_switch)
        self.server = StateCell("Server")
        self.copy = CopyButton(lambda: self._address or "", "Copy the server's address")
        self.message = ElidedLabel("", "muted")
        self.dismiss = IconButton("close", "Dismiss this message", lambda: self.say(""))
        # Lies over the page, so that words have room however much is said in the bar.
        self.toast = QFrame(self)
        self.toast.setObjectName("toast")
        words = line(spacing=theme.S)
        words.addWidget(self.message, 1)
        words.addWidget(self.dismiss)
        words.setContentsMargins(theme.M, theme.XS, theme.XS, theme.XS)
        self.toast.setLayout(words)
        self.progress = QProgressBar()
        self.progress.setObjectName("thin")
        self.progress.setTextVisible(False)
        cells = line(spacing=0)
        for cell in (self.model, self.saes):
            add_all(cells, cell, theme.M, self._separator(), theme.M)
        add_all(cells, self.steering, theme.S, self.switch, theme.M, self._separator(), theme.M)
        add_all(cells, self.server, self.copy)
        cells.addStretch(1)
        cells.setContentsMargins(theme.L, 0, theme.M, 0)
        self.setLayout(cells)
        # Lies over the lower edge instead of taking room, so that nothing jumps when a load begins.
        self.progress.setParent(self)
        self.progress.raise_()
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(lambda: self.say(""))
        self.show_model(None, None)
        self.show_steering(Snapshot(LiveState(), EMPTY_PLAN))
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

    def show_steering(self, now: Snapshot) -> None:
        """Name the attached SAEs and what steers; the switch works where something is set."""
        self.saes.value.set_text(attached_words(now))
        self.saes.setToolTip("\n".join(place_words(place_of(each)) for each in now.state.attachments))
        self.saes.dot.set_tone("good" if now.state.attachments else "quiet")
        self.steering.value.set_text(live_words(now))
        evidence = live_evidence(now)
        self.steering.caption.set_text(f"{STEERING_NOW} · {evidence}" if evidence else STEERING_NOW)
        self.steering.dot.set_tone("quiet" if now.plan.is_empty else "good")
        self._give_room()
        self.switch.setEnabled(bool(can_steer(now)))
        self.switch.setChecked(any_on(now))

    def _on_switch(self, on: bool) -> None:
        self.steering_wanted.emit(on)

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
        self.toast.setVisible(bool(words))
        self._place_toast()
        self._timer.stop()
        if words and not lasting:
            self._timer.start(MESSAGE_MS)

    def _separator(self) -> QFrame:
        made = QFrame()
        made.setObjectName("upright")
        made.setFixedSize(1, 28)
        return made

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the strip of progress along the lower edge, and what steers readable before all else."""
        super().resizeEvent(event)
        self.progress.setGeometry(0, self.height() - STRIP, self.width(), STRIP)
        self._give_room()
        self._place_toast()

    def showEvent(self, event: QShowEvent) -> None:
        """The message lies over whatever the bar is part of."""
        super().showEvent(event)
        around = self.parentWidget()
        if around is not None and self.toast.parentWidget() is not around:
            self.toast.setParent(around)
            self.toast.setVisible(bool(self.message.full_text()))
        self._place_toast()

    def _give_room(self) -> None:
        wanted = self.steering.sizeHint().width()
        self.steering.setMinimumWidth(max(LEAST_WIDTH, min(wanted, STEERING_WIDTH, self.width() - OTHERS_WIDTH)))

    def _place_toast(self) -> None:
        around = self.toast.parentWidget()
        if around is None or around is self:
            return
        width = min(self.toast.sizeHint().width(), around.width() - 2 * theme.L)
        height = self.toast.sizeHint().height()
        self.toast.setGeometry((around.width() - width) // 2, self.geometry().bottom() + theme.S, width, height)
        self.toast.raise_()

"""The bar that is always visible: model, SAEs, what steers right now, the server, and the latest word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QAbstractButton, QFrame, QHBoxLayout, QProgressBar, QSizePolicy

from engine.public.models import LoadedModel, LoadingState
from engine.public.steering import EMPTY_PLAN, LiveState, Snapshot, place_of
from ui.context.page_context import MODELS, SAES, SERVER, STEERING
from ui.kit import shortcuts, theme
from ui.kit.basics import Button, CopyButton, Dot, ElidedLabel, IconButton, Surface, add_all, column, line
from ui.kit.overlay_place import KEEP_CLEAR
from ui.kit.plain_text import as_letters
from ui.kit.steering_text import any_on, attached_words, can_steer, live_evidence, live_words, place_words
from ui.kit.switch import Switch
from ui.kit.text import counted
from ui.window.toast import Toast

BAR_HEIGHT = 54
STRIP = 3
STEERING_NOW = "Steering now"
MESSAGE_MS = 8_000
WIDEST = 520
INSET = 6
"""Air left and right of a part's words, for its ground."""
STEP = 16
GIVES_WAY = ((0, 120), (2, 330), (1, 100), (3, 120), (2, 170), (0, 60), (1, 60), (3, 60), (2, 60))
"""Which cell (model, SAEs, steering, server) is cut to what width, in turn, until all of them fit."""

_SERVER = {
    "running": ("good", ""),
    "starting": ("warn", "starting…"),
    "stopped": ("quiet", "stopped"),
    "error": ("bad", "not running"),
}


class StateCell(QAbstractButton):
    """A light, a caption, and a value under it; a click, Space or Return opens the page that ``opens`` names."""

    def __init__(self, caption: str, opens: str, cut: Qt.TextElideMode = Qt.TextElideMode.ElideRight) -> None:
        super().__init__()
        self._opens = opens
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        # By the mouse it opens a page, which has a place of its own for the keys.
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        self.dot = Dot()
        self._gap = theme.S + 2
        self.caption = ElidedLabel(caption, "caption")
        self.value = ElidedLabel("", "strong", cut)
        texts = column(spacing=0)
        texts.addStretch(1)
        texts.addWidget(self.caption)
        texts.addWidget(self.value)
        texts.addStretch(1)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(INSET, 0, INSET, 0)
        layout.setSpacing(self._gap)
        for part in (self.dot, self.caption, self.value):
            part.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        layout.addWidget(self.dot, 0, Qt.AlignmentFlag.AlignVCenter)
        layout.addLayout(texts, 1)

    def wanted(self) -> int:
        """The width that shows all of it, asked of the words themselves: the layout hears of new ones only later."""
        words = max(self.caption.sizeHint().width(), self.value.sizeHint().width())
        return self.dot.width() + self._gap + words + 2 * INSET

    def tell(self, more: str = "") -> None:
        """Say to screen readers and in the tooltip what it shows, whole; ``more`` stands between that and the way."""
        told = f"{self.caption.full_text()}: {self.value.full_text()}"
        self.setAccessibleName(f"{told}. Open {self._opens}")
        self.setToolTip(as_letters("\n".join(filter(None, (told, more, f"Click to open {self._opens}.")))))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Return does what Space does."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not event.isAutoRepeat():
            self.click()
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """A ground under the mouse, and a ring with the keyboard on it."""
        look = theme.current()
        if not (self.underMouse() or self.hasFocus()):
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(look.colour("accent"), 1) if self.hasFocus() else Qt.PenStyle.NoPen)
        ground = "line" if self.isDown() else "raised"
        painter.setBrush(look.colour(ground) if self.underMouse() else Qt.BrushStyle.NoBrush)
        box = QRectF(self.rect()).adjusted(0.5, 4.5, -0.5, -4.5)
        painter.drawRoundedRect(box, theme.RADIUS - 3, theme.RADIUS - 3)
        painter.end()


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """How wide each cell is in ``room`` pixels: as it wants, or cut in the order of :data:`GIVES_WAY`."""
    widths = list(wanted)
    for place, least in GIVES_WAY:
        over = sum(widths) - room
        if over <= 0:
            break
        widths[place] = min(widths[place], max(least, widths[place] - over))
    return widths


class TopBar(Surface):
    """Shows the model's, the steering's and the server's state and one message at a time."""

    steering_wanted = Signal(bool)
    """A person switched all steering on or off."""
    open_wanted = Signal(str)
    """The key of the page that shows what a part of the bar names."""

    def __init__(self) -> None:
        super().__init__("topBar")
        self.setFixedHeight(BAR_HEIGHT)
        self.setProperty(KEEP_CLEAR, True)
        self._address: str | None = None
        self._places = ""
        self._idle_gpu = ""
        self.model = StateCell("Model", "the models")
        self.saes = StateCell("SAEs", "the SAEs", Qt.TextElideMode.ElideMiddle)
        # λ stands at the end and is not to be cut off.
        self.steering = StateCell(STEERING_NOW, "the steering", Qt.TextElideMode.ElideMiddle)
        self.switch = Switch(f"Steering on or off; values are kept ({shortcuts.STEERING})")
        self.switch.clicked.connect(self._on_switch)
        self.server = StateCell("Server", "the server's page")
        for cell, page in (
            (self.model, MODELS),
            (self.saes, SAES),
            (self.steering, STEERING),
            (self.server, SERVER),
        ):
            cell.clicked.connect(partial(self.open_wanted.emit, page))
        self.copy = CopyButton(lambda: self._address or "", "Copy the server's address")
        self.message = ElidedLabel("", "muted")
        self.action = Button("", "plain", on_click=self._act)
        self._do: Callable[[], object] | None = None
        self.dismiss = IconButton("close", "Dismiss this message", lambda: self.say(""))
        # A row of its own under the bar, which covers nothing; the window gives it its place.
        self.toast = QFrame(self)
        self.toast.hide()
        self.toast.setObjectName("toast")
        words = line(spacing=theme.S)
        words.addWidget(self.message, 1)
        words.addWidget(self.action)
        words.addWidget(self.dismiss)
        words.setContentsMargins(theme.L, 2, theme.M, 2)
        self.toast.setLayout(words)
        self.progress = QProgressBar()
        self.progress.setObjectName("thin")
        self.progress.setTextVisible(False)
        cells = line(spacing=0)
        self._cells = (self.model, self.saes, self.steering, self.server)
        for cell in (self.model, self.saes):
            add_all(cells, cell, theme.M - INSET, self._separator(), theme.M - INSET)
        add_all(cells, self.steering, theme.S - INSET, self.switch, theme.M, self._separator(), theme.M - INSET)
        add_all(cells, self.server, self.copy)
        cells.addStretch(1)
        cells.setContentsMargins(theme.L - INSET, 0, theme.M, 0)
        self.setLayout(cells)
        self._line = cells
        # Lies over the lower edge instead of taking room, so that nothing jumps when a load begins.
        self.progress.setParent(self)
        self.progress.raise_()
        self.passing: Toast | None = None
        """Shows what passes by itself; the window gives it. Without one the row under the bar does."""
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
            self.model.value.set_text("none loaded", "none")
            self.model.dot.set_tone("quiet")
        self.progress.setVisible(loading is not None)
        self._give_room()

    def show_unused_gpu(self, words: str) -> None:
        """Say in the model's part that a card lies idle, with ``words`` about it as its tip."""
        self.model.caption.set_text("Model · GPU not used" if words else "Model")
        self._idle_gpu = words
        self._give_room()

    def show_steering(self, now: Snapshot) -> None:
        """Name the attached SAEs and what steers; the switch works where something is set."""
        number = len(now.state.attachments)
        # Words are not cut in their middle; the name of the one SAE is, its layer stands at the end.
        shorter = counted(number, "SAE") if number > 1 else "" if number else "none"
        self.saes.value.set_text(attached_words(now), shorter)
        self._places = "\n".join(place_words(place_of(each)) for each in now.state.attachments)
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
        self._give_room()

    def say(self, words: str, *, lasting: bool = False, action: tuple[str, Callable[[], object]] | None = None) -> None:
        """Show a message for a while, or until the next one where it is ``lasting``.

        Args:
            action: A button beside the words: what it says and what it does. The message goes when it is pressed.
        """
        self.message.set_text(words)
        self._do = None
        if action is not None:
            self.action.setText(action[0])
            self.action.setAccessibleName(action[0])
            self._do = action[1]
        self.action.setVisible(action is not None)
        passes = self.passing is not None and not lasting and action is None
        self.toast.setVisible(bool(words) and not passes and self.toast.parentWidget() is not self)
        if self.passing is not None:
            self.passing.show_words(words if passes else "")
        self._timer.stop()
        if words and not lasting:
            self._timer.start(MESSAGE_MS)

    def _act(self) -> None:
        do = self._do
        self.say("")
        if do is not None:
            do()

    def _separator(self) -> QFrame:
        made = QFrame()
        made.setObjectName("upright")
        made.setFixedSize(1, 28)
        return made

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the strip of progress along the lower edge, and cut what matters least."""
        super().resizeEvent(event)
        self.progress.setGeometry(0, self.height() - STRIP, self.width(), STRIP)
        self._give_room()

    def _give_room(self) -> None:
        margins = self._line.contentsMargins()
        for cell in self._cells:
            cell.tell({self.saes: self._places, self.model: self._idle_gpu}.get(cell, ""))
        gaps = margins.left() + margins.right() + 3 * (2 * theme.M + 1) + theme.S - 6 * INSET
        beside = self.switch.sizeHint().width() + self.copy.sizeHint().width()
        wanted = [min(cell.wanted(), WIDEST) for cell in self._cells]
        # In steps, so that a λ that is being turned, or a load's share, does not push the others about.
        wanted[:3] = [-(-width // STEP) * STEP for width in wanted[:3]]
        for cell, width in zip(self._cells, shares(wanted, self.width() - gaps - beside), strict=True):
            cell.setFixedWidth(width)

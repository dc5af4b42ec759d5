"""The dial: how strongly a profile, cluster or circuit steers (λ), as a slider with marks and a number."""

from __future__ import annotations

import math
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QFocusEvent, QFontMetrics, QHelpEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QToolTip, QVBoxLayout, QWidget

from ui.kit import theme
from ui.kit.basics import IconButton, label
from ui.kit.number_field import DecimalField
from ui.kit.plain_text import as_letters
from ui.kit.steady import Slider
from ui.kit.steering_text import strength

HUNDREDTHS = 100
"""Slider steps to an intensity of 1."""
STEP = 0.05
PAGE = 0.25
LEAST, GREATEST = 0.0, 2.0
HANDLE = 20
FIELD_WIDTH = 76
PAUSE_MS = 600
"""Key presses nearer together than this settle together."""
TICK = 5
REACH = 8
"""How far from a mark, in pixels, a click still means it."""
DEFAULT, SWEET_SPOT = "default", "sweet spot"
BACK = "Back"


@dataclass(frozen=True)
class Mark:
    """A place on the track with a name; marks of a higher ``weight`` keep their word where two would overlap."""

    value: float
    word: str
    told: str
    weight: int = 0


class DialTrack(Slider):
    """The slider itself: its fill begins at zero, and what lies beyond the cliff is drawn as a warning."""

    turned_by_wheel = False
    left = Signal()
    """The keyboard went elsewhere."""
    let_go = Signal()
    """The mouse button is up again, after a drag or a click beside the handle."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("centred")
        self.setSingleStep(round(STEP * HUNDREDTHS))
        self.setPageStep(round(PAGE * HUNDREDTHS))
        self.setRange(round(LEAST * HUNDREDTHS), round(GREATEST * HUNDREDTHS))
        self.cliff: float | None = None
        theme.current().changed.connect(self.update)

    def place(self, value: float) -> float:
        """Where on the track a value lies, in pixels from the left."""
        low, high = self.minimum(), self.maximum()
        share = 0.0 if high <= low else (value * HUNDREDTHS - low) / (high - low)
        return HANDLE / 2 + min(1.0, max(0.0, share)) * (self.width() - HANDLE)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """A turn by the mouse has ended."""
        super().mouseReleaseEvent(event)
        if event.button() == Qt.MouseButton.LeftButton:
            self.let_go.emit()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """What was turned by keys is settled."""
        super().focusOutEvent(event)
        self.left.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw groove, warning and fill, then let the style put the handle on it."""
        look, able = theme.current(), self.isEnabled()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        middle = self.height() / 2
        painter.setBrush(look.colour("line_strong"))
        painter.drawRoundedRect(QRectF(0, middle - 2, self.width(), 4), 2, 2)
        end = self.place(self.value() / HUNDREDTHS)
        painter.setBrush(look.colour("accent" if able else "disabled"))
        painter.drawRoundedRect(QRectF(0, middle - 2, end, 4), 2, 2)
        if self.cliff is not None:
            start = self.place(self.cliff)
            painter.setBrush(look.colour("bad" if able else "disabled"))
            painter.drawRoundedRect(QRectF(start, middle - 2, self.width() - start, 4), 2, 2)
        painter.end()
        super().paintEvent(event)


class DialMarks(QWidget):
    """Ticks and words under the track; a word that would run into a weightier one is left to the tooltip. A click on
    either turns the dial there.
    """

    chosen = Signal(float)

    def __init__(self, track: DialTrack) -> None:
        super().__init__()
        self._track = track
        self.marks: tuple[Mark, ...] = ()
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.current().changed.connect(self.update)

    def show_marks(self, marks: tuple[Mark, ...]) -> None:
        """Show other marks; without any the widget takes no room."""
        self.marks = marks
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        """A line of the smallest type under the ticks."""
        if not self.marks:
            return QSize(0, 0)
        return QSize(120, TICK + QFontMetrics(theme.current().font("caption")).height())

    def shown_words(self) -> list[tuple[float, str]]:
        """The words there is room for, each with its left edge in pixels."""
        metrics = QFontMetrics(theme.current().font("caption"))
        taken: list[tuple[float, float, str]] = []
        for mark in sorted(self.marks, key=lambda each: -each.weight):
            wide = metrics.horizontalAdvance(mark.word)
            left = min(max(0.0, self._track.place(mark.value) - wide / 2), max(0.0, self.width() - wide))
            if all(left > end + theme.XS or left + wide < start - theme.XS for start, end, _word in taken):
                taken.append((left, left + wide, mark.word))
        return [(start, word) for start, _end, word in sorted(taken)]

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw the ticks and the words that have room."""
        if not self.marks:
            return
        look = theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(look.font("caption"))
        painter.setPen(look.colour("muted"))
        for mark in self.marks:
            x = self._track.place(mark.value)
            painter.drawLine(QPointF(x, 0), QPointF(x, TICK - 1))
        base = TICK + QFontMetrics(painter.font()).ascent()
        for left, word in self.shown_words():
            painter.drawText(QPointF(left, base), word)
        painter.end()

    def mark_at(self, x: float) -> Mark | None:
        """The mark whose word or tick is at ``x`` pixels from the left; of two ticks the nearer one."""
        metrics = QFontMetrics(theme.current().font("caption"))
        for left, word in self.shown_words():
            if left - REACH / 2 <= x <= left + metrics.horizontalAdvance(word) + REACH / 2:
                return next(mark for mark in self.marks if mark.word == word)
        near = min(self.marks, key=lambda mark: abs(self._track.place(mark.value) - x), default=None)
        return near if near is not None and abs(self._track.place(near.value) - x) <= REACH else None

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Show that a mark can be clicked."""
        able = self.isEnabled() and self.mark_at(event.position().x()) is not None
        self.setCursor(Qt.CursorShape.PointingHandCursor if able else Qt.CursorShape.ArrowCursor)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Turn the dial to the mark that is clicked."""
        mark = self.mark_at(event.position().x())
        if mark is not None and event.button() == Qt.MouseButton.LeftButton:
            self.chosen.emit(mark.value)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """The press has done it; what lies under the marks has no part in it."""

    def event(self, event: QEvent) -> bool:
        """Say what the nearest mark means."""
        if isinstance(event, QHelpEvent) and self.marks:
            near = min(self.marks, key=lambda mark: abs(self._track.place(mark.value) - event.pos().x()))
            QToolTip.showText(event.globalPos(), as_letters(near.told), self)
            return True
        return super().event(event)


class DialField(DecimalField):
    """λ as a number; the wheel scrolls the page."""

    turned_by_wheel = False
    stepped = Signal()
    """A key or button moved it by a step."""

    def __init__(self) -> None:
        super().__init__()
        self.setDecimals(2)
        self.setSingleStep(STEP)
        # What is half typed does not steer: 0.8 begins with 0.
        self.setKeyboardTracking(False)
        self.setFixedWidth(FIELD_WIDTH)
        self.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.lineEdit().setTextMargins(0, 0, theme.S, 0)

    def stepBy(self, steps: int) -> None:
        """Also say that it was a step and not typing."""
        super().stepBy(steps)
        self.stepped.emit()


class IntensityDial(QWidget):
    """λ as a slider and a number. ``name`` is what screen readers call it.

    A person's turn is said twice: :attr:`moved` while it lasts, :attr:`settled` once it ends. Values set by the program
    are not said, and do not pull the handle out of a person's hand.
    """

    moved = Signal(float)
    settled = Signal(float)
    released = Signal()
    """The mouse is done with it: the keys may go where one would type."""

    def __init__(self, name: str = "Intensity λ") -> None:
        super().__init__()
        self._value = 1.0
        self._unsettled = False
        self._held = 0
        self.track = DialTrack()
        self.marks = DialMarks(self.track)
        self.field = DialField()
        self.home = IconButton("undo", BACK, self._go_home)
        self._home: Mark | None = None
        for part in (self, self.track, self.field):
            part.setAccessibleName(name)
        self.setFocusProxy(self.track)
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(PAUSE_MS)
        self._pause.timeout.connect(self._settle)
        self._build()
        self.set_range(LEAST, GREATEST)
        self.track.valueChanged.connect(self._on_track)
        self.track.let_go.connect(self._on_released)
        self.marks.chosen.connect(self._on_mark)
        self.track.left.connect(self._settle)
        self.field.valueChanged.connect(self._on_field)
        self.field.stepped.connect(self._pause.start)
        self.field.editingFinished.connect(self._settle)

    def set_range(
        self,
        minimum: float,
        maximum: float,
        *,
        default: float | None = None,
        onset: float | None = None,
        sweet_spot: float | None = None,
        cliff: float | None = None,
    ) -> None:
        """Let the dial run from ``minimum``, or 0 where that is lower, to ``maximum``; the rest are marks on the track.

        Raises ValueError for what is not finite and for an empty range.
        """
        low = min(0.0, minimum)
        if not (math.isfinite(minimum) and math.isfinite(maximum)) or maximum <= low:
            raise ValueError(f"no range of a dial: {minimum} to {maximum}")
        wanted = (
            (default, DEFAULT, "where the document sets it", 1),
            (onset, "onset", "where an effect begins", 2),
            (sweet_spot, SWEET_SPOT, "where it works best", 4),
            (cliff, "cliff", "from here on text falls apart", 3),
        )
        marks = tuple(
            Mark(value, word, f"λ {strength(value)}, {word}: {told}, by the author's measurement", weight)
            if word != DEFAULT
            else Mark(value, word, f"λ {strength(value)}: {told}", weight)
            for value, word, told, weight in wanted
            if value is not None and low <= value <= maximum and not (word == DEFAULT and value == sweet_spot)
        )
        self.track.cliff = cliff if cliff is not None and low <= cliff < maximum else None
        for part in (self.track, self.field):
            part.blockSignals(True)
        self.track.setRange(round(low * HUNDREDTHS), round(maximum * HUNDREDTHS))
        self.field.setRange(low, maximum)
        for part in (self.track, self.field):
            part.blockSignals(False)
        self._value = min(max(self._value, low), maximum)
        self._show()
        self.marks.show_marks(marks)
        # Without a measured sweet spot, what the document sets is the place to go back to.
        self._home = next((mark for word in (SWEET_SPOT, DEFAULT) for mark in marks if mark.word == word), None)
        if self._home is not None:
            where = "the sweet spot" if self._home.word == SWEET_SPOT else "the document's own"
            words = f"{BACK} to {where}, λ {strength(self._home.value)}"
            self.home.setToolTip(as_letters(words))
            self.home.setAccessibleName(words)
        self._show_home()
        self.track.update()

    def set_value(self, value: float) -> None:
        """Show the λ that holds, unless a person is turning the dial. Says nothing."""
        if self._unsettled or self._held or self.track.isSliderDown():
            return
        if math.isfinite(value):
            self._value = min(max(value, self.field.minimum()), self.field.maximum())
        self._show()

    def value(self) -> float:
        """λ as it is on screen, unrounded where the program set it."""
        return self._value

    def hold(self, on: bool) -> None:
        """Show no other value while a person's is on its way to the engine; each ``True`` needs its ``False``."""
        self._held += 1 if on else -1

    def let_go(self) -> None:
        """Forget a turn that was not said as settled: the dial is about something else now."""
        self._unsettled = False
        self._pause.stop()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        column = QVBoxLayout()
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.track)
        column.addWidget(self.marks)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.M)
        top = Qt.AlignmentFlag.AlignTop
        sign = label("λ", "muted")
        sign.setFixedHeight(self.field.sizeHint().height())
        layout.addWidget(sign, 0, top)
        layout.addLayout(column, 1)
        layout.addWidget(self.field, 0, top)
        layout.addWidget(self.home, 0, top)
        self.track.setFixedHeight(self.field.sizeHint().height())

    def _on_track(self, hundredths: int) -> None:
        value = hundredths / HUNDREDTHS
        if self.track.isSliderDown():
            value = min(max(round(value / STEP) * STEP, self.field.minimum()), self.field.maximum())
        else:
            self._pause.start()
        self._turn(value)

    def _on_field(self, value: float) -> None:
        self._turn(value)

    def _on_released(self) -> None:
        self._settle()
        self.released.emit()

    def _on_mark(self, value: float) -> None:
        self.turn_to(value)
        self.released.emit()

    def _go_home(self) -> None:
        if self._home is None:
            return
        by_mouse = not self.home.hasFocus()
        if not by_mouse:
            # It has nothing more to do and goes: the keyboard stays on the dial.
            self.track.setFocus()
        self.turn_to(self._home.value)
        if by_mouse:
            self.released.emit()

    def turn_to(self, value: float) -> None:
        """A person wants it there: turn it at one go, to a value that is kept as it is."""
        self._value = min(max(value, self.field.minimum()), self.field.maximum())
        self._unsettled = True
        self._show()
        self.moved.emit(self._value)
        self._settle()

    def _show_home(self) -> None:
        away = self._home is not None and abs(self._value - self._home.value) >= 0.005
        # It keeps its room, so that the track does not jump while it is turned.
        self.home.setVisible(self._home is not None)
        self.home.setEnabled(away and self.isEnabled())

    def changeEvent(self, event: QEvent) -> None:
        """The way back is offered where the dial can be turned."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.EnabledChange:
            self._show_home()

    def _turn(self, value: float) -> None:
        self._value = round(value, 2)
        self._unsettled = True
        self._show()
        self.moved.emit(self._value)

    def _settle(self) -> None:
        if self._unsettled and not self.track.isSliderDown():
            self._unsettled = False
            self._pause.stop()
            self.settled.emit(self._value)

    def _show(self) -> None:
        """Both parts show the value; a number that is being typed is left alone."""
        self.track.blockSignals(True)
        self.track.setValue(round(self._value * HUNDREDTHS))
        self.track.blockSignals(False)
        self.track.update()
        if round(self.field.value(), 2) != round(self._value, 2):
            self.field.blockSignals(True)
            self.field.setValue(self._value)
            self.field.blockSignals(False)
        self._show_home()

"""One feature that is steered: what it is, how strong, and how much that is."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame

from engine.public.library import FeatureLabel
from engine.public.steering import STEERING_RANGE, UNMEASURED_END, dial_end
from ui.kit import theme
from ui.kit.basics import ElidedLabel, IconButton, column, label, line, pill, set_pill
from ui.kit.number_field import DecimalField
from ui.kit.plain_text import as_letters
from ui.kit.steady import Slider
from ui.kit.steering_text import reach_words, scale_words, strength

TENTHS, HUNDREDTHS = 10, 100
"""Slider steps to one unit of strength: of a dial with a long way to go, and of one with a short way."""
SHORT = 10.0
"""A dial that ends below this strength has the finer steps."""
MARGIN = 1.25
"""How far a dial reaches beyond a strength that would be outside it."""
GESTURE_MS = 700
"""Key presses nearer together than this are undone together."""
HANDLE = 20
FIELD_WIDTH = 84


class CentredSlider(Slider):
    """A slider whose fill begins at zero, in the middle. The wheel scrolls the page instead of turning it.

    It holds a strength within ±:attr:`end`.
    """

    turned_by_wheel = False

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("centred")
        self.end = 0.0
        self._steps = TENTHS
        self.reach(UNMEASURED_END)
        theme.current().changed.connect(self.update)

    @property
    def strength(self) -> float:
        """The strength it stands at."""
        return self.value() / self._steps

    def show_strength(self, value: float) -> None:
        """Stand at a strength, as near as its steps go."""
        self.setValue(round(value * self._steps))

    def reach(self, end: float) -> None:
        """End at ±``end``; it stands where it stood, as far as that is inside."""
        if end == self.end:
            return
        value, self.end = self.strength, end
        self._steps = TENTHS if end >= SHORT else HUNDREDTHS
        self.setRange(round(-end * self._steps), round(end * self._steps))
        self.setSingleStep(max(1, self._steps // 2 if end >= SHORT else round(end * self._steps / 40)))
        self.setPageStep(max(1, round(end * self._steps / 8)))
        self.setToolTip(as_letters(f"Ends at ±{end:g}; a larger strength can be typed"))
        self.show_strength(value)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the groove and its fill, then let the style put the handle on it."""
        look = theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        middle, centre = self.height() / 2, self.width() / 2
        painter.setBrush(look.colour("line_strong"))
        painter.drawRoundedRect(QRectF(0, middle - 2, self.width(), 4), 2, 2)
        painter.drawRect(QRectF(centre - 0.5, middle - 7, 1, 14))
        share = self.value() / self.maximum()
        end = centre + share * (self.width() - HANDLE) / 2
        painter.setBrush(look.colour("accent" if self.isEnabled() else "disabled"))
        painter.drawRoundedRect(QRectF(min(centre, end), middle - 2, abs(end - centre), 4), 2, 2)
        painter.end()
        super().paintEvent(event)


class StrengthField(DecimalField):
    """The strength as a number; the wheel scrolls the page."""

    turned_by_wheel = False

    def __init__(self) -> None:
        super().__init__()
        self.setRange(-STEERING_RANGE, STEERING_RANGE)
        self.setDecimals(2)
        self.setSingleStep(0.5)
        self.setKeyboardTracking(False)
        self.setFixedWidth(FIELD_WIDTH)
        self.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.lineEdit().setTextMargins(0, 0, theme.S, 0)


class FeatureRow(QFrame):
    """Shows one strength; says what the person wants with signals."""

    changed = Signal(int, float, object)
    """(feature, strength, gesture): the same gesture as long as one drag or run of key presses lasts."""
    removed = Signal(int)

    def __init__(self, index: int) -> None:
        super().__init__()
        self.setObjectName("row")
        self.index = index
        self._gesture: object = object()
        self._row_norm: float | None = None
        self._typical: float | None = None
        self._greatest: float | None = None
        self.title = ElidedLabel("no label", "muted")
        self.scale = label("", "small")
        self.activation = pill("", "info")
        self.activation.hide()
        self.slider = CentredSlider()
        self.field = StrengthField()
        for part in (self.slider, self.field):
            part.setAccessibleName(f"Strength of feature {index}")
        self.remove_button = IconButton("close", f"Remove feature {index}", lambda: self.removed.emit(index))
        head = line(label(f"#{index}", "mono"), spacing=theme.S)
        head.addWidget(self.title, 1)
        head.addWidget(self.activation)
        head.addWidget(self.scale)
        inside = column(spacing=theme.XS, margins=(theme.S, theme.S - 2, theme.XS, theme.S - 2))
        inside.addLayout(head)
        foot = line(spacing=theme.M)
        foot.addWidget(self.slider, 1)
        foot.addWidget(self.field)
        foot.addWidget(self.remove_button)
        inside.addLayout(foot)
        self.setLayout(inside)
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(GESTURE_MS)
        self.slider.sliderPressed.connect(self._begin)
        self.slider.valueChanged.connect(self._on_slider)
        # Said once more at the end, so that what was refused meanwhile is put right on screen.
        self.slider.sliderReleased.connect(lambda: self._tell(self.field.value()))
        self.field.valueChanged.connect(self._on_field)

    def show_value(self, value: float) -> None:
        """Show the strength that holds, unless a person is turning the slider or writing in the field."""
        if not self.slider.isSliderDown():
            self._set_slider(value)
            if not (self.field.hasFocus() and self.field.lineEdit().isModified()):
                self._set_field(value)
        self._show_scale()

    def show_label(self, found: FeatureLabel | None) -> None:
        """Show what is known about the feature."""
        self.title.set_text(found.label if found is not None else "no label")
        greatest = found.max_activation if found is not None else None
        self._greatest = greatest if greatest is not None and greatest > 0 else None
        self._show_scale()
        looks = "strong" if found is not None else "muted"
        if self.title.property("look") != looks:
            self.title.setProperty("look", looks)
            self.title.style().polish(self.title)

    def show_norms(self, row: float | None, typical: float | None) -> None:
        """Length of the feature's decoder row and the typical length of the residual stream there, where known."""
        self._row_norm, self._typical = row, typical
        if not self.slider.isSliderDown():
            self._set_slider(self.field.value())
        self._show_scale()

    def show_activation(self, value: float | None) -> None:
        """Show how strongly the feature fires at the last token that was read; None while that is not known."""
        self.activation.setVisible(value is not None)
        if value is not None:
            set_pill(
                self.activation, f"fires {strength(value)}" if value > 0 else "silent", "info" if value else "quiet"
            )
            self.activation.setToolTip("Its activation at the last token that was read, before this layer's steering")

    # --- inside -----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._gesture = object()

    def _on_slider(self, _steps: int) -> None:
        value = self.slider.strength
        self._set_field(value)
        if not self.slider.isSliderDown():
            if not self._pause.isActive():
                self._begin()
            self._pause.start()
        self._tell(value)

    def _on_field(self, value: float) -> None:
        self._set_slider(value)
        self._begin()
        self._tell(value)

    def _tell(self, value: float) -> None:
        self._show_scale()
        self.changed.emit(self.index, round(value, 2), self._gesture)

    def _set_slider(self, value: float) -> None:
        self.slider.blockSignals(True)
        end = dial_end(self._row_norm, self._typical)
        self.slider.reach(end if abs(value) <= end else min(STEERING_RANGE, MARGIN * abs(value)))
        self.slider.show_strength(value)
        self.slider.blockSignals(False)
        self.slider.update()

    def _set_field(self, value: float) -> None:
        self.field.blockSignals(True)
        self.field.setValue(value)
        self.field.blockSignals(False)

    def _show_scale(self) -> None:
        value, words, told = self.field.value(), [], []
        if self._row_norm is not None and self._typical:
            words.append(scale_words(value, self._row_norm, self._typical))
            told.append("How long what this feature adds is beside the residual stream's usual length at this layer.")
        if self._greatest is not None:
            words.append(reach_words(value, self._greatest))
            told.append("How much the strength is beside the strongest activation that the source of the label saw.")
        self.scale.setText(" · ".join(words))
        self.scale.setToolTip(as_letters("\n".join(told)))
        self.scale.setVisible(bool(words))

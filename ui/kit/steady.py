"""Numbers, sliders and lists that scrolling past does not change: the wheel counts only where one was chosen before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QFocusEvent, QKeyEvent, QMouseEvent, QWheelEvent
from PySide6.QtWidgets import QAbstractSpinBox, QComboBox, QDoubleSpinBox, QSlider, QSpinBox, QWidget

BY_A_PERSON = (
    Qt.FocusReason.MouseFocusReason,
    Qt.FocusReason.TabFocusReason,
    Qt.FocusReason.BacktabFocusReason,
    Qt.FocusReason.ShortcutFocusReason,
)
PASSING = (
    Qt.FocusReason.PopupFocusReason,
    Qt.FocusReason.ActiveWindowFocusReason,
    Qt.FocusReason.MenuBarFocusReason,
)
"""A list that opens over it, another window: what was chosen before is chosen after."""


if TYPE_CHECKING:
    _Control = QWidget
else:
    # Two Qt classes cannot be mixed.
    _Control = object


class Steady(_Control):
    """Mixed in before a Qt control. Chosen is what a click or Tab gave the keyboard to, not the page or the wheel."""

    turned_by_wheel = True
    """False for what steers as soon as it moves: there the wheel never counts."""

    chosen = False

    def _hold_steady(self) -> None:
        """Take no focus from the wheel; Qt gives it as if by a click. Called once the control is made."""
        if self.focusPolicy() == Qt.FocusPolicy.WheelFocus:
            self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        if isinstance(self, QAbstractSpinBox):
            # A click into a number goes to the field in it.
            self.lineEdit().installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Hear of clicks on the field inside."""
        if event.type() == QEvent.Type.MouseButtonPress:
            self.chosen = True
        return super().eventFilter(watched, event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Note whether a person chose it."""
        if event.reason() not in PASSING:
            self.chosen = event.reason() in BY_A_PERSON
        super().focusInEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """It is chosen no more, unless a list or another window is only in front for a while."""
        # Its own list takes the keyboard for itself, for no reason it would give.
        own_list = isinstance(self, QComboBox) and self.view().isVisible()
        if event.reason() not in PASSING and not own_list:
            self.chosen = False
        super().focusOutEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Who types into it has chosen it."""
        self.chosen = True
        super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Who clicks on it has chosen it, however it came by the keyboard before."""
        self.chosen = True
        super().mousePressEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Leave the wheel to the page around, unless this was chosen."""
        if self.turned_by_wheel and self.chosen and self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()


class WholeBox(Steady, QSpinBox):
    """A whole number."""

    def __init__(self) -> None:
        super().__init__()
        self._hold_steady()


class NumberBox(Steady, QDoubleSpinBox):
    """A number with a fraction."""

    def __init__(self) -> None:
        super().__init__()
        self._hold_steady()


class Slider(Steady, QSlider):
    """A slider that lies."""

    def __init__(self) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self._hold_steady()

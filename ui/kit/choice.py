"""A drop-down list that never cuts a word without saying so, and that a page scrolled past it does not change."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetrics, QPaintEvent
from PySide6.QtWidgets import QComboBox, QStyle, QStyleOptionComboBox, QStylePainter

from ui.kit.steady import Steady

LEAST_TEXT = 24
WIDEST_LIST = 640


class Choice(Steady, QComboBox):
    """Shows the chosen words with an ellipsis where they do not fit; the list that opens is as wide as its words."""

    def __init__(self, mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight) -> None:
        super().__init__()
        self._hold_steady()
        self._mode = mode

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw it as the style does, the words cut to their room: the style sheet's own drawing cuts letters."""
        option = QStyleOptionComboBox()
        self.initStyleOption(option)
        room = self.style().subControlRect(
            QStyle.ComplexControl.CC_ComboBox, option, QStyle.SubControl.SC_ComboBoxEditField, self
        )
        width = max(LEAST_TEXT, room.width() - 2)
        whole = option.currentText
        option.currentText = QFontMetrics(self.font()).elidedText(whole, self._mode, width)
        painter = QStylePainter(self)
        painter.drawComplexControl(QStyle.ComplexControl.CC_ComboBox, option)
        painter.drawControl(QStyle.ControlElement.CE_ComboBoxLabel, option)
        painter.end()

    def showPopup(self) -> None:
        """Open the list, wide enough for its words."""
        view = self.view()
        wanted = view.sizeHintForColumn(0) + 2 * view.frameWidth() + 24
        view.setMinimumWidth(min(max(self.width(), wanted), WIDEST_LIST))
        view.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        super().showPopup()

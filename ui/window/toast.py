"""A short message that passes, over the page, so that nothing moves when it comes or goes.

It lies in the lower right corner, or as near to it as it covers no control.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, Qt, QTimer
from PySide6.QtGui import QHideEvent, QMouseEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QWidget

from ui.kit import theme
from ui.kit.basics import column, label
from ui.kit.overlay_place import controls_in, free_place

WIDTH = 252
PASSES_MS = 6_000
LOOKS_MS = 250
"""How often it looks whether something has come under it: a page answers to the same news as the word does."""


class Toast(QFrame):
    """Lies over its parent; a click takes it away."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._around = parent
        self.setObjectName("passing")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground, True)
        self.words = label("", "small", wrap=True)
        inside = column(margins=(theme.M, theme.S, theme.M, theme.S))
        inside.addWidget(self.words)
        self.setLayout(inside)
        self._inside = inside
        self.setFixedWidth(WIDTH)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(PASSES_MS)
        self._timer.timeout.connect(self.hide)
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.timeout.connect(self._place)
        self._clear_of: list[QRect] = []
        self._looks = QTimer(self)
        self._looks.setInterval(LOOKS_MS)
        self._looks.timeout.connect(self._look_again)
        self.hide()
        parent.installEventFilter(self)

    def show_words(self, words: str) -> None:
        """Show ``words`` for a while; nothing where they are empty."""
        self.words.setText(words)
        self.setVisible(bool(words))
        if words:
            self._place()
            self.raise_()
            self._timer.start()

    def follow(self) -> None:
        """Another page is in front: cover none of its controls either, once they have their places."""
        if self.isVisible():
            self._soon.start()

    def showEvent(self, event: QShowEvent) -> None:
        """Look out for what comes under it."""
        super().showEvent(event)
        self._looks.start()

    def hideEvent(self, event: QHideEvent) -> None:
        """Rest."""
        super().hideEvent(event)
        self._looks.stop()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Go."""
        event.accept()
        if event.button() == Qt.MouseButton.LeftButton:
            self.hide()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Stay in the corner."""
        if event.type() == QEvent.Type.Resize and self.isVisible():
            self._place()
        return super().eventFilter(watched, event)

    def _look_again(self) -> None:
        taken = controls_in(self._around, (self,))
        # Only where something else is there: it does not wander about, and what has no free place is left as it is.
        if taken != self._clear_of and any(each.intersects(self.geometry()) for each in taken):
            self._place()

    def _place(self) -> None:
        around = self._around
        self.setFixedHeight(self._inside.totalHeightForWidth(WIDTH))
        room = around.rect().adjusted(theme.L, theme.L, -theme.L, -theme.L)
        corner = QPoint(room.right() + 1 - WIDTH, room.bottom() + 1 - self.height())
        self._clear_of = controls_in(around, (self,))
        self.move(free_place(self.size(), corner, room, self._clear_of))

"""A short message that passes, over the page, so that nothing moves when it comes or goes.

It lies in the lower right corner, or as near to it as it covers no control.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, QTimer
from PySide6.QtGui import QHideEvent, QMouseEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QWidget

from ui import theme
from ui.widgets.basics import column, label
from ui.widgets.free_place import controls_in, free_place

WIDTH = 252
PASSES_MS = 6_000
FOLLOW_MS = 100
"""How often it looks whether a control has come under it: pages fill themselves after they are in front."""


class PassingWord(QFrame):
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
        self._watch = QTimer(self)
        self._watch.setInterval(FOLLOW_MS)
        self._watch.timeout.connect(self._keep_clear)
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

    def showEvent(self, event: QShowEvent) -> None:
        """Look what comes under it as long as it is seen."""
        super().showEvent(event)
        self._watch.start()

    def hideEvent(self, event: QHideEvent) -> None:
        """Nothing can be covered any more."""
        super().hideEvent(event)
        self._watch.stop()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Go."""
        event.accept()
        self.hide()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Stay in the corner."""
        if event.type() == QEvent.Type.Resize and self.isVisible():
            self._place()
        return super().eventFilter(watched, event)

    def _keep_clear(self) -> None:
        if any(each.intersects(self.geometry()) for each in controls_in(self._around, (self,))):
            self._place()

    def _place(self) -> None:
        around = self._around
        self.setFixedHeight(self._inside.totalHeightForWidth(WIDTH))
        room = around.rect().adjusted(theme.L, theme.L, -theme.L, -theme.L)
        corner = QPoint(room.right() + 1 - WIDTH, room.bottom() + 1 - self.height())
        self.move(free_place(self.size(), corner, room, controls_in(around, (self,))))

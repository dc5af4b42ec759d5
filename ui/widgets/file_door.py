"""Files and folders that are dropped on a page: a veil says what would happen, a signal says what came."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QLabel, QWidget

from ui import theme


class FileDoor(QObject):
    """Watches ``page``. ``wanted`` says of a path whether it is worth taking; what is not is left to others."""

    dropped = Signal(list)
    """The paths, as ``pathlib.Path``."""

    def __init__(self, page: QWidget, words: str, wanted: Callable[[Path], bool]) -> None:
        super().__init__(page)
        self._page = page
        self._wanted = wanted
        self.veil = QLabel(words, page)
        self.veil.setTextFormat(Qt.TextFormat.PlainText)
        self.veil.setObjectName("veil")
        self.veil.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.veil.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.veil.hide()
        page.setAcceptDrops(True)
        page.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Take what is dragged over the page, if it is wanted."""
        if watched is not self._page:
            return False
        kind = event.type()
        if isinstance(event, QDropEvent):  # drag enter and move are drop events too
            paths = self._paths(event)
            if not paths:
                event.ignore()
                return kind == QEvent.Type.Drop
            event.acceptProposedAction()
            if kind == QEvent.Type.Drop:
                self.veil.hide()
                self.dropped.emit(paths)
            else:
                self._show_veil()
            return True
        if kind == QEvent.Type.DragLeave:
            self.veil.hide()
        elif kind == QEvent.Type.Resize and not self.veil.isHidden():
            self._show_veil()
        return False

    def _show_veil(self) -> None:
        self.veil.setGeometry(self._page.rect().adjusted(theme.M, theme.M, -theme.M, -theme.M))
        self.veil.raise_()
        self.veil.show()

    def _paths(self, event: QDropEvent) -> list[Path]:
        urls = event.mimeData().urls()
        return [path for url in urls if url.isLocalFile() and self._wanted(path := Path(url.toLocalFile()))]

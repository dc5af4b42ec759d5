"""Files and documents dropped anywhere on the window: a veil while they are over it, then a signal."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QEvent, QMimeData, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QApplication, QWidget

from ui.kit import theme
from ui.kit.basics import label

VEIL_MS = 3000
"""So long after the last sign of a drag the veil goes: a drag that ends elsewhere says nothing at all."""
WORDS = "Drop it here: a model, an SAE, a document or labels"


class DropTarget(QObject):
    """Watches ``window``. Words and links that are dragged stay with the fields they are dragged to."""

    files = Signal(list)
    """What was dropped, as ``pathlib.Path``."""
    text = Signal(str)
    """A document that was dropped as its text."""
    lost = Signal(str)
    """Something was dropped and did not come, or lies elsewhere: what to say."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self._handle: QObject | None = None
        self.veil = label(WORDS, wrap=True)
        self.veil.setParent(window)
        self.veil.setObjectName("veil")
        self.veil.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.veil.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.veil.hide()
        self._over = QTimer(self)
        self._over.setSingleShot(True)
        self._over.setInterval(VEIL_MS)
        self._over.timeout.connect(self.veil.hide)
        window.setAcceptDrops(True)
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Take files before any widget does: a field would take their names for words. Documents as text come last."""
        kind = event.type()
        if kind == QEvent.Type.Show and watched is self._window:
            self._watch_handle()
        if isinstance(event, QDropEvent):  # drag enter and move are drop events too
            return self._on_drag(event, documents=watched is self._window)
        if kind == QEvent.Type.DragLeave:
            self._end()
        elif kind == QEvent.Type.Resize and not self.veil.isHidden():
            self._show_veil()
        return False

    def _watch_handle(self) -> None:
        handle = self._window.windowHandle()
        if handle is not None and handle is not self._handle:
            self._handle = handle
            handle.installEventFilter(self)

    def _on_drag(self, event: QDropEvent, *, documents: bool) -> bool:
        data, dropped = event.mimeData(), event.type() == QEvent.Type.Drop
        wanted = _has_files(data) or (documents and _document(data) != "")
        # What is let go while the veil is up was promised a moment ago.
        promised = dropped and not self.veil.isHidden()
        if dropped:
            self._end()
        if QApplication.activeModalWidget() is not None or not (wanted or promised):
            if documents:
                event.ignore()
            return documents and dropped
        event.acceptProposedAction()
        if dropped:
            self._take(data)
        else:
            self._show_veil()
        return True

    def _take(self, data: QMimeData) -> None:
        paths = [Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile()]
        elsewhere = [url.toString() for url in data.urls() if not url.isLocalFile()]
        if paths:
            self.files.emit(paths)
        elif elsewhere:
            self.lost.emit(f"{elsewhere[0]} is not a file of this computer. Save it here first, then drop that.")
        elif text := _document(data):
            self.text.emit(text)
        else:
            self.lost.emit("What was dropped did not come. Try it again, or use Import… or Add on its page.")

    def _show_veil(self) -> None:
        self.veil.setGeometry(self._window.rect().adjusted(theme.M, theme.M, -theme.M, -theme.M))
        self.veil.raise_()
        self.veil.show()
        self._over.start()

    def _end(self) -> None:
        self._over.stop()
        self.veil.hide()


def _has_files(data: QMimeData) -> bool:
    """Files of this computer or of a share; a link to a page in the web is words."""
    return any(url.isLocalFile() or url.scheme() not in ("http", "https", "mailto") for url in data.urls())


def _document(data: QMimeData) -> str:
    """Text that looks like a document, else nothing."""
    text = data.text() if data.hasText() and not data.hasUrls() else ""
    return text if text.lstrip().startswith("{") else ""

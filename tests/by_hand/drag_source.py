"""A small window from whose middle a file can be dragged: ``python -m tests.by_hand.drag_source FILE``."""

from __future__ import annotations

import sys
from pathlib import Path

from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtGui import QDrag, QMouseEvent
from PySide6.QtWidgets import QApplication, QLabel


class Source(QLabel):
    """Begins a drag of the file when it is pressed."""

    def __init__(self, file: Path) -> None:
        super().__init__("file")
        self._file = file
        self.setWindowTitle("drag source")
        self.setWindowFlags(
            Qt.WindowType.FramelessWindowHint
            | Qt.WindowType.WindowStaysOnTopHint
            | Qt.WindowType.WindowDoesNotAcceptFocus
        )
        self.setGeometry(0, 0, 48, 28)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        data = QMimeData()
        data.setUrls([QUrl.fromLocalFile(str(self._file))])
        drag = QDrag(self)
        drag.setMimeData(data)
        drag.exec(Qt.DropAction.CopyAction)


if __name__ == "__main__":
    app = QApplication(sys.argv[:1])
    source = Source(Path(sys.argv[1]))
    source.show()
    sys.exit(app.exec())

"""Another program with a text on the clipboard: ``python -m tests.by_hand.clipboard TEXT``; says a line once it is."""

from __future__ import annotations

import sys

from PySide6.QtCore import QTimer
from PySide6.QtGui import QGuiApplication

if __name__ == "__main__":
    app = QGuiApplication(sys.argv[:1])
    app.clipboard().setText(sys.argv[1])
    QTimer.singleShot(200, lambda: print("copied", flush=True))
    sys.exit(app.exec())

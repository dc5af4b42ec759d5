"""The program, and beside it a thread that tells where its widgets are: ``python -m tests.by_hand.program PORT …``.

It answers lines on a loopback socket and does nothing else: no event is made here, no widget is changed. What is asked
for is looked up on the window's thread.
"""

from __future__ import annotations

import json
import socketserver
import sys
import threading
import time
from concurrent.futures import Future
from typing import Any

from app.__main__ import main  # isort: skip  # prepares the environment before anything heavy
from PySide6.QtCore import QObject, QPoint, Qt, Signal, Slot
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QAbstractSlider,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QTabBar,
    QTextEdit,
    QToolButton,
    QWidget,
)
from shiboken6 import getCppPointer


class Looker(QObject):
    """Looks on the window's thread."""

    asked = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.asked.connect(self._look, Qt.ConnectionType.QueuedConnection)

    def look(self) -> Any:
        """What is on the screen now; waits until the window's thread has time."""
        future: Future[Any] = Future()
        self.asked.emit(future)
        return future.result(120)

    @Slot(object)
    def _look(self, future: Future[Any]) -> None:
        try:
            future.set_result(
                {"windows": [_window(each) for each in QApplication.topLevelWidgets() if each.isVisible()]}
            )
        except Exception as error:
            future.set_exception(error)


def _window(window: QWidget) -> dict[str, Any]:
    return {
        "title": window.windowTitle(),
        "class": type(window).__name__,
        "active": window.isActiveWindow(),
        "rect": _rect(window),
        "page": getattr(window, "open_page", None),
        "widgets": [_widget(each) for each in window.findChildren(QWidget) if each.isVisible()],
    }


def _rect(widget: QWidget) -> list[int]:
    """Left, top, width and height in pixels of the screen."""
    ratio = widget.devicePixelRatioF()
    corner = widget.mapToGlobal(QPoint(0, 0))
    return [round(each * ratio) for each in (corner.x(), corner.y(), widget.width(), widget.height())]


def _widget(widget: QWidget) -> dict[str, Any]:
    # What scrolls lies behind its own viewport.
    face = widget.viewport() if isinstance(widget, QAbstractScrollArea) else widget
    seen = face.visibleRegion().boundingRect()
    ratio = widget.devicePixelRatioF()
    corner = face.mapToGlobal(seen.topLeft())
    shown = [round(each * ratio) for each in (corner.x(), corner.y(), seen.width(), seen.height())]
    middle = face.mapToGlobal(seen.center())
    there = QApplication.widgetAt(middle)
    return {
        "id": getCppPointer(widget)[0],
        "class": type(widget).__name__,
        "inside": [type(each).__name__ for each in _around(widget)],
        "around": [getCppPointer(each)[0] for each in _around(widget)],
        "kind": _kind(widget),
        "name": widget.accessibleName(),
        "object": widget.objectName(),
        "look": widget.property("look"),
        "text": _text(widget),
        "value": _value(widget),
        "range": [widget.minimum(), widget.maximum()] if isinstance(widget, QAbstractSlider) else None,
        "cut": _cut(widget),
        "rect": _rect(widget),
        "shown": shown,
        "on_top": there is not None and (there is widget or widget.isAncestorOf(there)),
        "enabled": widget.isEnabled(),
        "focus": widget.hasFocus(),
        "tab": bool(widget.focusPolicy() & Qt.FocusPolicy.TabFocus) and not _behind_another(widget),
    }


def _around(widget: QWidget) -> list[QWidget]:
    """What it lies in, from near to far."""
    found = []
    above = widget.parentWidget()
    while above is not None:
        found.append(above)
        above = above.parentWidget()
    return found


def _behind_another(widget: QWidget) -> bool:
    """Whether Tab comes to another for it: to the dial or number it is a part of; of buttons of which one is chosen, to
    that one, and the arrows go on to the others.
    """
    above = widget.parentWidget()
    if above is not None and (isinstance(above, QAbstractSpinBox) or above.focusProxy() is widget):
        return True
    if not isinstance(widget, QAbstractButton) or not widget.isCheckable() or widget.isChecked():
        return False
    group = widget.group()
    return widget.autoExclusive() or (group is not None and group.exclusive())


def _cut(widget: QWidget) -> bool:
    """Whether its words want more room than it has."""
    if isinstance(widget, QLabel) and widget.text():
        if widget.wordWrap():
            return widget.heightForWidth(widget.width()) > widget.height() + 2
        return type(widget) is QLabel and widget.sizeHint().width() > widget.width() + 1
    if isinstance(widget, QAbstractButton) and widget.text():
        hint = widget.minimumSizeHint() if isinstance(widget, QToolButton) else widget.sizeHint()
        return hint.width() > widget.width() + 1 or hint.height() > widget.height() + 1
    return False


def _kind(widget: QWidget) -> str | None:
    for kind, name in (
        (QAbstractButton, "button"),
        (QComboBox, "combo"),
        (QAbstractSpinBox, "spin"),
        (QAbstractSlider, "slider"),
        (QTabBar, "tabs"),
        (QLineEdit, "line"),
        (QPlainTextEdit, "edit"),
        (QTextEdit, "edit"),
        (QLabel, "label"),
    ):
        if isinstance(widget, kind):
            return name
    return "dial" if "Dial" in type(widget).__name__ else None


def _text(widget: QWidget) -> str:
    for name in ("text", "toPlainText", "currentText", "title"):
        found = getattr(widget, name, None)
        if callable(found):
            try:
                return str(found())[:4000]
            except TypeError:
                continue
    return ""


def _value(widget: QWidget) -> Any:
    if isinstance(widget, QAbstractButton):
        return widget.isChecked() if widget.isCheckable() else None
    if isinstance(widget, QComboBox | QTabBar):
        return widget.currentIndex()
    found = getattr(widget, "value", None)
    if callable(found):
        try:
            value = found()
        except TypeError:
            return None
        return value if isinstance(value, int | float | str) else None
    return None


def _serve(port: int) -> None:
    while QApplication.instance() is None:
        time.sleep(0.02)
    looker = Looker()
    looker.moveToThread(QApplication.instance().thread())

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for _ in self.rfile:
                self.wfile.write(json.dumps(looker.look()).encode() + b"\n")

    socketserver.ThreadingTCPServer.allow_reuse_address = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        server.serve_forever()


if __name__ == "__main__":
    threading.Thread(target=_serve, args=(int(sys.argv[1]),), daemon=True).start()
    sys.argv[:] = ["millm", *sys.argv[2:]]
    sys.exit(main())

"""Dragging files over a widget and dropping them, as the desktop does it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QEvent, QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QWidget


def drag_over(widget: QWidget, paths: Sequence[Path]) -> tuple[bool, QMimeData]:
    """Whether the widget takes what is dragged over it; the data has to live until the drop."""
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    enter = QDragEnterEvent(
        widget.rect().center(),
        Qt.DropAction.CopyAction,
        data,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    enter.ignore()
    QApplication.sendEvent(widget, enter)
    return enter.isAccepted(), data


def drag_away(widget: QWidget) -> None:
    QApplication.sendEvent(widget, QDragLeaveEvent())


def drop(widget: QWidget, paths: Sequence[Path]) -> bool:
    """Drag ``paths`` over the widget and let go there; whether it took them."""
    accepted, data = drag_over(widget, paths)
    if not accepted:
        return False
    event = QDropEvent(
        QPointF(widget.rect().center()),
        Qt.DropAction.CopyAction,
        data,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
        QEvent.Type.Drop,
    )
    QApplication.sendEvent(widget, event)
    return event.isAccepted()

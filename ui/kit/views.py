"""Lists, tables and trees in which only the left button chooses.

Qt's own make a row current by any button, and tell of a double click by any. Here a row that becomes current is opened,
and one that is clicked twice leads elsewhere: neither is what a right click asks for. The menu it opens, where there is
one, is about the row under the pointer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QAbstractItemView, QListWidget, QTableView, QTreeWidget

if TYPE_CHECKING:
    _View = QAbstractItemView
else:
    _View = object


class _LeftChooses(_View):
    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Only the left button chooses."""
        if event.button() == Qt.MouseButton.LeftButton:
            super().mousePressEvent(event)
        else:
            event.accept()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Only the left button clicks twice."""
        if event.button() == Qt.MouseButton.LeftButton:
            super().mouseDoubleClickEvent(event)
        else:
            event.accept()


class RowList(_LeftChooses, QListWidget):
    """A list."""


class RowTable(_LeftChooses, QTableView):
    """A table over a model."""


class RowTree(_LeftChooses, QTreeWidget):
    """A tree."""

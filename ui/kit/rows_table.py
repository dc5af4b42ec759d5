"""A table of frozen rows: each column says how a row shows in it and how rows sort by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QAbstractItemView, QFrame, QHeaderView

from engine.checked import there
from ui.kit import theme
from ui.kit.plain_text import as_letters
from ui.kit.views import RowTable

Row = TypeVar("Row")
_Index = QModelIndex | QPersistentModelIndex


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column. ``sort`` gives the key rows are sorted by; None: the column does not sort.

    ``width`` is in device-independent pixels; 0 takes what is left over.
    """

    head: str
    text: Callable[[Row], str]
    width: int = 0
    right: bool = False
    muted: bool = False
    mono: bool = False
    tip: str = ""
    sort: Callable[[Row], Any] | None = None


class RowsModel(QAbstractTableModel, Generic[Row]):
    """Rows and columns for a view. Replaced rows keep the order a person chose."""

    def __init__(self, columns: Sequence[Column[Row]]) -> None:
        super().__init__()
        self.columns = tuple(columns)
        self.rows: list[Row] = []
        self._given: list[Row] = []
        self._order: tuple[int, bool] | None = None

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show other rows."""
        self.beginResetModel()
        self._given = list(rows)
        self.rows = self._sorted()
        self.endResetModel()

    @property
    def given(self) -> list[Row]:
        """The rows in the order they were given."""
        return self._given

    def rowCount(self, parent: _Index | None = None) -> int:
        """How many rows."""
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def columnCount(self, parent: _Index | None = None) -> int:
        """How many columns."""
        return 0 if parent is not None and parent.isValid() else len(self.columns)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """The heads and what they mean."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        column = self.columns[section]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.head
        if role == Qt.ItemDataRole.ToolTipRole:
            return as_letters(column.tip) or None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        return None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """One cell."""
        column = self.columns[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.text(self.rows[index.row()])
        if role == Qt.ItemDataRole.ToolTipRole:
            return as_letters(column.text(self.rows[index.row()]))
        if role == Qt.ItemDataRole.ForegroundRole and column.muted:
            return theme.current().colour("muted")
        if role == Qt.ItemDataRole.FontRole and column.mono:
            return theme.current().mono("small")
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        return None

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Sort by a column, where it sorts."""
        if not 0 <= column < len(self.columns) or self.columns[column].sort is None:
            return
        self.layoutAboutToBeChanged.emit()
        self._order = (column, order == Qt.SortOrder.DescendingOrder)
        self.rows = self._sorted()
        self.layoutChanged.emit()

    def _sorted(self) -> list[Row]:
        if self._order is None:
            return list(self._given)
        column, largest_first = self._order
        key = there(self.columns[column].sort)
        return sorted(self._given, key=key, reverse=largest_first)


class RowsTable(RowTable, Generic[Row]):
    """A table view in our look; Enter, a click or a double click on a row says ``chosen``."""

    chosen = Signal(object)
    """The row."""

    def __init__(self, columns: Sequence[Column[Row]], name: str, *, sortable: bool = False) -> None:
        super().__init__()
        self.rows = RowsModel(columns)
        self.rows.setParent(self)
        self.setModel(self.rows)
        self.setAccessibleName(name)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setTabKeyNavigation(False)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(theme.current().pixels("body") + 14)
        head = self.horizontalHeader()
        head.setHighlightSections(False)
        head.setMinimumSectionSize(36)
        for place, column in enumerate(columns):
            if column.width:
                head.setSectionResizeMode(place, QHeaderView.ResizeMode.Interactive)
                head.resizeSection(place, column.width)
            else:
                head.setSectionResizeMode(place, QHeaderView.ResizeMode.Stretch)
        if sortable:
            head.setSortIndicator(-1, Qt.SortOrder.DescendingOrder)
            self.setSortingEnabled(True)
        self.clicked.connect(self._choose)

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show other rows, and keep the place in the list."""
        bar = self.verticalScrollBar()
        where = bar.value()
        self.rows.set_rows(rows)
        bar.setValue(where)

    def current(self) -> Row | None:
        """The row that is selected."""
        index = self.currentIndex()
        return self.rows.rows[index.row()] if index.isValid() and index.row() < len(self.rows.rows) else None

    def selected(self) -> list[Row]:
        """The rows that are selected, from the top."""
        places = sorted({index.row() for index in self.selectionModel().selectedRows()})
        return [self.rows.rows[place] for place in places]

    def select_many(self) -> None:
        """Let several rows be selected."""
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter chooses the row."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._choose(self.currentIndex())
        else:
            super().keyPressEvent(event)

    def _choose(self, index: QModelIndex) -> None:
        if index.isValid():
            self.chosen.emit(self.rows.rows[index.row()])


def _alignment(column: Column[Any]) -> Qt.AlignmentFlag:
    side = Qt.AlignmentFlag.AlignRight if column.right else Qt.AlignmentFlag.AlignLeft
    return side | Qt.AlignmentFlag.AlignVCenter

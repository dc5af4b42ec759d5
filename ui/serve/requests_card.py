"""The card with the requests of late: a table that fills by itself, and everything known about the one chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QCheckBox,
    QFormLayout,
    QFrame,
    QHeaderView,
    QLabel,
    QScrollArea,
    QSizePolicy,
    QWidget,
)

from engine.events import RequestRecorded
from ui.kit import theme
from ui.kit.basics import Button, Card, CopyButton, column, label, line
from ui.kit.plain_text import as_letters
from ui.kit.text import count
from ui.kit.views import RowTable
from ui.serve import request_text as words

LIMIT = 500
TABLE_HEIGHT = 320
DETAIL_WIDTH = 272
_Index = QModelIndex | QPersistentModelIndex

COLUMNS: tuple[tuple[str, int, Callable[[RequestRecorded], str]], ...] = (
    ("Time", 94, words.moment),
    ("Client", 124, lambda entry: entry.client),
    ("Dialect", 112, words.asked_for),
    ("Model", 150, lambda entry: entry.model or "–"),
    ("Steering", 0, words.steering),
    ("Tokens/s", 74, words.speed),
    ("Wrote", 92, words.written),
    ("Status", 110, words.status),
    ("Ignored fields", 110, words.ignored),
)
"""Head, width in pixels (0: what is left), and the text of a request."""

MODEL, STEERING, SPEED, WROTE, STATUS, IGNORED = 3, 4, 5, 6, 7, 8
LEAST_STEERING = 200
"""Room for what steered: the columns of :data:`FIRST_TO_GO` make it, whose words the details have too."""
FIRST_TO_GO = (MODEL, IGNORED, SPEED, WROTE)


class RequestsModel(QAbstractTableModel):
    """The newest first; an entry that ends takes the place of the one that began."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: list[RequestRecorded] = []
        self._hidden = False
        self._clusters: frozenset[str] = frozenset()

    def know_clusters(self, names: Iterable[str]) -> None:
        """Which names in reports are those of clusters."""
        self._clusters = frozenset(names)
        if self._entries:
            self.dataChanged.emit(self.index(0, STEERING), self.index(len(self._entries) - 1, STEERING))

    def set_entries(self, entries: Sequence[RequestRecorded]) -> None:
        """Show these, given the oldest first."""
        self.beginResetModel()
        self._entries = [entry for entry in reversed(entries) if self._wanted(entry)][:LIMIT]
        self.endResetModel()

    def hide_side_calls(self, hidden: bool, entries: Sequence[RequestRecorded]) -> None:
        """Leave side calls out, or take them in again."""
        self._hidden = hidden
        self.set_entries(entries)

    def put(self, entry: RequestRecorded) -> None:
        """Add a request, or the later state of one that is there."""
        place = next((row for row, each in enumerate(self._entries) if each.number == entry.number), None)
        if place is not None:
            if not self._wanted(entry):
                self.beginRemoveRows(QModelIndex(), place, place)
                del self._entries[place]
                self.endRemoveRows()
                return
            self._entries[place] = entry
            self.dataChanged.emit(self.index(place, 0), self.index(place, len(COLUMNS) - 1))
        elif self._wanted(entry):
            # A short one may end before a long one that came earlier.
            place = next(
                (row for row, each in enumerate(self._entries) if each.number < entry.number), len(self._entries)
            )
            self.beginInsertRows(QModelIndex(), place, place)
            self._entries.insert(place, entry)
            self.endInsertRows()
            if len(self._entries) > LIMIT:
                self.beginRemoveRows(QModelIndex(), LIMIT, len(self._entries) - 1)
                del self._entries[LIMIT:]
                self.endRemoveRows()

    def entry(self, row: int) -> RequestRecorded | None:
        """The request in a row."""
        return self._entries[row] if 0 <= row < len(self._entries) else None

    def row_of(self, number: int) -> int | None:
        """The row of a request."""
        return next((row for row, each in enumerate(self._entries) if each.number == number), None)

    def _wanted(self, entry: RequestRecorded) -> bool:
        return not (self._hidden and entry.side_call)

    # --- for the view -----------------------------------------------------------------------------------------------

    def rowCount(self, parent: _Index | None = None) -> int:
        """How many requests."""
        return 0 if parent is not None and parent.isValid() else len(self._entries)

    def columnCount(self, parent: _Index | None = None) -> int:
        """How many columns."""
        return 0 if parent is not None and parent.isValid() else len(COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """The heads."""
        if orientation is Qt.Orientation.Horizontal:
            if role == Qt.ItemDataRole.DisplayRole:
                return COLUMNS[section][0]
            if role == Qt.ItemDataRole.TextAlignmentRole:
                return _alignment(section)
        return None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """A cell: text, colour, tooltip."""
        entry = self._entries[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            found = index.column() == STEERING
            told = words.steering(entry, self._clusters) if found else COLUMNS[index.column()][2](entry)
            return told if role == Qt.ItemDataRole.DisplayRole else as_letters(told)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(index.column())
        if role == Qt.ItemDataRole.ForegroundRole:
            if index.column() == STATUS:
                return theme.current().colour(words.tone(entry))
            if entry.side_call:
                return theme.current().colour("muted")
        return None


def _alignment(section: int) -> Qt.AlignmentFlag:
    side = Qt.AlignmentFlag.AlignRight if section == SPEED else Qt.AlignmentFlag.AlignLeft
    return side | Qt.AlignmentFlag.AlignVCenter


class RequestDetail(QFrame):
    """Everything known about one request, in rows that can be selected."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("inset")
        self.setFixedWidth(DETAIL_WIDTH)
        self._entry: RequestRecorded | None = None
        self.copy = CopyButton(self._text, "Copy what is known about this request")
        self.empty = label("Choose a request to see what is known about it.", "muted", wrap=True)
        self._shown: list[tuple[QLabel, QLabel]] = []
        self._rows = QFormLayout()
        self._rows.setContentsMargins(0, 0, theme.S, 0)
        self._rows.setHorizontalSpacing(theme.M)
        self._rows.setVerticalSpacing(theme.XS)
        self._rows.setRowWrapPolicy(QFormLayout.RowWrapPolicy.DontWrapRows)
        self._rows.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
        body = QWidget()
        body.setObjectName("scrollBody")
        body.setLayout(self._rows)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(body)
        inside = column(spacing=theme.XS, margins=(theme.M, theme.XS, theme.XS, theme.S))
        inside.addLayout(line(label("Details", "group"), None, self.copy))
        inside.addWidget(self.empty)
        inside.addWidget(scroll, 1)
        self.setLayout(inside)
        self.show_entry(None)

    def show_entry(self, entry: RequestRecorded | None) -> None:
        """Show a request, or that none is chosen."""
        if entry == self._entry and self._rows.rowCount():
            return
        self._entry = entry
        self._shown.clear()
        while self._rows.rowCount():
            self._rows.removeRow(0)
        self.empty.setVisible(entry is None)
        self.copy.setVisible(entry is not None)
        for head, value in words.details(entry) if entry is not None else ():
            shown = label(value, "small", wrap=True, selectable=True)
            shown.setMinimumWidth(40)
            shown.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
            heading = label(head, "caption")
            self._rows.addRow(heading, shown)
            self._shown.append((heading, shown))

    def rows(self) -> dict[str, str]:
        """Head → value, as shown."""
        return {head.text(): value.text() for head, value in self._shown}

    def _text(self) -> str:
        return "" if self._entry is None else words.as_text(self._entry)


class RequestsCard(Card):
    """Shows requests as they come; says with a signal that they are to be forgotten."""

    cleared = Signal()
    side_calls_hidden = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        self.total = label("", "small")
        self.model = RequestsModel()
        self.model.setParent(self)
        self.hide_side_calls = QCheckBox("Hide side calls")
        self.hide_side_calls.setToolTip("What chat clients ask for beside the conversation: titles, tags, follow-ups")
        self.hide_side_calls.toggled.connect(self.side_calls_hidden)
        self.clear_button = Button("Clear", "quiet", on_click=self.cleared.emit)
        self.table = RowTable()
        self.table.setModel(self.model)
        self.table.setAccessibleName("Recent requests")
        self.table.setFrameShape(QFrame.Shape.NoFrame)
        self.table.setShowGrid(False)
        self.table.setWordWrap(False)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.table.setTabKeyNavigation(False)
        self.table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(theme.current().pixels("body") + 14)
        head = self.table.horizontalHeader()
        head.setHighlightSections(False)
        head.setMinimumSectionSize(48)
        for section, (_head, width, _text) in enumerate(COLUMNS):
            if width:
                self.table.setColumnWidth(section, width)
            else:
                head.setSectionResizeMode(section, QHeaderView.ResizeMode.Stretch)
        self.table.selectionModel().currentRowChanged.connect(self._on_chosen)
        self.model.dataChanged.connect(self._on_data)
        self.model.modelReset.connect(self._on_reset)
        self.detail = RequestDetail()
        self.empty = label(
            "Nothing has asked yet. Requests of other programs appear here as they come; the text of prompts and "
            "answers is never kept.",
            "muted",
            wrap=True,
        )
        self._area = QWidget()
        across = line(spacing=theme.M)
        across.addWidget(self.table, 1)
        across.addWidget(self.detail)
        self._area.setLayout(across)
        self._area.setFixedHeight(TABLE_HEIGHT)
        self.body.addLayout(
            line(label("Recent requests", "lead"), self.total, None, self.hide_side_calls, self.clear_button)
        )
        self.body.addWidget(self.empty)
        self.body.addWidget(self._area)
        self._refresh()

    def show_entries(self, entries: Sequence[RequestRecorded]) -> None:
        """Show the requests of late, given the oldest first."""
        self.model.set_entries(entries)
        self._refresh()

    def filter(self, entries: Sequence[RequestRecorded]) -> None:
        """Apply the box about side calls to ``entries``."""
        self.model.hide_side_calls(self.hide_side_calls.isChecked(), entries)
        self._refresh()

    def put(self, entry: RequestRecorded) -> None:
        """A request came or ended."""
        chosen = self.chosen()
        self.model.put(entry)
        if chosen is not None and chosen.number == entry.number:
            self.detail.show_entry(entry)
        self._refresh()

    def chosen(self) -> RequestRecorded | None:
        """The request whose details are shown."""
        return self.model.entry(self.table.currentIndex().row())

    def _refresh(self) -> None:
        rows = self.model.rowCount()
        self.empty.setVisible(not rows)
        self._area.setVisible(bool(rows))
        self.clear_button.setEnabled(bool(rows))
        self.total.setText(count(rows) if rows else "")

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Leave out what the details have too, where there is little room for what steered."""
        super().resizeEvent(event)
        margins = self.body.contentsMargins()
        room = self.width() - DETAIL_WIDTH - margins.left() - margins.right() - theme.M
        room -= sum(width for _head, width, _text in COLUMNS)
        for column_ in FIRST_TO_GO:
            hidden = room < LEAST_STEERING
            self.table.setColumnHidden(column_, hidden)
            room += COLUMNS[column_][1] if hidden else 0

    def _on_chosen(self, current: QModelIndex, _before: QModelIndex) -> None:
        self.detail.show_entry(self.model.entry(current.row()))

    def _on_data(self, *_where: object) -> None:
        self.detail.show_entry(self.chosen())

    def _on_reset(self) -> None:
        self.detail.show_entry(None)

"""A list of named things with a line of small print and state words: profiles, clusters, circuits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QLineEdit,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from ui.kit import theme
from ui.kit.basics import column, label
from ui.kit.plain_text import as_letters
from ui.kit.views import RowList

KEY = Qt.ItemDataRole.UserRole
ITEM = Qt.ItemDataRole.UserRole + 1
PAD = 7

_Index = QModelIndex | QPersistentModelIndex


@dataclass(frozen=True)
class Item:
    """A row. ``marks`` are (word, tone) as of a pill; ``key`` is unique in its list."""

    key: str
    title: str
    detail: str
    marks: tuple[tuple[str, str], ...] = ()

    def said(self) -> str:
        """The row for a screen reader and for search."""
        return ", ".join((self.title, *(word for word, _tone in self.marks), self.detail))


class _RowDelegate(QStyledItemDelegate):
    """Paints a title, then state words, then small print, on a rounded ground."""

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        """Two lines, and a third where there are state words."""
        look = theme.current()
        item = index.data(ITEM)
        small = QFontMetrics(look.font("caption")).height()
        height = QFontMetrics(look.font()).height() + small + 3 * theme.S
        if isinstance(item, Item) and item.marks:
            height += small + 4 + theme.XS
        return QSize(120, height)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        """Draw one row."""
        item = index.data(ITEM)
        if not isinstance(item, Item):
            return
        look, state = theme.current(), option.state
        chosen = bool(state & QStyle.StateFlag.State_Selected)
        hovered = bool(state & QStyle.StateFlag.State_MouseOver)
        focused = bool(state & QStyle.StateFlag.State_HasFocus)
        box: QRect = option.rect.adjusted(0, 1, 0, -1)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if chosen or hovered:
            painter.setPen(look.colour("accent") if focused and chosen else Qt.PenStyle.NoPen)
            painter.setBrush(look.colour("accent_soft" if chosen else "raised"))
            painter.drawRoundedRect(box.adjusted(0, 0, -1, -1), theme.RADIUS - 3, theme.RADIUS - 3)
        inside = box.adjusted(theme.M - 2, theme.S - 1, -(theme.M - 2), -(theme.S - 1))
        title_font, small_font = look.font(bold=chosen), look.font("caption")
        painter.setFont(title_font)
        painter.setPen(look.colour("on_accent_soft" if chosen else "text"))
        metrics, small = QFontMetrics(title_font), QFontMetrics(small_font)
        title = metrics.elidedText(item.title, Qt.TextElideMode.ElideRight, inside.width())
        painter.drawText(inside, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft, title)
        top = inside.top() + metrics.height() + theme.XS
        painter.setFont(small_font)
        if item.marks:
            left = inside.left()
            for word, tone in item.marks:
                wide = small.horizontalAdvance(word) + 2 * PAD
                if left > inside.left() and left + wide > inside.right():
                    break
                pill = QRectF(left, top, min(wide, inside.width()), small.height() + 3)
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(look.colour("raised" if tone == "quiet" else _SOFT.get(tone, "raised")))
                if chosen and tone in ("quiet", "info"):
                    painter.setBrush(look.colour("card"))
                painter.drawRoundedRect(pill, theme.RADIUS, theme.RADIUS)
                painter.setPen(look.colour(_INK.get(tone, "muted")))
                room = int(pill.width()) - 2 * PAD + 2
                shown = small.elidedText(word, Qt.TextElideMode.ElideRight, room)
                painter.drawText(pill, Qt.AlignmentFlag.AlignCenter, shown)
                left += int(wide) + theme.XS
            top += small.height() + 3 + theme.XS
        painter.setPen(look.colour("on_accent_soft" if chosen else "muted"))
        words = small.elidedText(item.detail, Qt.TextElideMode.ElideRight, inside.width())
        painter.drawText(QRect(inside.left(), top, inside.width(), small.height()), Qt.AlignmentFlag.AlignLeft, words)
        painter.restore()


_SOFT = {"good": "good_soft", "bad": "bad_soft", "warn": "warn_soft", "info": "accent_soft"}
_INK = {"good": "good", "bad": "bad", "warn": "warn", "info": "on_accent_soft", "quiet": "muted"}


class ItemList(QWidget):
    """Shows items, finds among them, and says which one a person chose."""

    chosen = Signal(str)
    """The key of the row that is current now; empty when none is."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._items: tuple[Item, ...] = ()
        self.search = QLineEdit()
        self.search.setPlaceholderText("Search")
        self.search.setAccessibleName(f"Search {name.lower()}")
        self.search.setClearButtonEnabled(True)
        self.list = RowList()
        self.list.setAccessibleName(name)
        self.list.setItemDelegate(_RowDelegate(self.list))
        self.list.setMouseTracking(True)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.empty = label("", "small", wrap=True)
        self.empty.hide()
        layout = column(spacing=theme.S)
        layout.addWidget(self.search)
        layout.addWidget(self.empty)
        layout.addWidget(self.list, 1)
        self.setLayout(layout)
        self.search.textChanged.connect(lambda _text: self._fill())
        self.list.currentItemChanged.connect(self._on_current)

    def show_items(self, items: Sequence[Item]) -> None:
        """Show these; the row that was current stays so where it is still there."""
        if tuple(items) != self._items:
            self._items = tuple(items)
            self._fill()

    def select(self, key: str) -> bool:
        """Make a row current; False when there is none of that key among those shown."""
        for place in range(self.list.count()):
            row = self.list.item(place)
            if row.data(KEY) == key:
                self.list.setCurrentItem(row)
                return True
        return False

    @property
    def current(self) -> str:
        """The key of the current row, empty without one."""
        row = self.list.currentItem()
        return "" if row is None else str(row.data(KEY))

    def items(self) -> list[Item]:
        """The rows shown, in order."""
        return [self.list.item(place).data(ITEM) for place in range(self.list.count())]

    # --- inside -----------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        wanted = self.search.text().casefold().split()
        shown = [item for item in self._items if all(word in item.said().casefold() for word in wanted)]
        before, focus = self.current, self.list.hasFocus()
        self.list.blockSignals(True)
        self.list.clear()
        for item in shown:
            row = QListWidgetItem(item.title)
            row.setData(KEY, item.key)
            row.setData(ITEM, item)
            row.setData(Qt.ItemDataRole.AccessibleTextRole, item.said())
            row.setToolTip(as_letters(item.title))
            self.list.addItem(row)
        if not (before and self.select(before)) and shown:
            self.list.setCurrentRow(0)
        self.list.blockSignals(False)
        if focus:
            self.list.setFocus()
        self.empty.setText("Nothing here fits the search." if self._items and not shown else "")
        self.empty.setVisible(bool(self.empty.text()))
        if self.current != before:
            self.chosen.emit(self.current)

    def _on_current(self, row: QListWidgetItem | None, _before: QListWidgetItem | None) -> None:
        self.chosen.emit("" if row is None else str(row.data(KEY)))

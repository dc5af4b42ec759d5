"""The saved conversations: search, open, rename in place, delete with a way back."""

from __future__ import annotations

from datetime import UTC, datetime

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPoint, QRect, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QAction, QFontMetrics, QKeySequence, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QLineEdit,
    QListWidgetItem,
    QMenu,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from engine.public.library import ConversationSummary
from ui.kit import theme
from ui.kit.basics import Button, Notice, Surface, column, label
from ui.kit.plain_text import as_letters
from ui.kit.text import messages, when
from ui.kit.views import RowList

ID = Qt.ItemDataRole.UserRole
SUMMARY = Qt.ItemDataRole.UserRole + 1
WRITING = Qt.ItemDataRole.UserRole + 2

SEARCH_DELAY_MS = 200
UNDO_MS = 10_000

_Index = QModelIndex | QPersistentModelIndex


class _RowDelegate(QStyledItemDelegate):
    """Paints a title over a line of small print on a rounded ground."""

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        """Two lines and the air around them."""
        look = theme.current()
        lines = QFontMetrics(look.font()).height() + QFontMetrics(look.font("caption")).height()
        return QSize(120, lines + 3 * theme.S)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        """Draw one conversation."""
        look = theme.current()
        state = option.state
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
        title_font = look.font(bold=chosen)
        metrics = QFontMetrics(title_font)
        painter.setFont(title_font)
        painter.setPen(look.colour("on_accent_soft" if chosen else "text"))
        title = metrics.elidedText(str(index.data()), Qt.TextElideMode.ElideRight, inside.width())
        painter.drawText(inside, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft, title)
        small_font = look.font("caption")
        painter.setFont(small_font)
        painter.setPen(look.colour("on_accent_soft" if chosen else "muted"))
        summary = index.data(SUMMARY)
        words = ""
        if index.data(WRITING):
            words = "writing…"
        elif isinstance(summary, ConversationSummary):
            words = f"{when(summary.updated_at, datetime.now(UTC))} · {messages(summary.message_count)}"
        words = QFontMetrics(small_font).elidedText(words, Qt.TextElideMode.ElideRight, inside.width())
        painter.drawText(inside, Qt.AlignmentFlag.AlignBottom | Qt.AlignmentFlag.AlignLeft, words)
        painter.restore()

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: _Index) -> QWidget:
        """A field for the new title."""
        editor = QLineEdit(parent)
        editor.setMaxLength(200)
        return editor

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: _Index) -> None:
        """Fill the row."""
        editor.setGeometry(option.rect.adjusted(0, 4, 0, -4))


class ConversationList(Surface):
    """Shows summaries and says what the person wants done; changes nothing itself."""

    opened = Signal(int)
    new_wanted = Signal()
    rename_wanted = Signal(int, str)
    delete_wanted = Signal(int)
    undo_wanted = Signal()
    search_changed = Signal(str)

    def __init__(self) -> None:
        super().__init__("listPanel")
        self.search = QLineEdit()
        self.search.setPlaceholderText("Search conversations")
        self.search.setAccessibleName("Search conversations")
        self.search.setClearButtonEnabled(True)
        self.new_button = Button("New chat", "plain", "plus", self.new_wanted.emit)
        self.new_button.setToolTip("Start a new chat (Ctrl+N)")
        self.list = RowList()
        self.list.setItemDelegate(_RowDelegate(self.list))
        self.list.setMouseTracking(True)
        self.list.setUniformItemSizes(True)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.list.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        self.list.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.list.setAccessibleName("Saved conversations")
        self.empty = label("", "small", wrap=True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop)
        self.undo = Notice()
        layout = column(spacing=theme.S, margins=(theme.M, theme.M, theme.M, theme.M))
        for part in (self.new_button, self.search, self.empty):
            layout.addWidget(part)
        layout.addWidget(self.list, 1)
        layout.addWidget(self.undo)
        self.setLayout(layout)
        self._current: int | None = None
        self._writing: set[int] = set()
        self._undo_button: Button | None = None
        self._search_timer = QTimer(self)
        self._search_timer.setSingleShot(True)
        self._search_timer.setInterval(SEARCH_DELAY_MS)
        self._search_timer.timeout.connect(lambda: self.search_changed.emit(self.search.text().strip()))
        self._undo_timer = QTimer(self)
        self._undo_timer.setSingleShot(True)
        self._undo_timer.setInterval(UNDO_MS)
        self._undo_timer.timeout.connect(self.undo.hide)
        self.search.textChanged.connect(lambda _text: self._search_timer.start())
        self.list.itemClicked.connect(self._on_chosen)
        self.list.itemActivated.connect(self._on_chosen)
        self.list.itemChanged.connect(self._on_edited)
        self.list.customContextMenuRequested.connect(self._on_menu)
        # A row that was renamed is not the open one because of that.
        self.list.itemDelegate().closeEditor.connect(lambda *_how: self._mark())
        remove = QAction("Delete", self.list)
        remove.setShortcut(QKeySequence(QKeySequence.StandardKey.Delete))
        remove.setShortcutContext(Qt.ShortcutContext.WidgetShortcut)
        remove.triggered.connect(self._delete_selected)
        self.list.addAction(remove)

    def show_summaries(self, summaries: list[ConversationSummary], searched: bool) -> None:
        """Show these rows in place of what was there; the open conversation stays marked."""
        self.list.blockSignals(True)
        self.list.clear()
        for summary in summaries:
            item = QListWidgetItem(summary.title)
            item.setFlags(item.flags() | Qt.ItemFlag.ItemIsEditable)
            item.setData(ID, summary.id)
            item.setData(SUMMARY, summary)
            item.setData(WRITING, summary.id in self._writing)
            item.setToolTip(as_letters(summary.title))
            self.list.addItem(item)
        self.list.blockSignals(False)
        self.empty.setText("Nothing found." if searched else "Conversations are kept here once you have written one.")
        self.empty.setVisible(not summaries)
        self._mark()

    def remove(self, conversation_id: int) -> None:
        """Take one row away at once, before the list is read anew."""
        for row in range(self.list.count() - 1, -1, -1):
            if self.list.item(row).data(ID) == conversation_id:
                self.list.takeItem(row)

    def set_current(self, conversation_id: int | None) -> None:
        """Mark the conversation that is open, None for a new one."""
        self._current = conversation_id
        self._mark()

    def set_writing(self, conversation_ids: set[int]) -> None:
        """Which conversations are being answered now."""
        self._writing = set(conversation_ids)
        self.list.blockSignals(True)
        for row in range(self.list.count()):
            item = self.list.item(row)
            item.setData(WRITING, item.data(ID) in self._writing)
        self.list.blockSignals(False)
        self.list.viewport().update()

    def titles(self) -> list[str]:
        """The titles shown, from the top."""
        return [self.list.item(row).text() for row in range(self.list.count())]

    def offer_undo(self, title: str) -> Button:
        """Say that a conversation was deleted, with a button that brings it back."""
        self._undo_button = Button("Undo", on_click=self._undo)
        self.undo.show_words(f"Deleted “{title}”.", "info", self._undo_button)
        self._undo_timer.start()
        return self._undo_button

    def edit_title(self, conversation_id: int) -> None:
        """Let the person type a new title in the row of that conversation."""
        for row in range(self.list.count()):
            item = self.list.item(row)
            if item.data(ID) == conversation_id:
                self.list.setCurrentItem(item)
                self.list.editItem(item)

    def _undo(self) -> None:
        self.undo.hide()
        self.undo_wanted.emit()

    def _mark(self) -> None:
        self.list.blockSignals(True)
        self.list.clearSelection()
        self.list.setCurrentRow(-1)
        for row in range(self.list.count()):
            if self.list.item(row).data(ID) == self._current:
                self.list.setCurrentRow(row)
        self.list.blockSignals(False)
        self.list.viewport().update()

    @Slot(QListWidgetItem)
    def _on_chosen(self, item: QListWidgetItem) -> None:
        if item.data(ID) != self._current:
            self.opened.emit(item.data(ID))

    @Slot(QListWidgetItem)
    def _on_edited(self, item: QListWidgetItem) -> None:
        title = " ".join(item.text().split())
        summary = item.data(SUMMARY)
        if title and title != summary.title:
            self.rename_wanted.emit(item.data(ID), title)
        elif title != summary.title:
            item.setText(summary.title)

    @Slot(QPoint)
    def _on_menu(self, place: QPoint) -> None:
        item = self.list.itemAt(place)
        if item is None:
            return
        menu = QMenu(self.list)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        conversation_id = item.data(ID)
        menu.addAction("Rename").triggered.connect(lambda: self.edit_title(conversation_id))
        menu.addAction("Delete").triggered.connect(lambda: self.delete_wanted.emit(conversation_id))
        menu.popup(self.list.viewport().mapToGlobal(place))

    @Slot()
    def _delete_selected(self) -> None:
        item = self.list.currentItem()
        if item is not None:
            self.delete_wanted.emit(item.data(ID))

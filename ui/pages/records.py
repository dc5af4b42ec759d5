"""Saved comparisons: the list, one opened with both answers, export as Markdown and JSON, deletion with undo."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QSize, Qt, QTimer
from PySide6.QtGui import QFontMetrics, QPainter, QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QScrollArea,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from engine.actions.experiments.export import as_json, as_markdown, setting_rows, steered_words
from engine.errors import NotFound
from engine.events import Event, ExperimentsChanged
from engine.library.records import ExperimentRecord, ExperimentSummary
from ui import theme
from ui.frame import CHAT, Frame
from ui.widgets.basics import Button, Card, CopyButton, ElidedLabel, Notice, Surface, column, label, line
from ui.widgets.facts import Facts
from ui.widgets.flow_text import FlowText
from ui.widgets.markdown_view import MarkdownView
from ui.words import describe_error, when

_Index = QModelIndex | QPersistentModelIndex
LIST_WIDTH = 300
CONTENT_WIDTH = 1180
SIDE_BY_SIDE = 640
SEARCH_MS = 150
ID = Qt.ItemDataRole.UserRole
DETAIL = Qt.ItemDataRole.UserRole + 1
_LONG = ("Steered side", "Steering report")
"""Said in full elsewhere in the view."""
NOTHING_YET = (
    "Nothing is saved yet. In Chat, turn on Compare, send a message, and choose “Save as record” under the two answers."
)


class _RowDelegate(QStyledItemDelegate):
    """Paints a title with small print under it."""

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        """Room for both lines."""
        look = theme.current()
        return QSize(
            120, QFontMetrics(look.font()).height() + QFontMetrics(look.font("caption")).height() + 3 * theme.S
        )

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        """Draw one row."""
        look = theme.current()
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        chosen = bool(option.state & QStyle.StateFlag.State_Selected)
        if chosen or option.state & QStyle.StateFlag.State_MouseOver:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(look.colour("accent_soft" if chosen else "raised"))
            painter.drawRoundedRect(option.rect.adjusted(0, 1, 0, -1), 6, 6)
        inside = option.rect.adjusted(theme.S + 2, theme.S, -theme.S - 2, -theme.S)
        for words, role, colour, place in (
            (str(index.data()), "body", "text", Qt.AlignmentFlag.AlignTop),
            (str(index.data(DETAIL)), "caption", "muted", Qt.AlignmentFlag.AlignBottom),
        ):
            painter.setFont(look.font(role))
            painter.setPen(look.colour("on_accent_soft" if chosen else colour))
            shown = QFontMetrics(painter.font()).elidedText(words, Qt.TextElideMode.ElideRight, inside.width())
            painter.drawText(inside, place | Qt.AlignmentFlag.AlignLeft, shown)
        painter.restore()


class RecordView(QScrollArea):
    """One record: prompt, both answers, what was set."""

    def __init__(self) -> None:
        super().__init__()
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setObjectName("page")
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.record: ExperimentRecord | None = None
        self.title = ElidedLabel("", "title")
        self.told = label("", "muted", wrap=True)
        self.prompt = FlowText()
        self.plain = MarkdownView()
        self.steered = MarkdownView()
        self.facts = Facts()
        # Breaks anywhere: hashes and names of SAEs have no spaces.
        self.report = FlowText("caption")
        body = Surface("pageBody")
        outer = column(spacing=theme.L, margins=(theme.XL, theme.L, theme.XL, theme.L))
        outer.addWidget(self.title)
        outer.addWidget(self.told)
        outer.addWidget(self._card("Prompt", self.prompt, lambda: self._text("prompt")))
        self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._columns.setSpacing(theme.L)
        self._columns.addWidget(self._card("Plain", self.plain, lambda: self._text("plain")), 1)
        self._columns.addWidget(self._card("Steered", self.steered, lambda: self._text("steered")), 1)
        outer.addLayout(self._columns)
        written = self._card("How they were written", self.facts, None)
        written.body.insertWidget(written.body.count() - 1, self.report)
        outer.addWidget(written)
        outer.addStretch(1)
        body.setLayout(outer)
        body.setMaximumWidth(CONTENT_WIDTH)
        self.setWidget(body)

    def show_record(self, record: ExperimentRecord) -> None:
        """Show it from the top."""
        self.record = record
        self.title.set_text(record.title)
        self.told.setText(f"{record.model} · {steered_words(record)}")
        self.prompt.set_plain(record.prompt)
        self.plain.set_text(record.plain)
        self.steered.set_text(record.steered)
        self.facts.show_facts([row for row in setting_rows(record) if row[0] not in _LONG])
        self.report.set_plain(f"Steering report: {record.steering.get('text', '')}")
        self.verticalScrollBar().setValue(0)

    def _text(self, name: str) -> str:
        return str(getattr(self.record, name)) if self.record is not None else ""

    @staticmethod
    def _card(head: str, content: QWidget, text: Callable[[], str] | None) -> Card:
        card = Card()
        heads = line(label(head, "lead"), None)
        if text is not None:
            heads.addWidget(CopyButton(text, f"Copy: {head}"))
        card.body.addLayout(heads)
        card.body.addWidget(content)
        card.body.addStretch(1)
        return card

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Side by side where there is room."""
        super().resizeEvent(event)
        wide = self.width() >= SIDE_BY_SIDE
        self._columns.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)


class RecordsPage(Surface):
    """The list on the left, the record on the right."""

    def __init__(self, frame: Frame) -> None:
        super().__init__("page")
        self._frame = frame
        self._bridge = frame.bridge
        self._library = frame.engine.library.experiments
        self._events = frame.engine.events
        self._asked = 0
        self._wish: int | None = None
        self._last_deleted: ExperimentRecord | None = None
        self.dialog: QFileDialog | None = None
        self.search = QLineEdit()
        self.search.setPlaceholderText("Search records")
        self.search.setAccessibleName("Search records")
        self.search.setClearButtonEnabled(True)
        self.list = QListWidget()
        self.list.setItemDelegate(_RowDelegate(self.list))
        self.list.setMouseTracking(True)
        self.list.setUniformItemSizes(True)
        self.list.setAccessibleName("Saved comparisons")
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.empty = label("", "small", wrap=True)
        self.notice = Notice()
        self.view = RecordView()
        self.blank = label(NOTHING_YET, "muted", wrap=True)
        self.blank.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.chat_button = Button("Open Chat in Compare", "plain", "columns", self._to_chat)
        self.again_button = Button("Ask again", "plain", "again", self._again)
        self.markdown_button = Button("Markdown…", "plain", "download", lambda: self.export("md"))
        self.json_button = Button("JSON…", "plain", "download", lambda: self.export("json"))
        self.delete_button = Button("Delete", "quiet", "bin", self.delete)
        self.again_button.setToolTip("Put this prompt into Chat, in Compare")
        for button, kind in ((self.markdown_button, "Markdown"), (self.json_button, "JSON")):
            button.setToolTip(f"Export this record as {kind}")
            button.setAccessibleName(f"Export as {kind}")
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SEARCH_MS)
        self._timer.timeout.connect(self.refresh)
        self._build()
        self.search.textChanged.connect(lambda _text: self._timer.start())
        self.list.currentItemChanged.connect(lambda item, _before: self._on_chosen(item))
        self.refresh()

    def arrive(self, record: int | None = None) -> None:
        """Come to the front, with a record open where one is named."""
        if record is not None:
            self._wish = record
            self.search.clear()
        self.refresh()
        self.list.setFocus()

    def on_event(self, event: Event) -> None:
        """Follow the library."""
        if isinstance(event, ExperimentsChanged):
            self.refresh()

    def titles(self) -> list[str]:
        """The titles shown, from the top."""
        return [self.list.item(row).text() for row in range(self.list.count())]

    def refresh(self) -> None:
        """Read the list anew."""
        self._asked += 1
        asked, words, library = self._asked, self.search.text().strip(), self._library

        def show(found: list[ExperimentSummary]) -> None:
            if asked == self._asked:
                self._show(found, bool(words))

        self._bridge.run_in_background(lambda: library.list(words or None), show, self._say_error, owner=self)

    # --- actions ----------------------------------------------------------------------------------------------------

    def export(self, kind: str) -> None:
        """Ask where to, and write the open record there as ``md`` or ``json``."""
        record = self.view.record
        if record is None:
            return
        name = "".join(c if c.isalnum() or c in " -_" else " " for c in record.title)
        dialog = QFileDialog(self, "Export this record")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilter("Markdown (*.md)" if kind == "md" else "JSON (*.json)")
        dialog.setDefaultSuffix(kind)
        dialog.selectFile(f"{' '.join(name.split())[:60] or 'comparison'}.{kind}")
        dialog.fileSelected.connect(lambda path: self.write(record, kind, path))
        dialog.finished.connect(dialog.deleteLater)
        self.dialog = dialog
        dialog.open()

    def write(self, record: ExperimentRecord, kind: str, path: str) -> None:
        """Write a record to ``path``."""
        text = as_markdown(record) if kind == "md" else as_json(record)
        self._bridge.run_in_background(
            lambda: Path(path).write_text(text, encoding="utf-8"),
            lambda _size: self.notice.show_words(f"Written to {path}.", "info"),
            self._say_error,
            owner=self,
        )

    def delete(self) -> None:
        """Delete the open record and offer to bring it back."""
        record, library, events = self.view.record, self._library, self._events
        if record is None:
            return

        def gone(deleted: ExperimentRecord) -> None:
            self._last_deleted = deleted
            self.notice.show_words(f"Deleted “{deleted.title}”.", "info", Button("Undo", on_click=self.undo))
            events.publish(ExperimentsChanged())

        self._bridge.run_in_background(lambda: library.remove(record.id), gone, self._say_error, owner=self)

    def undo(self) -> None:
        """Bring the record deleted last back."""
        record, self._last_deleted = self._last_deleted, None
        library, events = self._library, self._events
        if record is None:
            return

        def back(_record: ExperimentRecord) -> None:
            self._wish = record.id
            self.notice.hide()
            events.publish(ExperimentsChanged())

        self._bridge.run_in_background(lambda: library.restore(record), back, self._say_error, owner=self)

    def _again(self) -> None:
        if self.view.record is not None:
            self._frame.go(CHAT, compare=True, prompt=self.view.record.prompt)

    def _to_chat(self) -> None:
        self._frame.go(CHAT, compare=True)

    def _say_error(self, error: Exception) -> None:
        self.notice.show_words(describe_error(error))

    # --- what is shown ----------------------------------------------------------------------------------------------

    def _show(self, found: list[ExperimentSummary], searched: bool) -> None:
        current = self._wish if self._wish is not None else self._current_id()
        self.list.blockSignals(True)
        self.list.clear()
        now = datetime.now(UTC)
        for each in found:
            item = QListWidgetItem(each.title)
            item.setData(ID, each.id)
            item.setData(DETAIL, f"{when(each.created_at, now)} · {each.model}")
            item.setToolTip(each.title)
            self.list.addItem(item)
        rows = [row for row in range(self.list.count()) if self.list.item(row).data(ID) == current]
        self.list.setCurrentRow(rows[0] if rows else (0 if found else -1))
        self.list.blockSignals(False)
        if rows:
            self._wish = None
        self.empty.setText("Nothing found." if searched else "Saved comparisons are listed here.")
        self.empty.setVisible(not found)
        self._on_chosen(self.list.currentItem())

    def _current_id(self) -> int | None:
        return None if self.view.record is None else self.view.record.id

    def _on_chosen(self, item: QListWidgetItem | None) -> None:
        if item is None:
            self.view.record = None
            self._show_parts()
            return
        number, library = item.data(ID), self._library
        if number == self._current_id():
            self._show_parts()
            return

        def read() -> ExperimentRecord:
            record = library.get(number)
            if record is None:
                raise NotFound("This record is not there any more.", remedy="It was deleted elsewhere.")
            return record

        def show(record: ExperimentRecord) -> None:
            chosen = self.list.currentItem()
            if chosen is not None and chosen.data(ID) == record.id:
                self.view.show_record(record)
                self._show_parts()

        self._bridge.run_in_background(read, show, self._say_error, owner=self)

    def _show_parts(self) -> None:
        there = self.view.record is not None
        for part in (self.view, self._actions):
            part.setVisible(there)
        self._blank.setVisible(not there)

    def _build(self) -> None:
        left = Surface("listPanel")
        left.setFixedWidth(LIST_WIDTH)
        inside = column(spacing=theme.S, margins=(theme.M, theme.M, theme.M, theme.M))
        inside.addWidget(label("Records", "lead"))
        inside.addWidget(self.search)
        inside.addWidget(self.empty)
        inside.addWidget(self.list, 1)
        left.setLayout(inside)
        self._actions = QWidget()
        buttons = line(self.markdown_button, self.json_button, self.again_button, None, self.delete_button)
        buttons.setContentsMargins(theme.XL, theme.M, theme.XL, 0)
        self._actions.setLayout(buttons)
        self._blank = QWidget()
        middle = column(margins=(theme.XL, theme.XL, theme.XL, theme.XL), spacing=theme.M)
        middle.addStretch(1)
        middle.addWidget(self.blank)
        middle.addLayout(line(None, self.chat_button, None))
        middle.addStretch(1)
        self._blank.setLayout(middle)
        right = column(spacing=0)
        said = line(self.notice)
        said.setContentsMargins(theme.XL, theme.M, theme.XL, 0)
        right.addLayout(said)
        right.addWidget(self._actions)
        right.addWidget(self.view, 1)
        right.addWidget(self._blank, 1)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(left)
        layout.addLayout(right, 1)
        self._show_parts()

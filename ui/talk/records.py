"""Records: the list, one opened, export as Markdown, JSON and (sweeps) CSV, deletion with undo."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QSize, Qt, QTimer
from PySide6.QtGui import QFontMetrics, QPainter, QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QFileDialog,
    QLineEdit,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from engine.errors import NotFound
from engine.events import Event, ExperimentsChanged
from engine.files import write_text
from engine.public.experiments import as_csv, as_json, as_markdown
from engine.public.library import ExperimentRecord, ExperimentSummary, RecordKind
from ui.context.page import Page
from ui.context.page_context import CHAT, FEATURES, SWEEP, PageContext
from ui.kit import plots, theme
from ui.kit.basics import Button, Notice, Surface, column, label, line
from ui.kit.flow import Flow
from ui.kit.plain_text import as_letters
from ui.kit.text import describe_error, when
from ui.kit.views import RowList
from ui.talk.record_view import RecordView

_Index = QModelIndex | QPersistentModelIndex
LIST_WIDTH = 300
NARROW_LIST = 200
BESIDE = 800
"""From this width on the list stands beside the record, else above it."""
LIST_ABOVE = 150
QWIDGETSIZE_MAX = 16_777_215
ROOMY = 860
"""From this width on the list has all of its own."""
SEARCH_MS = 150
ID = Qt.ItemDataRole.UserRole
DETAIL = Qt.ItemDataRole.UserRole + 1
NOTHING_YET = (
    "Nothing is saved yet. In Chat, turn on Compare, send a message, and choose “Save as record” under the two "
    "answers. Sweeps and contrasts of texts can be saved, too."
)
KIND_WORDS = {RecordKind.COMPARISON: "", RecordKind.SWEEP: "sweep · ", RecordKind.CONTRAST: "contrast · "}
FORMS: dict[str, tuple[str, Callable[[ExperimentRecord], str]]] = {
    "md": ("Markdown", as_markdown),
    "json": ("JSON", as_json),
    "csv": ("CSV", as_csv),
}


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
            focused = bool(option.state & QStyle.StateFlag.State_HasFocus)
            painter.setPen(look.colour("accent") if focused and chosen else Qt.PenStyle.NoPen)
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


class RecordsPage(Page, Surface):
    """The list on the left, the record on the right."""

    FOLLOWS = (ExperimentsChanged,)

    def __init__(self, frame: PageContext) -> None:
        super().__init__("page")
        self._frame = frame
        self._bridge = frame.bridge
        self._library = frame.engine.library.experiments
        self._events = frame.engine.events
        self._desk = frame.engine.desk
        self._asked = 0
        self._wish: int | None = None
        self._last_deleted: ExperimentRecord | None = None
        self.dialog: QFileDialog | None = None
        self.search = QLineEdit()
        self.search.setPlaceholderText("Search records")
        self.search.setAccessibleName("Search records")
        self.search.setClearButtonEnabled(True)
        self.list = RowList()
        self.list.setItemDelegate(_RowDelegate(self.list))
        self.list.setMouseTracking(True)
        self.list.setUniformItemSizes(True)
        self.list.setAccessibleName("Records")
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.empty = label("", "small", wrap=True)
        self.notice = Notice()
        self.view = RecordView()
        self.view.feature_wanted.connect(self._open_feature)
        self.blank = label(NOTHING_YET, "muted", wrap=True)
        self.blank.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.chat_button = Button("Open Chat in Compare", "plain", "columns", self._to_chat)
        self.again_button = Button("Ask again", "plain", "again", self._again)
        self.markdown_button = Button("Markdown…", "plain", "download", lambda: self.export("md"))
        self.json_button = Button("JSON…", "plain", "download", lambda: self.export("json"))
        self.csv_button = Button("CSV…", "plain", "download", lambda: self.export("csv"))
        self.delete_button = Button("Delete", "quiet", "bin", self.delete)
        exports = ((self.markdown_button, "Markdown"), (self.json_button, "JSON"), (self.csv_button, "CSV"))
        for button, kind in exports:
            button.setToolTip(as_letters(f"Export this record as {kind}"))
            button.setAccessibleName(f"Export as {kind}")
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SEARCH_MS)
        self._timer.timeout.connect(self.refresh)
        self._build()
        self.search.textChanged.connect(lambda _text: self._timer.start())
        self.list.currentItemChanged.connect(lambda item, _before: self._on_chosen(item))
        self.refresh()
        frame.bridge.run_in_background(plots.load, self.view.sweep.draw_with, self._say_error, owner=self)

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
        """Ask where to, and write the open record there as ``md``, ``json`` or ``csv``."""
        record = self.view.record
        if record is None:
            return
        name = "".join(c if c.isalnum() or c in " -_" else " " for c in record.title)
        dialog = QFileDialog(self, "Export this record")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilter(f"{FORMS[kind][0]} (*.{kind})")
        dialog.setDefaultSuffix(kind)
        dialog.selectFile(f"{' '.join(name.split())[:60] or record.kind}.{kind}")
        dialog.fileSelected.connect(lambda path: self.write(record, kind, path))
        dialog.finished.connect(dialog.deleteLater)
        self.dialog = dialog
        dialog.open()

    def write(self, record: ExperimentRecord, kind: str, path: str) -> None:
        """Write a record to ``path``."""
        text = FORMS[kind][1](record)
        self._bridge.run_once(
            ("write", path),
            # Line ends are in the text already, as each format wants them.
            lambda: write_text(Path(path), text),
            lambda _done: self.notice.show_words(f"Written to {path}.", "info"),
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

        self._bridge.run_once(
            ("delete record", record.id), lambda: library.remove(record.id), gone, self._say_error, owner=self
        )

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
        record = self.view.record
        if record is None:
            return
        if record.kind is RecordKind.COMPARISON:
            self._frame.go(CHAT, compare=True, prompt=record.prompt)
        elif record.kind is RecordKind.SWEEP:
            base = record.content.get("base", {})
            self._frame.go(SWEEP, kind=base.get("kind"), id=base.get("id", ""))

    def _open_feature(self, sae_id: str, layer: int, index: int) -> None:
        if any((each.sae_id, each.layer) == (sae_id, layer) for each in self._desk.state.attachments):
            self._frame.go(FEATURES, sae_id=sae_id, layer=layer, feature=index)
        else:
            self.notice.show_words(
                f"Attach {sae_id} at layer {layer} first; then its features can be looked at.", "warn"
            )

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
            item.setData(DETAIL, f"{when(each.created_at, now)} · {KIND_WORDS[each.kind]}{each.model}")
            item.setToolTip(as_letters(each.title))
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
        record = self.view.record
        there = record is not None
        if record is not None:
            self.csv_button.setVisible(record.kind is not RecordKind.COMPARISON)
            self.again_button.setVisible(record.kind is not RecordKind.CONTRAST)
            sweep = record.kind is RecordKind.SWEEP
            self.again_button.setText(" Open in Sweep" if sweep else " Ask again")
            self.again_button.setAccessibleName("Open in Sweep" if sweep else "Ask again")
            self.again_button.setToolTip(
                "Turn the same dial again" if sweep else "Put this prompt into Chat, in Compare"
            )
        for part in (self.view, self._actions):
            part.setVisible(there)
        self._blank.setVisible(not there)

    def _build(self) -> None:
        left = self._left = Surface("listPanel")
        inside = column(spacing=theme.S, margins=(theme.M, theme.M, theme.M, theme.M))
        inside.addWidget(label("Records", "lead"))
        inside.addWidget(self.search)
        inside.addWidget(self.empty)
        inside.addWidget(self.list, 1)
        left.setLayout(inside)
        self._actions = QWidget()
        ways = Flow(theme.S)
        for button in (self.markdown_button, self.json_button, self.csv_button, self.again_button):
            ways.add(button)
        buttons = line()
        buttons.addWidget(ways, 1)
        buttons.addWidget(self.delete_button, 0, Qt.AlignmentFlag.AlignTop)
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
        layout = self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(left)
        layout.addLayout(right, 1)
        self._show_parts()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """In a narrow window the list gives way to the record."""
        super().resizeEvent(event)
        beside = self.width() >= BESIDE
        self._columns.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)
        self._left.setFixedWidth(LIST_WIDTH if self.width() >= ROOMY else NARROW_LIST)
        if not beside:
            self._left.setMinimumWidth(0)
            self._left.setMaximumWidth(QWIDGETSIZE_MAX)
        self._left.setMaximumHeight(QWIDGETSIZE_MAX if beside else LIST_ABOVE)

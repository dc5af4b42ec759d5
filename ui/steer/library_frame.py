"""What the pages of profiles, clusters and circuits share: a list beside what is chosen, and ways in and out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QBoxLayout, QFileDialog, QFrame, QScrollArea, QSizePolicy, QStackedWidget, QWidget

from engine.files import write_file
from ui.context.page import Page
from ui.context.page_context import CHAT, SWEEP, PageContext
from ui.kit import theme
from ui.kit.basics import Button, Card, Notice, Surface, column, label, line
from ui.kit.intensity_dial import IntensityDial
from ui.kit.scroll_page import PageHead, page_scroll
from ui.kit.text import describe_error
from ui.steer.document_import import Outcome, document_bytes, file_name, take_in, take_in_files
from ui.steer.import_panel import ImportPanel
from ui.steer.import_sources import DocumentDoor
from ui.steer.item_list import Item, ItemList
from ui.steer.use_buttons import UseButtons

LIST_WIDTH = 320
NARROW_LIST = 240
ROOMY = 960
"""From this width on the list has all of its own."""
BESIDE = 800
"""From this width on the list stands beside what is chosen, else above it."""
LIST_ABOVE = 200
DETAIL_BELOW = 640
QWIDGETSIZE_MAX = 16_777_215
LEAST_DETAIL = (360, 240)
"""Smaller than this the page scrolls."""
UNDO_MS = 20_000

V = TypeVar("V")


class LibraryFrame(Page, QWidget, Generic[V]):
    """A page of things with ids. ``V`` is what the engine says of one of them.

    A subclass says how they are fetched (off the GUI thread), what their rows are and what is shown of the chosen one.
    State is read from the engine after each change, whoever made it.
    """

    key: str
    title: str
    words: str
    noun: str

    def __init__(self, frame: PageContext) -> None:
        super().__init__()
        self.setObjectName("page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground, True)
        self._frame = frame
        self._engine = frame.engine
        self.views: dict[str, V] = {}
        self.loaded = False
        self._wanted = ""
        self._fetching = False
        self._again = False
        self._behind = False
        """Whether something has changed since the page was last in front."""
        self.list = ItemList(self.title)
        self.report = ImportPanel()
        self.notice = Notice()
        self._turns = 0
        self.door = DocumentDoor(self)
        self.import_button = Button("Import…", "plain", "import", self.door.pick)
        self.paste_button = Button("Paste…", "plain", "text", self.door.paste)
        self.paste_button.setToolTip("Paste a document (Ctrl+V)")
        self.gate = Card()
        self.gate_words = label("", "muted", wrap=True)
        self.stack = QStackedWidget()
        self._left = QFrame()
        self.save_dialog: QFileDialog | None = None
        self._undo_timer = QTimer(self)
        self._undo_timer.setSingleShot(True)
        self._undo_timer.setInterval(UNDO_MS)
        self._undo_timer.timeout.connect(self.notice.hide)
        self.list.chosen.connect(lambda _key: self._show_chosen())
        self.door.files.connect(self.import_files)
        self.door.text.connect(self.import_text)
        self.report.show_wanted.connect(lambda page, key: self._frame.go(page, select=key))
        self.report.again_wanted.connect(self._import_again)

    # --- what a subclass says ---------------------------------------------------------------------------------------

    @abstractmethod
    def fetch(self) -> Sequence[tuple[str, V]]:
        """Every thing with its id, in order. Runs in the background."""

    @abstractmethod
    def row(self, key: str, view: V) -> Item:
        """The row of one of them."""

    @abstractmethod
    def show_view(self, view: V) -> None:
        """Show the chosen one."""

    @abstractmethod
    def is_active(self, view: V) -> bool:
        """Whether it is in force; the first such is chosen when the page opens."""

    def connect_uses(self, buttons: UseButtons) -> None:
        """Lead from the chosen one to the pages that use it."""
        go, key = self._frame.go, lambda: self.list.current
        buttons.compare_wanted.connect(lambda: go(CHAT, compare=True, steer=(self.noun, key())))
        buttons.sweep_wanted.connect(lambda: go(SWEEP, kind=self.noun, id=key()))

    # --- events -----------------------------------------------------------------------------------------------------

    def arrive(self, select: str | None = None, files: Sequence[Path] = (), text: str = "", **_what: Any) -> None:
        """Come to the front, with one of them chosen where the caller named it, and documents taken in."""
        if files:
            self.import_files(files)
        if text:
            self.import_text(text)
        if select is not None:
            self.select(select)

    def select(self, key: str) -> None:
        """Choose one, now or once it is there."""
        self.list.search.clear()
        self._wanted = "" if self.list.select(key) else key

    def refresh(self) -> None:
        """Read everything anew; a page that nobody sees does so when it is in front again."""
        if self.loaded and not self.isVisible():
            self._behind = True
            return
        if self._fetching:
            self._again = True
            return
        self._fetching = True
        self._frame.bridge.run_in_background(self.fetch, self._on_fetched, self._on_fetch_error, owner=self)

    @property
    def view(self) -> V | None:
        """The chosen one."""
        return self.views.get(self.list.current)

    def _on_fetched(self, found: Sequence[tuple[str, V]]) -> None:
        self.views = dict(found)
        if not self.loaded and not self._wanted:
            self._wanted = next((key for key, view in found if self.is_active(view)), "")
        self.loaded = True
        self.list.show_items([self.row(key, view) for key, view in found])
        if self._wanted and self.list.select(self._wanted):
            self._wanted = ""
        self._show_chosen()
        self._fetch_ended()

    def _on_fetch_error(self, error: Exception) -> None:
        self.say_error(error)
        self._fetch_ended()

    def _fetch_ended(self) -> None:
        self._fetching = False
        if self._again:
            self._again = False
            self.refresh()

    def _show_chosen(self) -> None:
        view = self.view
        self.stack.setCurrentIndex(0 if view is None else 1)
        if view is not None:
            self.show_view(view)

    # --- doing ------------------------------------------------------------------------------------------------------

    def run(
        self,
        task: Callable[[], Any],
        done: Callable[[Any], None] | None = None,
        refused: Callable[[Exception], None] | None = None,
        *,
        key: Hashable | None = None,
    ) -> None:
        """Do something with the engine in the background; what is refused is said, and the page shows what holds.

        ``key``: what is done to which thing; it is not begun again while it is under way.
        """

        def failed(error: Exception) -> None:
            (refused or self.say_error)(error)
            self.refresh()

        def ended(result: Any) -> None:
            if done is not None:
                done(result)
            self.refresh()

        self._frame.bridge.run_once(object() if key is None else key, task, ended, failed, owner=self)

    def turn(self, dial: IntensityDial, task: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        """As :meth:`run`, for the ``dial`` that a person turned: it shows their value until the engine has answered.

        Answers may come in another order than they were asked for; of a turn that another has followed nothing is said.
        """
        dial.hold(True)
        self._turns += 1
        mine = self._turns

        def ended(result: Any) -> None:
            dial.hold(False)
            if done is not None and mine == self._turns:
                done(result)

        def refused(error: Exception) -> None:
            dial.hold(False)
            if mine == self._turns:
                self.say_error(error)

        self.run(task, ended, refused)

    def say(self, words: str, tone: str = "info", *actions: QWidget) -> None:
        """Say something in place."""
        self._undo_timer.stop()
        self.notice.show_words(words, tone, *actions)

    def say_error(self, error: Exception) -> None:
        """Say what was refused and what to do."""
        self.say(describe_error(error), "bad")

    def say_warnings(self, warnings: Iterable[str]) -> None:
        """Say what else happened, if anything."""
        words = " ".join(warnings)
        if words:
            self.say(words, "warn")
        else:
            self.notice.hide()

    def offer_undo(self, words: str, key: str, undo: Callable[[], Any]) -> None:
        """Say that something is gone, with a way back; ``key`` is chosen when it is there again."""

        def back() -> None:
            self.notice.hide()
            self.run(undo, lambda _done: self.select(key))

        button = Button("Undo", "plain", "undo", back)
        self.say(words, "info", button)
        self._undo_timer.start()

    # --- documents in and out ---------------------------------------------------------------------------------------

    def import_files(self, paths: Sequence[Path]) -> None:
        """Import documents from files."""
        self.run(partial(take_in_files, self._engine, list(paths)), self._on_imported, key=("take in", self, *paths))

    def import_text(self, text: str) -> None:
        """Import a document that was pasted."""
        self.run(
            partial(take_in, self._engine, text.encode("utf-8", "replace"), "The pasted text"),
            self._on_imported,
            key=("take in", self, text),
        )

    def _import_again(self, outcome: Outcome) -> None:
        raw = outcome.again
        if raw is None:
            return
        before = list(self.report.outcomes)

        def done(new: list[Outcome]) -> None:
            kept = [each for each in before if each is not outcome]
            self._on_imported([*kept, *new])

        self.run(partial(take_in, self._engine, raw, outcome.title, rename=True), done, key=("take in", self, raw))

    def _on_imported(self, outcomes: list[Outcome]) -> None:
        self.notice.hide()
        self.report.show_outcomes(outcomes)
        here = [each.key for each in outcomes if each.page == self.key and each.key is not None]
        if here:
            self.select(here[-1])

    def export(self, name: str, document: Callable[[], dict[str, Any]]) -> None:
        """Ask where to, and write the document there."""
        dialog = QFileDialog(self, f"Export {name}")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilters(["Documents (*.json)"])
        dialog.setDefaultSuffix("json")
        dialog.selectFile(file_name(name, self.key))

        def write(chosen: str) -> None:
            path = Path(chosen)

            def task() -> None:
                write_file(path, document_bytes(document()))

            self.run(task, lambda _none: self.say(f"Written to {path}."), key=("write", str(path)))

        dialog.fileSelected.connect(write)
        dialog.finished.connect(dialog.deleteLater)
        self.save_dialog = dialog
        dialog.open()

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up."""
        super().showEvent(event)
        if self._behind:
            self._behind = False
            self.refresh()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """In a narrow window the list gives way to what is chosen."""
        super().resizeEvent(event)
        beside = self.width() >= BESIDE
        self._columns.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)
        self._left.setFixedWidth(LIST_WIDTH if self.width() >= ROOMY else NARROW_LIST)
        if not beside:
            self._left.setMinimumWidth(0)
            self._left.setMaximumWidth(QWIDGETSIZE_MAX)
        self.stack.setMinimumHeight(LEAST_DETAIL[1] if beside else DETAIL_BELOW)
        self._left.setMinimumHeight(0 if beside else LIST_ABOVE)
        self._left.setMaximumHeight(QWIDGETSIZE_MAX if beside else LIST_ABOVE)
        self._head.fit(self.width())

    # --- layout -----------------------------------------------------------------------------------------------------

    def lay_out(self, detail: QWidget, *buttons: QWidget, scrolls: bool = True, strip: QWidget | None = None) -> None:
        """Build the page around what shows the chosen one.

        ``buttons`` stand before those of the import, ``strip`` under the title. ``scrolls`` is False for a ``detail``
        that fills the height there is.
        """
        texts = column(spacing=1)
        texts.addWidget(label(self.title, "title"))
        texts.addWidget(label(self.words, "muted", wrap=True))
        self._head = PageHead(texts, *buttons, self.import_button, self.paste_button)
        left = self._left
        left.setObjectName("card")
        left.setFixedWidth(LIST_WIDTH)
        inside = column(margins=(theme.M, theme.M, theme.M, theme.M))
        inside.addWidget(self.list)
        left.setLayout(inside)
        self.gate.body.addWidget(self.gate_words)
        empty = QWidget()
        over = column()
        over.addWidget(self.gate)
        over.addStretch(1)
        empty.setLayout(over)
        self.stack.addWidget(empty)
        self.stack.addWidget(_scrolled(detail) if scrolls else detail)
        body = self._columns = line(spacing=theme.L)
        body.addWidget(left)
        body.addWidget(self.stack, 1)
        layout = column(spacing=theme.M, margins=(theme.XL, theme.L + 4, theme.XL, theme.L + 4))
        layout.addLayout(self._head)
        if strip is not None:
            layout.addWidget(strip)
        layout.addWidget(self.report)
        layout.addWidget(self.notice)
        layout.addLayout(body, 1)
        ground = Surface("pageBody")
        ground.setLayout(layout)
        # In a window too small for it the page scrolls; it must not hold the window open.
        around = column(spacing=0)
        around.addWidget(page_scroll(ground))
        self.setLayout(around)


def _scrolled(detail: QWidget) -> QScrollArea:
    inside = Surface("scrollBody")
    around = column(spacing=theme.L)
    around.addWidget(detail)
    around.addStretch(1)
    inside.setLayout(around)
    area = QScrollArea()
    area.setWidgetResizable(True)
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setWidget(inside)
    # It scrolls: how much is in it says nothing about how high it should be.
    area.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Ignored)
    area.setMinimumSize(LEAST_DETAIL[0], LEAST_DETAIL[1])
    return area

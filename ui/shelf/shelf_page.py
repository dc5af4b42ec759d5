"""A page of things that lie on the disk: what there is and the ways in on the left, a card beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFileDialog, QWidget

from ui.context.page import Page
from ui.kit import theme
from ui.kit.basics import Button, Card, Notice, column, label
from ui.kit.scroll_page import ScrollPage

TWO_COLUMNS = 900
"""Narrower pages put the card beside the shelf under it."""

Key = TypeVar("Key")
Row = TypeVar("Row", bound=QWidget)


class ShelfPage(Page, ScrollPage):
    """The frame of the pages Models and SAEs; their rows, cards and work are their own.

    Args:
        empty: What is said while the shelf is empty.
    """

    def __init__(self, title: str, about: str, *, empty: str) -> None:
        super().__init__(title, about)
        self.notice = Notice()
        self.shelf = Card("On the shelf")
        self.empty = label(empty, "muted", wrap=True)
        self.dialog: QFileDialog | None = None
        self._list = column(spacing=2)
        self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight)

    def _lay_out(self, add: QWidget, beside: QWidget, *above: QWidget) -> None:
        """``above`` stand over the rows, ``add`` under the shelf, ``beside`` at its side."""
        for widget in (*above, self.empty):
            self.shelf.body.addWidget(widget)
        self.shelf.body.addLayout(self._list)
        self.shelf.body.addStretch(1)
        self._columns.setSpacing(theme.L)
        left, right = column(spacing=theme.L), column(spacing=0)
        left.addWidget(self.shelf)
        left.addWidget(add)
        left.addStretch(1)
        right.addWidget(beside)
        right.addStretch(1)
        self._columns.addLayout(left, 5)
        self._columns.addLayout(right, 2)
        self.inside.addWidget(self.notice)
        self.inside.addLayout(self._columns)
        self.inside.addStretch(1)
        self.empty.hide()

    def _arrange(self, rows: dict[Key, Row], wanted: Iterable[Key], make: Callable[[Key], Row]) -> None:
        """Have ``rows`` hold exactly ``wanted``, in that order; who stays keeps its place under the mouse and its keys.

        ``make`` makes the row of a key that has none yet.
        """
        order = list(wanted)
        for gone in [key for key in rows if key not in order]:
            row = rows.pop(gone)
            self._list.removeWidget(row)
            row.hide()
            row.deleteLater()
        for place, key in enumerate(order):
            if key not in rows:
                rows[key] = make(key)
            row = rows[key]
            if self._list.indexOf(row) != place:
                self._list.removeWidget(row)
                self._list.insertWidget(place, row)
        self.empty.setVisible(not order)

    def _say(self, said: str, *actions: QWidget) -> None:
        self.notice.show_words(said, "info", *actions)

    def _ask(self, question: str, verb: str, act: Callable[[], object]) -> None:
        """Ask before something goes away."""

        def yes() -> None:
            self.notice.hide()
            act()

        buttons = Button(verb, "primary", on_click=yes), Button("Keep it", on_click=self.notice.hide)
        self.notice.show_words(question, "warn", *buttons)
        self.ensureWidgetVisible(self.notice)

    def _pick_folder(self, title: str, then: Callable[[str], object]) -> None:
        """Have a folder chosen."""
        dialog = QFileDialog(self, title)
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly, True)
        self._open(dialog, then)

    def _pick_file(self, title: str, filters: list[str], then: Callable[[str], object]) -> None:
        """Have a file chosen, of the kinds that ``filters`` name."""
        dialog = QFileDialog(self, title)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setNameFilters([*filters, "All files (*)"])
        self._open(dialog, then)

    def _open(self, dialog: QFileDialog, then: Callable[[str], object]) -> None:
        dialog.fileSelected.connect(then)
        dialog.finished.connect(dialog.deleteLater)
        self.dialog = dialog
        dialog.open()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Side by side where there is room, one under the other where there is not."""
        super().resizeEvent(event)
        wide = self.width() >= TWO_COLUMNS
        self._columns.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)

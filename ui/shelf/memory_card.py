"""The card about memory and disk: what takes how much now, and what a model would take before it is loaded."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from ui.kit import theme
from ui.kit.basics import Card, ElidedLabel, Notice, column, label, pill, rule, set_pill
from ui.kit.scroll_page import reveal


class Sums(QWidget):
    """Heads on the left, sizes on the right; the last row of :meth:`show_rows` may be strong."""

    def __init__(self) -> None:
        super().__init__()
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(theme.M)
        self._grid.setVerticalSpacing(theme.XS)
        self._grid.setColumnStretch(0, 1)
        self._cells: list[tuple[ElidedLabel, QLabel]] = []
        self._rows: list[tuple[str, str]] = []

    def show_rows(self, rows: Sequence[tuple[str, str]]) -> None:
        """Show these rows in place of the former."""
        self._rows = list(rows)
        for place, (head, value) in enumerate(rows):
            if place == len(self._cells):
                heading = ElidedLabel("", "muted", Qt.TextElideMode.ElideMiddle)
                figure = label("", "strong")
                figure.setAlignment(Qt.AlignmentFlag.AlignRight)
                self._grid.addWidget(heading, place, 0)
                self._grid.addWidget(figure, place, 1)
                self._cells.append((heading, figure))
            heading, figure = self._cells[place]
            heading.set_text(head)
            figure.setText(value)
        for place, (heading, figure) in enumerate(self._cells):
            heading.setVisible(place < len(rows))
            figure.setVisible(place < len(rows))

    def rows(self) -> dict[str, str]:
        """Head → size, as shown."""
        return dict(self._rows)


class MemoryCard(Card):
    """Shows; decides nothing."""

    def __init__(self) -> None:
        super().__init__("Memory and disk")
        self.now = Sums()
        self.disk = Sums()
        self.asked_name = label("", "strong", wrap=True)
        self.verdict = pill()
        self.estimate = Sums()
        self.notice = Notice()
        self.hint = label("A model's info button says what it would take, before it is loaded.", "small", wrap=True)
        self._asked = QWidget()
        inside = column(spacing=theme.XS)
        inside.addWidget(self.asked_name)
        inside.addWidget(self.estimate)
        inside.addWidget(self.verdict)
        self._asked.setLayout(inside)
        for head, sums in (("In memory now", self.now), ("On the disk", self.disk)):
            self.body.addWidget(label(head, "group"))
            self.body.addWidget(sums)
            self.body.addWidget(rule())
        self.body.addWidget(label("Before loading", "group"))
        for part in (self.hint, self._asked, self.notice):
            self.body.addWidget(part)
        self.body.addStretch(1)
        self._asked.hide()

    def show_asking(self, name: str) -> None:
        """An estimate is under way."""
        self.notice.hide()
        self.hint.hide()
        self._asked.show()
        reveal(self._asked)
        self.asked_name.setText(name)
        self.estimate.show_rows([("Looking at its files…", "")])
        self.verdict.hide()

    def show_estimate(self, rows: Sequence[tuple[str, str]], *, fits: bool) -> None:
        """The terms of what was asked for."""
        self.estimate.show_rows(rows)
        set_pill(self.verdict, "fits" if fits else "does not fit", "good" if fits else "bad")
        self.verdict.show()

    def show_problem(self, words: str) -> None:
        """Why there is no estimate."""
        self._asked.hide()
        self.notice.show_words(words)
        reveal(self.notice)

"""One item of a shelf, a model or an SAE: name, badges, lines about it, a bar while it comes, and what can be done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QFrame, QProgressBar, QWidget

from ui.kit import shelf_text as words
from ui.kit import theme
from ui.kit.basics import ElidedLabel, column, label, line, pill
from ui.kit.plain_text import as_letters


class ShelfRow(QFrame):
    """The shape of a row. What stands in it and which actions are there is for the two kinds to say."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("row")
        self.badges: list[tuple[str, str]] = []
        self.name = ElidedLabel("", "strong", Qt.TextElideMode.ElideMiddle)
        self.facts = label("", "small", wrap=True)
        self.error = label("", "bad", wrap=True)
        self.stage = ElidedLabel("", "small")
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self._badges = line(spacing=theme.XS)

    def show_progress(self, percent: float, stage: str) -> None:
        """How far what is under way is, and what it is."""
        self.stage.set_text(stage)
        self.progress.setValue(round(percent))

    def show_transfer(self, here: int | None, total: int | None, speed: float | None) -> None:
        """How far a download is."""
        self.show_progress(100 * (here or 0) / total if total else 0, words.transfer(here, total, speed))

    def _lay_out(self, texts: Iterable[QWidget], actions: Iterable[QWidget]) -> None:
        """Name and badges over the whole width, since names are long; under them ``texts``, ``actions`` at the end."""
        head = line(spacing=theme.S)
        head.addWidget(self.name, 1)
        head.addLayout(self._badges)
        left = column(spacing=2)
        for part in texts:
            left.addWidget(part)
        left.addStretch(1)
        below = line(spacing=theme.S)
        below.addLayout(left, 1)
        for action in actions:
            below.addWidget(action, 0, Qt.AlignmentFlag.AlignVCenter)
        layout = column(spacing=theme.XS, margins=(theme.S, theme.S, theme.S, theme.S))
        layout.addLayout(head)
        layout.addLayout(below)
        self.setLayout(layout)

    def _show_badges(self, badges: Sequence[tuple[str, str]]) -> None:
        if list(badges) == self.badges:
            return
        self.badges = list(badges)
        while (item := self._badges.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        for text, tone in badges:
            self._badges.addWidget(pill(text, tone))

    @staticmethod
    def _name_actions(name: str, tips: dict[QAbstractButton, str], verbs: dict[QAbstractButton, str]) -> None:
        """``tips``: of buttons with an icon only; ``verbs``: what the others do, read out with the item's name."""
        for button, tip in tips.items():
            button.setToolTip(as_letters(tip))
            button.setAccessibleName(tip)
        for button, verb in verbs.items():
            button.setAccessibleName(f"{verb} {name}")

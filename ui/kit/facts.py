"""Small headed values side by side."""

from __future__ import annotations

from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from ui.kit import theme
from ui.kit.basics import ElidedLabel, column, label


class Facts(QWidget):
    """Heads over values, ``per_row`` to a row. Values can change without the widgets being made anew."""

    def __init__(self, per_row: int = 3) -> None:
        super().__init__()
        self._per_row = per_row
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(theme.L)
        self._grid.setVerticalSpacing(theme.M - 2)
        self._cells: list[tuple[QLabel, ElidedLabel]] = []
        for each in range(per_row):
            self._grid.setColumnStretch(each, 1)

    def show_facts(self, facts: list[tuple[str, str]]) -> None:
        """Show (head, value) pairs and nothing of former ones."""
        for place, (head, value) in enumerate(facts):
            if place == len(self._cells):
                self._add_cell(place)
            heading, figure = self._cells[place]
            heading.setText(head)
            figure.set_text(value)
        for place, (heading, figure) in enumerate(self._cells):
            for part in (heading, figure):
                part.setVisible(place < len(facts))

    def values(self) -> dict[str, str]:
        """Head → value, as shown."""
        return {head.text(): value.full_text() for head, value in self._cells if not head.isHidden()}

    def _add_cell(self, place: int) -> None:
        heading, figure = label("", "caption"), ElidedLabel("", "strong")
        cell = QWidget()
        inside = column(spacing=1)
        inside.addWidget(heading)
        inside.addWidget(figure)
        cell.setLayout(inside)
        self._cells.append((heading, figure))
        self._grid.addWidget(cell, place // self._per_row, place % self._per_row)

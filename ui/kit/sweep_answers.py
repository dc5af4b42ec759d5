"""The answers of a sweep, one that runs or one that was kept: the table, the curves, the answer that is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Qt, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QPlainTextEdit, QSizePolicy, QSplitter, QWidget

from engine.public.sweeps import CellResult, SweepSettings, means
from ui.kit import theme
from ui.kit.basics import Card, label
from ui.kit.sweep_plot import CURVES, SweepPlot
from ui.kit.sweep_table import SweepTable
from ui.kit.sweep_text import cell_words, intensity_words
from ui.kit.text import counted, finish

NO_ANSWERS = "Answers come here: a row for each prompt, a column without steering and one for each value of λ."
LEAST_PART = 220
BESIDE = 480
"""From this width on the plot stands beside the answer that is read."""


class SweepAnswers(QSplitter):
    """Filled as answers come; ``results`` are those so far."""

    def __init__(self) -> None:
        super().__init__(Qt.Orientation.Vertical)
        self.results: list[CellResult] = []
        self.table = SweepTable()
        self.table.looked_at.connect(self.show_cell)
        self.plot = SweepPlot()
        self.cell_head = label("", "group", wrap=True)
        self.cell_figures = label("", "small", wrap=True)
        self.cell_text = QPlainTextEdit()
        self.cell_text.setObjectName("bare")
        self.cell_text.setReadOnly(True)
        self.cell_text.setFrameShape(QFrame.Shape.NoFrame)
        self.cell_text.setAccessibleName("The answer that is looked at")
        self._legend = label("", "small", wrap=True)
        self._legend.setTextFormat(Qt.TextFormat.RichText)
        self._nothing = label(NO_ANSWERS, "muted", wrap=True)
        self._build()
        theme.current().changed.connect(self._show_legend)
        self._show_legend()
        self.show_cell(None)

    def draw_with(self, pg: Any) -> None:
        """The plotting library is there."""
        self.plot.build(pg)

    def begin(self, settings: SweepSettings) -> None:
        """An empty table for this sweep."""
        self.results = []
        self._nothing.hide()
        self.table.show()
        self.table.sweep.begin(settings.prompts, settings.intensities)
        self.plot.show_means(())
        self._show_legend()
        self.show_cell(None)

    def put(self, cells: Sequence[CellResult]) -> None:
        """Add answers."""
        self.results.extend(cells)
        found = means(self.results, self.table.sweep.intensities)
        self.table.sweep.put(cells, found)
        self.plot.show_means(found)
        self._show_legend()
        self.show_cell(self.table.sweep.cell(self.table.currentIndex()))

    @Slot(object)
    def show_cell(self, cell: CellResult | None) -> None:
        """Show one answer whole; None: none is chosen."""
        if cell is None:
            self.cell_head.setText("Answer")
            self.cell_figures.setText("Choose an answer in the table to read it whole.")
            self.cell_text.setPlainText("")
            return
        written = counted(cell.tokens, "token")
        self.cell_head.setText(f"{intensity_words(cell.intensity)} · {written} · {finish(cell.finish) or 'no answer'}")
        self.cell_figures.setText(cell_words(cell))
        shown = cell.text
        if cell.reasoning:
            shown = f"Reasoning, not measured:\n{cell.reasoning}\n\nAnswer:\n{cell.text}"
        if self.cell_text.toPlainText() != shown:
            self.cell_text.setPlainText(shown)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The plot above the answer where there is no room beside it."""
        super().resizeEvent(event)
        wide = self.width() >= BESIDE
        self._beside.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)
        # Its hint does not count, see _build: without this a page without room gives it none, instead of scrolling.
        parts = 2 if wide else 3
        self.setMinimumHeight(parts * LEAST_PART + (parts - 1) * theme.M)

    def _build(self) -> None:
        answers = Card()
        self._nothing.setAlignment(Qt.AlignmentFlag.AlignCenter)
        answers.body.addWidget(self._nothing, 1)
        answers.body.addWidget(self.table, 1)
        self.table.hide()
        told = Card()
        told.body.setSpacing(theme.XS)
        told.body.addWidget(self.cell_head)
        told.body.addWidget(self.cell_figures)
        told.body.addWidget(self.cell_text, 1)
        drawn = Card()
        drawn.body.setSpacing(theme.XS)
        drawn.body.addWidget(self._legend)
        drawn.body.addWidget(self.plot, 1)
        lower = QWidget()
        self._beside = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._beside.setContentsMargins(0, 0, 0, 0)
        self._beside.setSpacing(theme.M)
        lower.setLayout(self._beside)
        for part in (drawn, told):
            self._beside.addWidget(part, 1)
        for part in (answers, drawn, told):
            part.setMinimumHeight(LEAST_PART)
        self.setChildrenCollapsible(False)
        self.setHandleWidth(theme.M)
        self.addWidget(answers)
        self.addWidget(lower)
        self.setStretchFactor(0, 3)
        self.setStretchFactor(1, 2)
        self.setSizes([390, 240])
        # As high as there is room for; what is in it says nothing about that.
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Ignored)

    @Slot()
    def _show_legend(self) -> None:
        colours = theme.current().colours
        drawn = [(name, colour) for name, colour, _ in CURVES if name in self.plot.curves]
        marks = [f'<span style="color:{getattr(colours, colour)}">●</span>&nbsp;{name}' for name, colour in drawn]
        self._legend.setVisible(bool(marks))
        self._legend.setText(
            "&nbsp; ".join(mark.replace(" words", "&nbsp;words") for mark in marks)
            + " — each as a share of its largest"
        )

"""The table of a sweep: a row for each prompt, a column for each value of λ, filled as answers come."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt, Signal
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QFrame, QHeaderView

from engine.public.sweeps import CellResult, ColumnMeans
from ui.kit import theme
from ui.kit.plain_text import as_letters
from ui.kit.sweep_text import cell_words, figure_words, intensity_words, share_words
from ui.kit.token_text import mixed
from ui.kit.views import RowTable

_Index = QModelIndex | QPersistentModelIndex
NARROWEST = 116
PROMPT_WIDTH = 126
PROMPT_LETTERS = 15
LINES, MOST_LINES = 3, 8
"""Of an answer in its cell: more where there is room for all rows."""
MEAN_LINES = 4
TINT = 0.35
"""How much of the accent the cell with the largest share of topic words gets on its ground."""


class SweepModel(QAbstractTableModel):
    """Prompts down, λ across; the last row holds the means."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: tuple[str, ...] = ()
        self.intensities: tuple[float, ...] = ()
        self.cells: dict[tuple[int, float], CellResult] = {}
        self.means: dict[float, ColumnMeans] = {}

    def begin(self, prompts: Sequence[str], intensities: Sequence[float]) -> None:
        """An empty table of this shape."""
        self.beginResetModel()
        self.prompts, self.intensities = tuple(prompts), tuple(intensities)
        self.cells, self.means = {}, {}
        self.endResetModel()

    def put(self, cells: Sequence[CellResult], means: Sequence[ColumnMeans]) -> None:
        """Fill in answers and the means so far."""
        for cell in cells:
            self.cells[cell.prompt, cell.intensity] = cell
        self.means = {mean.intensity: mean for mean in means}
        if self.rowCount() and self.columnCount():
            self.dataChanged.emit(self.index(0, 0), self.index(self.rowCount() - 1, self.columnCount() - 1))

    def cell(self, index: _Index) -> CellResult | None:
        """The answer at a place, where there is one."""
        if not index.isValid() or index.row() >= len(self.prompts):
            return None
        return self.cells.get((index.row(), self.intensities[index.column()]))

    def rowCount(self, parent: _Index | None = None) -> int:
        """A row a prompt, and the means."""
        return 0 if (parent is not None and parent.isValid()) or not self.prompts else len(self.prompts) + 1

    def columnCount(self, parent: _Index | None = None) -> int:
        """A column a value of λ."""
        return 0 if parent is not None and parent.isValid() else len(self.intensities)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """λ above, prompts at the side."""
        across = orientation == Qt.Orientation.Horizontal
        if role == Qt.ItemDataRole.DisplayRole:
            if across:
                return intensity_words(self.intensities[section])
            return _wrapped(self.prompts[section]) if section < len(self.prompts) else "Means"
        if role == Qt.ItemDataRole.ToolTipRole and not across and section < len(self.prompts):
            return as_letters(self.prompts[section])
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignLeft | (Qt.AlignmentFlag.AlignVCenter if across else Qt.AlignmentFlag.AlignTop)
        return None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """An answer, or the means of a column."""
        if index.row() >= len(self.prompts):
            return self._mean(self.intensities[index.column()], role)
        cell = self.cell(index)
        if role == Qt.ItemDataRole.DisplayRole:
            return "…" if cell is None else cell.error or " ".join(cell.text.split()) or "(nothing)"
        if role == Qt.ItemDataRole.ToolTipRole and cell is not None:
            return as_letters(cell_words(cell))
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop
        if role == Qt.ItemDataRole.ForegroundRole:
            bad = cell is not None and cell.error is not None
            return theme.current().colour("bad" if bad else "muted" if cell is None else "text")
        if role == Qt.ItemDataRole.BackgroundRole and cell is not None and cell.topic:
            top = max((each.topic or 0.0 for each in self.cells.values()), default=0.0)
            look = theme.current()
            return mixed(look.colour("card"), look.colour("accent"), TINT * cell.topic / top)
        return None

    def _mean(self, intensity: float, role: int) -> object:
        mean = self.means.get(intensity)
        if role == Qt.ItemDataRole.DisplayRole:
            if mean is None:
                return ""
            told = [] if mean.topic is None else [f"topic {share_words(mean.topic)}"]
            told += [f"features {figure_words(mean.features)}", f"perplexity {figure_words(mean.perplexity)}"]
            told.append(f"repeats {share_words(mean.trigrams)}")
            # Each measure in a line of its own, never in two.
            return "\n".join(each.replace(" ", "\u00a0") for each in told)
        if role == Qt.ItemDataRole.ForegroundRole:
            return theme.current().colour("muted")
        if role == Qt.ItemDataRole.FontRole:
            return theme.current().font("caption")
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop
        return None


class SweepTable(RowTable):
    """Shows a :class:`SweepModel`; says which answer is looked at."""

    looked_at = Signal(object)
    """A :class:`CellResult`, or None."""

    def __init__(self) -> None:
        super().__init__()
        self.sweep = SweepModel()
        self.sweep.setParent(self)
        self.setModel(self.sweep)
        self.setAccessibleName("Answers by prompt and λ")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWordWrap(True)
        self.setObjectName("sweep")
        self.setCornerButtonEnabled(False)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self.horizontalHeader().setHighlightSections(False)
        self.verticalHeader().setFixedWidth(PROMPT_WIDTH)
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self._line = QFontMetrics(self.font()).lineSpacing()
        self.selectionModel().currentChanged.connect(lambda now, _before: self.looked_at.emit(self.sweep.cell(now)))
        self.sweep.modelReset.connect(self._share_room)
        theme.current().changed.connect(self.viewport().update)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Share the room among columns and rows, as long as each can be read."""
        super().resizeEvent(event)
        self._share_room()

    def _share_room(self) -> None:
        self._share_width()
        rows = self.sweep.rowCount()
        if not rows:
            return
        means = MEAN_LINES * self._line + theme.XS
        each = (self.viewport().height() - means) // max(1, rows - 1) - theme.XS
        # Whole lines: what begins of a further one would be drawn cut.
        lines = min(MOST_LINES, max(LINES, each // self._line))
        for row in range(rows - 1):
            self.verticalHeader().resizeSection(row, lines * self._line + theme.XS)
        self.verticalHeader().resizeSection(rows - 1, means)

    def _share_width(self) -> None:
        columns = self.sweep.columnCount()
        if columns:
            # The vertical bar may come only after this: leave it its room, or a horizontal one would come too.
            room = (self.width() - PROMPT_WIDTH - self.verticalScrollBar().sizeHint().width() - 4) // columns
            self.horizontalHeader().setDefaultSectionSize(max(NARROWEST, room))


def _wrapped(prompt: str) -> str:
    """A prompt in as many short lines as a row has."""
    return "\n".join(textwrap.wrap(prompt, PROMPT_LETTERS, max_lines=LINES, placeholder="…"))

"""The rolling heat map of the Monitor page: tokens from left to right, features from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QEvent, QObject, QPointF, Qt, Signal, Slot
from PySide6.QtGui import QFontMetrics, QHelpEvent, QMouseEvent, QResizeEvent
from PySide6.QtWidgets import QStackedLayout, QToolTip, QWidget

from ui.kit import plots, theme
from ui.kit.basics import label
from ui.kit.plain_text import as_letters
from ui.look.feature_facts import visible
from ui.look.monitor_feed import ROWS, WINDOW, Map

TICK_GAP = 8
LABEL_LENGTH = 26
LEFT_AXIS = 210
BOTTOM_AXIS = 30
FEWEST = 5


class HeatMap(QWidget):
    """Shows words until the plotting library is there and there is something to draw."""

    picked = Signal(int)
    """A feature whose row was clicked."""
    room_changed = Signal()
    """Another number of rows fits than before."""

    def __init__(self) -> None:
        super().__init__()
        self.words = label("", "muted", wrap=True)
        self.words.setAlignment(Qt.AlignmentFlag.AlignCenter)
        # The layout has its widget before it gets the words: it shows what is first in it at once.
        self._stack = QStackedLayout(self)
        self._stack.addWidget(self.words)
        self.setMinimumHeight(160)
        self.setAccessibleName("Features over the last tokens")
        self._pg: Any = None
        self._plot: Any = None
        self._image: Any = None
        self._map: Map | None = None
        self._names: dict[int, str] = {}
        self._room = ROWS
        theme.current().changed.connect(self._redress)

    def build(self, pg: Any) -> None:
        """The plotting library is there."""
        self._pg = pg
        self._plot = plots.plain_plot(pg)
        self._image = pg.ImageItem()
        self._plot.addItem(self._image)
        item = self._plot.getPlotItem()
        item.getViewBox().invertY(True)
        item.getViewBox().setDefaultPadding(0)
        item.getAxis("left").setWidth(LEFT_AXIS)
        item.getAxis("bottom").setStyle(tickLength=0)
        item.getAxis("left").setStyle(tickLength=0)
        self._plot.viewport().installEventFilter(self)
        self._plot.viewport().setMouseTracking(True)
        self._stack.addWidget(self._plot)
        self._redress()

    def show_words(self, words: str) -> None:
        """Say why there is nothing to see."""
        self.words.setText(words)
        self._stack.setCurrentIndex(0)

    def show_map(self, shown: Map, names: dict[int, str]) -> None:
        """Draw these values."""
        self._map, self._names = shown, names
        if self._plot is None or not shown.features or not shown.tokens:
            return
        import numpy as np

        # Always as wide as the window: cells then keep their size while the first tokens come in.
        grid = np.zeros((len(shown.features), WINDOW), dtype=np.float32)
        grid[:, : len(shown.tokens)] = np.asarray(shown.values, dtype=np.float32)
        self._image.setImage(grid, levels=(0.0, max(shown.top, 1e-6)), autoLevels=False)
        item = self._plot.getPlotItem()
        item.setRange(xRange=(0, WINDOW), yRange=(0, len(shown.features)), padding=0)
        item.getAxis("bottom").setTicks([self._token_ticks(shown.tokens)])
        item.getAxis("left").setTicks(
            [[(row + 0.5, _short(names.get(index, f"#{index}"))) for row, index in enumerate(shown.features)]]
        )
        self._stack.setCurrentWidget(self._plot)

    @property
    def room(self) -> int:
        """Rows whose names can stand one below the other."""
        high = QFontMetrics(theme.current().font("caption")).height() + 2
        return min(ROWS, max(FEWEST, (self.height() - BOTTOM_AXIS) // high))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Say so where more or fewer rows fit."""
        before = self._room
        super().resizeEvent(event)
        self._room = self.room
        if self._room != before:
            self.room_changed.emit()

    @property
    def shown(self) -> Map | None:
        """What is drawn; None while words stand there."""
        return self._map if self._plot is not None and self._stack.currentWidget() is self._plot else None

    def cell_at(self, point: QPointF) -> tuple[int, int] | None:
        """Row and column under a point of the plot's viewport."""
        if self._map is None or self._plot is None:
            return None
        place = self._plot.getPlotItem().getViewBox().mapSceneToView(self._plot.mapToScene(point.toPoint()))
        row, column = int(place.y()), int(place.x())
        if place.y() < 0 or row >= len(self._map.features) or place.x() < 0 or column >= len(self._map.tokens):
            return None
        return row, column

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """The value under the pointer, and a click on a row."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            cell = self.cell_at(QPointF(event.pos()))
            if cell is None or self._map is None:
                QToolTip.hideText()
            else:
                row, column = cell
                index = self._map.features[row]
                words = f"{self._names.get(index, f'#{index}')}\n“{visible(self._map.tokens[column])}”"
                QToolTip.showText(event.globalPos(), as_letters(f"{words}: {self._map.values[row][column]:.2f}"), self)
            return True
        if isinstance(event, QMouseEvent) and event.type() == QEvent.Type.MouseButtonPress:
            cell = self.cell_at(event.position())
            if cell is not None and self._map is not None and event.button() == Qt.MouseButton.LeftButton:
                self.picked.emit(self._map.features[cell[0]])
                return True
        return super().eventFilter(watched, event)

    def _token_ticks(self, tokens: Sequence[str]) -> list[tuple[float, str]]:
        """As many tokens as can stand beside each other; the newest always does."""
        metrics = QFontMetrics(theme.current().font("caption"))
        cell = max(1.0, (self.width() - LEFT_AXIS) / WINDOW)
        ticks: list[tuple[float, str]] = []
        free = float("inf")
        for place in range(len(tokens) - 1, -1, -1):
            words = visible(tokens[place]).strip() or "·"
            half, middle = metrics.horizontalAdvance(words) / 2, (place + 0.5) * cell
            if middle + half <= free and middle - half >= -cell:
                ticks.append((place + 0.5, words))
                free = middle - half - TICK_GAP
        return ticks

    @Slot()
    def _redress(self) -> None:
        if self._plot is None:
            return
        plots.dress(self._plot)
        look = theme.current()
        ends = [look.colour("raised"), look.colour("accent")]
        self._image.setLookupTable(self._pg.ColorMap([0.0, 1.0], ends).getLookupTable(nPts=256))


def _short(name: str) -> str:
    return name if len(name) <= LABEL_LENGTH else f"{name[: LABEL_LENGTH - 1]}…"

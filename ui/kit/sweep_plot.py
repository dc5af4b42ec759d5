"""The means of a sweep over the dial, as curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QStackedLayout, QWidget

from engine.public.sweeps import ColumnMeans
from ui.kit import plots, theme
from ui.kit.basics import label

CURVES = (
    ("topic words", "accent", lambda mean: mean.topic),
    ("features", "good", lambda mean: mean.features),
    ("perplexity", "warn", lambda mean: mean.perplexity),
    ("repeats", "muted", lambda mean: mean.trigrams),
)
"""Name, colour and value of each curve; each is drawn as a share of its own largest value."""


class SweepPlot(QWidget):
    """Four curves on one scale: each measure as a share of its own largest mean."""

    def __init__(self) -> None:
        super().__init__()
        self.words = label("The means show here as answers come in.", "muted", wrap=True)
        self.words.setAlignment(Qt.AlignmentFlag.AlignCenter)
        # The layout has its widget before it gets the words: it shows what is first in it at once.
        self._stack = QStackedLayout(self)
        self._stack.addWidget(self.words)
        self.setMinimumHeight(96)
        self.setAccessibleName("Means over the dial")
        self._pg: Any = None
        self._plot: Any = None
        self._means: Sequence[ColumnMeans] = ()
        self.curves: dict[str, list[tuple[float, float]]] = {}
        theme.current().changed.connect(self._draw)

    def build(self, pg: Any) -> None:
        """The plotting library is there."""
        self._pg = pg
        self._plot = plots.plain_plot(pg)
        self._stack.addWidget(self._plot)
        self._draw()

    def show_means(self, means: Sequence[ColumnMeans]) -> None:
        """Draw these means."""
        self._means = means
        self._draw()

    @Slot()
    def _draw(self) -> None:
        self.curves = curves_of(self._means)
        if self._plot is None or not self.curves:
            self._stack.setCurrentIndex(0)
            return
        pg, look = self._pg, theme.current()
        plots.dress(self._plot)
        item = self._plot.getPlotItem()
        item.clear()
        item.getAxis("left").setTicks([[(0.0, "0"), (1.0, "most")]])
        item.getAxis("left").setWidth(40)
        item.getAxis("bottom").setTicks(
            [[(mean.intensity, "plain" if mean.intensity == 0 else f"{mean.intensity:g}") for mean in self._means]]
        )
        for name, colour, _ in CURVES:
            points = self.curves.get(name)
            if points:
                xs, ys = zip(*points, strict=True)
                pen = pg.mkPen(look.colour(colour), width=2)
                item.plot(
                    list(xs),
                    list(ys),
                    pen=pen,
                    symbol="o",
                    symbolSize=6,
                    symbolBrush=look.colour(colour),
                    symbolPen=None,
                )
        last = max((mean.intensity for mean in self._means), default=1.0)
        item.setRange(xRange=(-0.12 * max(last, 0.1), 1.05 * max(last, 0.1)), yRange=(-0.05, 1.1), padding=0)
        self._stack.setCurrentWidget(self._plot)


def curves_of(means: Sequence[ColumnMeans]) -> dict[str, list[tuple[float, float]]]:
    """Each measure that was taken, by rising intensity, as a share of its own largest mean."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name, _, value in CURVES:
        points = [(mean.intensity, known) for mean in means if (known := value(mean)) is not None]
        top = max((known for _, known in points), default=0.0)
        if points and top > 0:
            found[name] = [(where, known / top) for where, known in points]
    return found

"""Horizontal bars with a name and a value each: the strongest features of the last token."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from ui.kit import theme

BAR, GAP = 6, 8


class Bars(QWidget):
    """Paints as many bars as have room."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.bars: Sequence[tuple[str, float]] = ()
        self._top = 0.0
        theme.current().changed.connect(self.update)

    def show_bars(self, bars: Sequence[tuple[str, float]], top: float) -> None:
        """Show (name, value) pairs; ``top`` is the value of a full bar, grown where a value is above it."""
        self.bars = bars
        self._top = max([top, *(value for _, value in bars)], default=0.0)
        self.setAccessibleDescription(", ".join(f"{name}: {value:.2f}" for name, value in bars))
        self.update()

    def minimumSizeHint(self) -> QSize:
        """Room for a few."""
        return QSize(180, 3 * self._step())

    def sizeHint(self) -> QSize:
        """Room for ten."""
        return QSize(260, 10 * self._step())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw name and value above each bar."""
        look = theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(look.font("small"))
        metrics = QFontMetrics(look.font("small"))
        step, width = self._step(), self.width()
        for turn, (name, value) in enumerate(self.bars):
            y = turn * step
            if y + step > self.height() + GAP:
                break
            told = f"{value:.2f}"
            room = width - metrics.horizontalAdvance(told) - GAP
            line = QRectF(0, y, width, metrics.height())
            painter.setPen(look.colour("text"))
            painter.drawText(
                line, Qt.AlignmentFlag.AlignLeft, metrics.elidedText(name, Qt.TextElideMode.ElideRight, room)
            )
            painter.setPen(look.colour("muted"))
            painter.drawText(line, Qt.AlignmentFlag.AlignRight, told)
            painter.setPen(Qt.PenStyle.NoPen)
            y += metrics.height() + 2
            painter.setBrush(look.colour("raised"))
            painter.drawRoundedRect(QRectF(0, y, width, BAR), BAR / 2, BAR / 2)
            share = value / self._top if self._top > 0 else 0.0
            if share > 0:
                painter.setBrush(look.colour("accent"))
                painter.drawRoundedRect(QRectF(0, y, max(BAR, share * width), BAR), BAR / 2, BAR / 2)
        painter.end()

    def _step(self) -> int:
        return QFontMetrics(theme.current().font("small")).height() + 2 + BAR + GAP

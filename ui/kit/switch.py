"""An on/off switch, painted in the palette in force."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton

from ui.kit import theme
from ui.kit.plain_text import as_letters

WIDTH, HEIGHT = 40, 24
AIR = 3


class Switch(QAbstractButton):
    """Checked is on. ``tip`` is its tooltip and its name for screen readers; ``clicked`` is a person's wish."""

    def __init__(self, tip: str) -> None:
        super().__init__()
        self.setCheckable(True)
        self.setToolTip(as_letters(tip))
        self.setAccessibleName(tip)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setFixedSize(WIDTH, HEIGHT)
        theme.current().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        """Always the same."""
        return QSize(WIDTH, HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the track, the knob and, with the keyboard on it, a ring."""
        look = theme.current()
        on, able = self.isChecked(), self.isEnabled()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        track = QRectF(self.rect()).adjusted(AIR, AIR, -AIR, -AIR)
        ground = ("accent" if on else "muted") if able else "line_strong"
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(look.colour(ground))
        painter.drawRoundedRect(track, track.height() / 2, track.height() / 2)
        side = track.height() - 4
        left = track.right() - side - 2 if on else track.left() + 2
        painter.setBrush(look.colour("card"))
        painter.drawEllipse(QRectF(left, track.top() + 2, side, side))
        if self.hasFocus():
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(look.colour("accent"), 1))
            ring = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
            painter.drawRoundedRect(ring, ring.height() / 2, ring.height() / 2)
        painter.end()

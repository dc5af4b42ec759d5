"""Tick boxes, in lists and trees too, in the window's colours: a style sheet can colour them but draw no tick."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QProxyStyle, QStyle, QStyleOption, QWidget

from ui.kit.colours import Colours

BOXES = (QStyle.PrimitiveElement.PE_IndicatorCheckBox, QStyle.PrimitiveElement.PE_IndicatorItemViewItemCheck)
TICK = ((0.24, 0.54), (0.43, 0.72), (0.78, 0.30))
"""Its corners, as shares of the box."""


class TickStyle(QProxyStyle):
    """Fusion with our tick boxes. ``colours`` gives the palette in force."""

    def __init__(self, colours: Callable[[], Colours]) -> None:
        super().__init__("Fusion")
        self._colours = colours

    def drawPrimitive(
        self,
        element: QStyle.PrimitiveElement,
        option: QStyleOption,
        painter: QPainter,
        widget: QWidget | None = None,
    ) -> None:
        """Qt's name for it."""
        if element in BOXES:
            draw_box(painter, QRectF(option.rect), option.state, self._colours())
        else:
            super().drawPrimitive(element, option, painter, widget)


def draw_box(painter: QPainter, rect: QRectF, state: QStyle.StateFlag, colours: Colours) -> None:
    """A box with a tick where it is on, a dash where only some of what it stands for is."""
    flags = QStyle.StateFlag
    able, some = bool(state & flags.State_Enabled), bool(state & flags.State_NoChange)
    full = some or bool(state & flags.State_On)
    ink = colours.accent if able else colours.disabled
    edge = ink if full or (able and state & flags.State_MouseOver) else colours.muted
    if able and state & flags.State_HasFocus:
        edge = colours.text if full else colours.accent
    side = min(rect.width(), rect.height()) - 1
    box = QRectF(rect.center().x() - side / 2, rect.center().y() - side / 2, side, side)
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(QColor(edge if able else colours.disabled), 1))
    painter.setBrush(QColor(ink if full else colours.card))
    painter.drawRoundedRect(box, 3, 3)
    if full:
        pen = QPen(QColor(colours.on_accent if able else colours.card), max(1.6, side / 8))
        pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
        painter.setPen(pen)
        corners = ((0.27, 0.5), (0.73, 0.5)) if some else TICK
        painter.drawPolyline([QPointF(box.x() + x * side, box.y() + y * side) for x, y in corners])
    painter.restore()

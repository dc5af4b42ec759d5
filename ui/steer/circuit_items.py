"""What a circuit's drawing is made of: nodes that light up, edges as thick as their effect, bands for layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPainterPath, QPainterPathStroker, QPen, QPolygonF
from PySide6.QtWidgets import QGraphicsItem, QGraphicsObject, QStyleOptionGraphicsItem, QWidget

from ui.kit import theme
from ui.kit.plain_text import as_letters
from ui.kit.steering_text import signed, strength
from ui.steer.circuit_graph import GraphEdge, GraphNode

NODE = QRectF(-112, -28, 224, 56)
"""A node around its middle."""
THIN = 1.2
"""Width of an edge without a measured effect, dashed."""
LEAST, MOST = 1.6, 12.0
"""Narrowest and widest edge with a measured effect."""
PER_EFFECT = 12.0
"""Width of an edge for an effect of 1."""
HIT = 12.0
GAP = 3.0
"""Between a node and the head of an edge."""
RUNG_COLOURS = ("muted", "warn", "accent", "good")
"""Colour of an edge by its rung, as of the rung's badge."""


def edge_width(effect: float | None) -> float:
    """How thick an edge is drawn: in proportion to its effect's size, thin without one."""
    return THIN if effect is None else min(MOST, max(LEAST, PER_EFFECT * abs(effect)))


def blend(one: QColor, other: QColor, share: float) -> QColor:
    """``share`` 0 is ``one``, 1 is ``other``."""
    kept = min(1.0, max(0.0, share))
    ends = ((one.redF(), other.redF()), (one.greenF(), other.greenF()), (one.blueF(), other.blueF()))
    red, green, blue = (first + (last - first) * kept for first, last in ends)
    return QColor.fromRgbF(red, green, blue)


class NodeItem(QGraphicsObject):
    """A member; it takes the keyboard, and its fill rises with its live activation."""

    def __init__(self, node: GraphNode) -> None:
        super().__init__()
        self.node = node
        self.value: float | None = None
        self._greatest = node.greatest or 0.0
        self.setPos(node.x, node.y)
        self.setZValue(2)
        self.setAcceptHoverEvents(True)
        self.setFlag(QGraphicsItem.GraphicsItemFlag.ItemIsFocusable)
        self.setFlag(QGraphicsItem.GraphicsItemFlag.ItemIsSelectable)
        self.setToolTip(as_letters("\n".join((node.said(), *node.told))))

    @property
    def lit(self) -> float:
        """How bright it is, 0 to 1: of the largest activation its author saw, or the largest seen here."""
        if not self.value or self._greatest <= 0:
            return 0.0
        return min(1.0, self.value / self._greatest)

    def light(self, value: float | None) -> None:
        """Show a live activation, None while it is not known."""
        if value is not None:
            self._greatest = max(self._greatest, value) if self.node.greatest is None else self._greatest
        if value != self.value:
            self.value = value
            told = () if value is None else (f"Activation at the last token: {strength(value)}",)
            self.setToolTip(as_letters("\n".join((self.node.said(), *told, *self.node.told))))
            self.update()

    def boundingRect(self) -> QRectF:
        """The node and its ring."""
        return NODE.adjusted(-4, -4, 4, 4)

    def shape(self) -> QPainterPath:
        """What a click hits."""
        path = QPainterPath()
        path.addRoundedRect(NODE, theme.RADIUS, theme.RADIUS)
        return path

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        """Draw the box, the light in it, and two lines of words."""
        look = theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        ground = blend(look.colour("card"), look.colour("accent_soft"), 0.0 if self.lit == 0 else 0.25 + self.lit)
        pen = QPen(look.colour("accent" if self.lit > 0 else "line_strong"), 1.5 if self.lit > 0 else 1)
        if not self.node.member:
            pen.setStyle(Qt.PenStyle.DashLine)
        painter.setPen(pen)
        painter.setBrush(ground)
        painter.drawRoundedRect(NODE, theme.RADIUS, theme.RADIUS)
        if self.lit > 0:
            bar = QRectF(NODE.left() + 10, NODE.bottom() - 7, (NODE.width() - 20) * self.lit, 4)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(look.colour("accent"))
            painter.drawRoundedRect(bar, 2, 2)
        if self.hasFocus() or self.isSelected():
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(look.colour("accent"), 2))
            painter.drawRoundedRect(NODE.adjusted(-3, -3, 3, 3), theme.RADIUS + 2, theme.RADIUS + 2)
        inside = NODE.adjusted(10, 6, -10, -10)
        bold, small = look.font("small", bold=True), look.font("caption")
        painter.setFont(bold)
        painter.setPen(look.colour("text" if self.node.name != "no label" else "muted"))
        name = QFontMetrics(bold).elidedText(self.node.name, Qt.TextElideMode.ElideRight, int(inside.width()))
        painter.drawText(inside, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft, name)
        painter.setFont(small)
        painter.setPen(look.colour("muted"))
        painter.drawText(inside, Qt.AlignmentFlag.AlignBottom | Qt.AlignmentFlag.AlignLeft, self._number())
        if self.value is not None:
            painter.setPen(look.colour("on_accent_soft" if self.lit > 0 else "muted"))
            painter.drawText(inside, Qt.AlignmentFlag.AlignBottom | Qt.AlignmentFlag.AlignRight, strength(self.value))

    def _number(self) -> str:
        index = "cluster" if self.node.index is None else f"#{self.node.index}"
        return index if self.node.strength is None else f"{index}  {signed(self.node.strength)}"


class EdgeItem(QGraphicsObject):
    """An edge from below to above, coloured by its rung and as thick as its effect; dashed where none was measured."""

    def __init__(self, edge: GraphEdge, up: NodeItem, down: NodeItem, said: str, bend: float) -> None:
        super().__init__()
        self.edge = edge
        self.said = said
        self.width = edge_width(edge.effect)
        self.setZValue(1)
        self.setAcceptHoverEvents(True)
        self.setFlag(QGraphicsItem.GraphicsItemFlag.ItemIsFocusable)
        self.setFlag(QGraphicsItem.GraphicsItemFlag.ItemIsSelectable)
        self.setToolTip(as_letters("\n".join(said.split(" · "))))
        self._path, self._tip, self._angle = _route(up.pos(), down.pos(), up is down, bend)

    @property
    def dashed(self) -> bool:
        """Whether no effect was measured."""
        return self.edge.effect is None

    @property
    def colour(self) -> str:
        """The palette's name of its colour."""
        return RUNG_COLOURS[self.edge.rung]

    def boundingRect(self) -> QRectF:
        """The line, its head and what a click hits."""
        air = max(HIT, self.width + 10)
        return self._path.boundingRect().adjusted(-air, -air, air, air)

    def shape(self) -> QPainterPath:
        """A broad line, so that a thin edge can be hit."""
        stroker = QPainterPathStroker()
        stroker.setWidth(max(HIT, self.width))
        return stroker.createStroke(self._path)

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        """Draw the line and its head: an arrow, or a bar where the effect is negative."""
        look = theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        colour = look.colour(self.colour)
        if self.hasFocus() or self.isSelected():
            painter.setPen(QPen(look.colour("accent_soft"), self.width + 8, Qt.PenStyle.SolidLine))
            painter.drawPath(self._path)
        pen = QPen(colour, self.width)
        pen.setCapStyle(Qt.PenCapStyle.FlatCap)
        if self.dashed:
            pen.setDashPattern([5, 4])
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPath(self._path)
        side = 6 + self.width
        across = QPointF(-math.sin(self._angle), math.cos(self._angle)) * side * 0.6
        if self.edge.effect is not None and self.edge.effect < 0:
            painter.setPen(QPen(colour, max(2.5, self.width * 0.6)))
            painter.drawLine(self._tip + across, self._tip - across)
            return
        back = self._tip - QPointF(math.cos(self._angle), math.sin(self._angle)) * side
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour)
        painter.drawPolygon(QPolygonF([self._tip, back + across, back - across]))


class BandItem(QGraphicsItem):
    """A layer: a line across the drawing and its number."""

    def __init__(self, layer: int, y: float, left: float, right: float) -> None:
        super().__init__()
        self.layer = layer
        self._box = QRectF(left, y - NODE.height() / 2 - 8, right - left, NODE.height() + 16)
        self.setZValue(0)

    def boundingRect(self) -> QRectF:
        """The band."""
        return self._box

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        """Draw it behind everything else."""
        look = theme.current()
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(look.colour("ground"))
        painter.drawRoundedRect(self._box, theme.RADIUS, theme.RADIUS)
        painter.setFont(look.font("caption", bold=True))
        painter.setPen(look.colour("muted"))
        words = self._box.adjusted(theme.M, 0, -theme.M, 0)
        painter.drawText(words, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, f"Layer {self.layer}")


def _route(start: QPointF, end: QPointF, loop: bool, bend: float) -> tuple[QPainterPath, QPointF, float]:
    """The line between two nodes, where its head is, and which way it points (radians)."""
    path = QPainterPath()
    if loop:
        side = start + QPointF(NODE.right(), 0)
        path.moveTo(side + QPointF(0, -14))
        path.cubicTo(side + QPointF(46, -26), side + QPointF(46, 26), side + QPointF(2, 14))
        return path, side + QPointF(0, 14), math.pi
    if abs(start.y() - end.y()) < 1:
        low = max(start.y(), end.y()) + NODE.bottom()
        first, last = QPointF(start.x(), low), QPointF(end.x(), low)
        depth = 26.0
        path.moveTo(first)
        path.cubicTo(first + QPointF(0, depth), last + QPointF(0, depth), last + QPointF(0, 6))
        return path, last, -math.pi / 2
    rising = end.y() < start.y()
    first = start + QPointF(0, NODE.top() if rising else NODE.bottom())
    last = end + QPointF(0, NODE.bottom() + GAP if rising else NODE.top() - GAP)
    if bend:
        # Past the nodes of the layers between, not through them.
        first = start + QPointF(math.copysign(NODE.right(), bend), 0)
        last = end + QPointF(math.copysign(NODE.right() + GAP, bend), 0)
        out = QPointF(bend, 0)
        path.moveTo(first)
        path.cubicTo(first + out, last + out, last + QPointF(math.copysign(6, bend), 0))
        return path, last, math.pi if bend > 0 else 0.0
    reach = (last.y() - first.y()) / 2
    path.moveTo(first)
    stop = last - QPointF(0, math.copysign(6, last.y() - first.y()))
    path.cubicTo(first + QPointF(0, reach), last - QPointF(0, reach), stop)
    return path, last, -math.pi / 2 if rising else math.pi / 2


def bends(edges: Sequence[GraphEdge]) -> list[float]:
    """How far each edge swings out sideways: those that pass a layer do, in turn to the right and to the left."""
    found, turn = [], 0
    for edge in edges:
        passed = abs(edge.span) - 1
        if passed < 1:
            found.append(0.0)
            continue
        side = 1 if turn % 2 == 0 else -1
        found.append(side * (44.0 + 22.0 * passed + 14.0 * (turn // 2)))
        turn += 1
    return found

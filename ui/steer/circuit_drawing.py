"""A circuit as a drawing: layers from bottom to top, edges by evidence, nodes lit by what fires. Zoom, keys, legend."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QFrame, QGraphicsItem, QGraphicsScene, QGraphicsView, QSizePolicy, QWidget

from ui.kit import theme
from ui.kit.basics import IconButton, add_all, column, label, line
from ui.kit.flow import Flow
from ui.kit.plain_text import as_letters
from ui.steer.circuit_graph import CircuitGraph
from ui.steer.circuit_items import NODE, RUNG_COLOURS, BandItem, EdgeItem, NodeItem, bends
from ui.steer.circuit_text import edge_words

AIR = 26.0
BAND_LABEL = 92.0
STEP = 1.25
SMALLEST, LARGEST = 0.2, 3.0
SAID_LINES, NARROW_LINES, SAID_WIDTH = 2, 3, 520
"""Lines kept for what is said of a node or an edge, and the width from which on the fewer are enough."""
AT_FIRST = 1.15
"""A small circuit is not blown up beyond this."""

_ARROWS = {
    Qt.Key.Key_Up: (0, -1),
    Qt.Key.Key_Down: (0, 1),
    Qt.Key.Key_Left: (-1, 0),
    Qt.Key.Key_Right: (1, 0),
}


class CircuitCanvas(QGraphicsView):
    """The drawing itself. Arrows go from node to node, Tab through everything, + − 0 zoom."""

    noticed = Signal(str)
    """What the item under the mouse or the keyboard says; empty for none."""
    opened = Signal(int, int)
    """(layer, feature) of a node that was double-clicked, or that had the keyboard at Enter."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("drawing")
        self.setScene(QGraphicsScene(self))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setRenderHint(QPainter.RenderHint.Antialiasing)
        self.setDragMode(QGraphicsView.DragMode.ScrollHandDrag)
        self.setTransformationAnchor(QGraphicsView.ViewportAnchor.AnchorUnderMouse)
        self.setAccessibleName("Drawing of the circuit")
        self.nodes: dict[str, NodeItem] = {}
        self.edges: list[EdgeItem] = []
        self._fitted = True
        self._graph: CircuitGraph | None = None
        self._hovered: QGraphicsItem | None = None
        self.setMouseTracking(True)
        self.scene().focusItemChanged.connect(lambda *_items: self._tell())
        theme.current().changed.connect(self._redraw)
        self._redraw()

    def show_graph(self, graph: CircuitGraph) -> None:
        """Draw another graph; the same one stays as it is, with its light."""
        if graph == self._graph:
            return
        self._graph = graph
        self._hovered = None
        scene = self.scene()
        scene.clear()
        self.nodes = {key: NodeItem(node) for key, node in graph.nodes.items()}
        xs = [node.x for node in graph.nodes.values()] or [0.0]
        swing = max((abs(each) for each in bends(graph.edges)), default=0.0)
        left = min(xs) + NODE.left() - swing - BAND_LABEL
        right = max(xs) + NODE.right() + swing + AIR
        for layer, y in graph.layers:
            scene.addItem(BandItem(layer, y, left, right))
        self.edges = []
        for edge, bend in zip(graph.edges, bends(graph.edges), strict=True):
            item = EdgeItem(edge, self.nodes[edge.up], self.nodes[edge.down], edge.said(graph.nodes), bend)
            self.edges.append(item)
            scene.addItem(item)
        for node in self.nodes.values():
            scene.addItem(node)
        scene.setSceneRect(scene.itemsBoundingRect().adjusted(-AIR, -AIR / 2, AIR, AIR / 2))
        self.fit()

    def light(self, layer: int, values: Mapping[int, float] | None) -> None:
        """Light a layer by what fires there; a feature that is not in ``values`` does not. None: not known."""
        for item in self.nodes.values():
            if item.node.layer == layer and item.node.index is not None:
                item.light(None if values is None else values.get(item.node.index, 0.0))

    def sizeHint(self) -> QSize:
        """A modest room; the drawing fits itself into whatever there is."""
        return QSize(320, 150)

    # --- zoom -------------------------------------------------------------------------------------------------------

    def zoom(self, factor: float) -> None:
        """Nearer or farther."""
        scale = min(LARGEST, max(SMALLEST, self.transform().m11() * factor))
        self._fitted = False
        self.resetTransform()
        self.scale(scale, scale)

    def fit(self) -> None:
        """All of it in view, and so again after a change of size."""
        self._fitted = True
        self.resetTransform()
        rect, room = self.sceneRect(), self.viewport().size()
        if rect.width() > 0 and rect.height() > 0 and room.width() > 0 and room.height() > 0:
            scale = min(room.width() / rect.width(), room.height() / rect.height(), AT_FIRST)
            self.scale(max(scale, SMALLEST), max(scale, SMALLEST))
            self.centerOn(rect.center())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Fit again, unless a person zoomed."""
        super().resizeEvent(event)
        if self._fitted:
            self.fit()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Ctrl and the wheel zoom; the wheel alone scrolls."""
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self.zoom(STEP if event.angleDelta().y() > 0 else 1 / STEP)
        else:
            super().wheelEvent(event)

    # --- keys and mouse ---------------------------------------------------------------------------------------------

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Go from node to node, zoom, or leave the key to others."""
        key = event.key()
        if key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.zoom(STEP)
        elif key == Qt.Key.Key_Minus:
            self.zoom(1 / STEP)
        elif key == Qt.Key.Key_0:
            self.fit()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._open(self.scene().focusItem())
        elif key in _ARROWS:
            self._walk(*_ARROWS[Qt.Key(key)])
        else:
            super().keyPressEvent(event)

    def focusNextPrevChild(self, forward: bool) -> bool:
        """Tab goes through nodes and edges, then on to the next widget."""
        items: list[QGraphicsItem] = [*self.nodes.values(), *self.edges]
        now = self.scene().focusItem()
        place = items.index(now) if now in items else (-1 if forward else len(items))
        place += 1 if forward else -1
        if 0 <= place < len(items):
            self._focus(items[place])
            return True
        self.scene().setFocusItem(None)  # type: ignore[arg-type]  # no item has the keyboard then, as Qt documents
        return super().focusNextPrevChild(forward)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Only the left button drags and chooses."""
        if event.button() == Qt.MouseButton.LeftButton:
            super().mousePressEvent(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Open the feature under the mouse."""
        if event.button() == Qt.MouseButton.LeftButton:
            self._open(self.itemAt(event.position().toPoint()))

    def _open(self, item: QGraphicsItem | None) -> None:
        if isinstance(item, NodeItem) and item.node.index is not None:
            self.opened.emit(item.node.layer, item.node.index)

    def viewportEvent(self, event: QEvent) -> bool:
        """Notice what the mouse is over."""
        if event.type() == QEvent.Type.MouseMove:
            self._hover(self.itemAt(event.position().toPoint()))  # type: ignore[attr-defined]
        elif event.type() == QEvent.Type.Leave:
            self._hover(None)
        return super().viewportEvent(event)

    def _walk(self, right: int, down: int) -> None:
        """To the node that way; to the first one where none has the keyboard."""
        now = self.scene().focusItem()
        if not isinstance(now, NodeItem):
            if self.nodes:
                self._focus(next(iter(self.nodes.values())))
            return
        here = now.pos()

        def far(item: NodeItem) -> tuple[float, float]:
            step = item.pos() - here
            return (abs(step.x()), 0.0) if right else (abs(step.y()), abs(step.x()))

        def that_way(item: NodeItem) -> bool:
            step = item.pos() - here
            if right:
                return abs(step.y()) < 1 and step.x() * right > 1
            return step.y() * down > 1

        # Across layers to the next one, and there to the nearest; sideways within a layer.
        best = min(filter(that_way, self.nodes.values()), key=far, default=None)
        if best is not None:
            self._focus(best)

    def _focus(self, item: QGraphicsItem) -> None:
        self.scene().setFocusItem(item)
        self.ensureVisible(item, 12, 12)

    def _hover(self, item: QGraphicsItem | None) -> None:
        if item is not self._hovered:
            self._hovered = item
            self._tell()

    def _tell(self) -> None:
        for item in (self._hovered, self.scene().focusItem()):
            if isinstance(item, NodeItem):
                self.noticed.emit(" · ".join((item.node.said(), *item.node.told)))
                return
            if isinstance(item, EdgeItem):
                self.noticed.emit(item.said)
                return
        self.noticed.emit("")

    def _redraw(self) -> None:
        self.setBackgroundBrush(theme.current().colour("card"))
        self.viewport().update()


class EdgeSwatch(QWidget):
    """A short piece of an edge, for the legend."""

    def __init__(self, colour: str, width: float, dashed: bool) -> None:
        super().__init__()
        self._look = (colour, width, dashed)
        self.setFixedSize(30, 16)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draw it."""
        colour, width, dashed = self._look
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        pen = QPen(theme.current().colour(colour), width)
        if dashed:
            pen.setDashPattern([4, 3])
        painter.setPen(pen)
        middle = QRectF(self.rect()).center().y()
        painter.drawLine(2, round(middle), self.width() - 2, round(middle))
        painter.end()


class CircuitDrawing(QWidget):
    """The view with its buttons, its legend, and a line that says what is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.view = CircuitCanvas()
        self.legend = Flow(theme.M)
        self.said = label("", "small", wrap=True, selectable=True)
        self.legend_words: tuple[str, ...] = ()
        self._noticed = self._live = ""
        self.zoom_in = IconButton("plus", "Zoom in (+)", partial(self.view.zoom, STEP))
        self.zoom_out = IconButton("minus", "Zoom out (−)", partial(self.view.zoom, 1 / STEP))
        self.fit_button = IconButton("fit", "Show all of it (0)", self.view.fit)
        self.view.noticed.connect(self._notice)
        self.view.setMinimumHeight(150)
        self.said.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
        self.said.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.foot = line(spacing=theme.S)
        self.foot.addWidget(self.said, 1)
        tools = column(spacing=theme.XS)
        add_all(tools, self.zoom_in, self.zoom_out, self.fit_button, None)
        drawn = line(spacing=theme.XS)
        drawn.addWidget(self.view, 1)
        drawn.addLayout(tools)
        layout = column(spacing=theme.XS)
        layout.addLayout(drawn, 1)
        layout.addLayout(self.foot)
        layout.addWidget(self.legend)
        self.setLayout(layout)
        self._say()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """What is said of a node has its lines kept free: the drawing stands still while the mouse goes over it."""
        super().resizeEvent(event)
        self._reserve()

    def _reserve(self) -> None:
        lines = SAID_LINES if self.width() >= SAID_WIDTH else NARROW_LINES
        self.said.setFixedHeight(lines * self.said.fontMetrics().lineSpacing() + 2)

    def show_live(self, words: str) -> None:
        """Say how its nodes are lit."""
        self._live = words
        self._say()

    def show_graph(self, graph: CircuitGraph) -> None:
        """Draw a graph, with a legend of what is in it and nothing else."""
        self.view.show_graph(graph)
        parts: list[tuple[str, float, bool, str]] = []
        for rung in sorted({edge.rung for edge in graph.edges}):
            parts.append((RUNG_COLOURS[rung], 4.0, False, edge_words(rung)))
        measured = [edge.effect for edge in graph.edges if edge.effect is not None]
        if measured:
            parts.append(("text", 6.0, False, "thickness: measured effect"))
        if any(each < 0 for each in measured):
            parts.append(("text", 2.0, False, "bar at its end: negative effect"))
        if len(measured) < len(graph.edges):
            parts.append(("muted", 1.2, True, "thin and dashed: effect not measured"))
        words = tuple(word for *_look, word in parts)
        if words != self.legend_words:
            self.legend_words = words
            self.legend.show_all([self._entry(*part) for part in parts])

    @staticmethod
    def _entry(colour: str, width: float, dashed: bool, words: str) -> QWidget:
        entry = QWidget()
        entry.setLayout(line(EdgeSwatch(colour, width, dashed), label(words, "small"), spacing=theme.XS))
        return entry

    def _notice(self, words: str) -> None:
        self._noticed = words
        self._say()

    def _say(self) -> None:
        """What is looked at; else how nodes are lit and how to look at one."""
        idle = f"{self._live} Point at a node or an edge, or press Tab; Enter opens it."
        self.said.setText(self._noticed or idle.strip())
        self.said.setToolTip(as_letters(self._noticed))

"""The panel of the tour and the ring around what it speaks of. Both lie over the window and block nothing."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPoint, QRect, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QPen, QWheelEvent
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QFrame, QScrollArea, QWidget

from engine.checked import there
from ui.kit import theme
from ui.kit.basics import Button, IconButton, column, label, line
from ui.kit.overlay_place import controls_in, free_place, seen_of

WIDTH = 360
GAP = 14
MARGIN = 12
RING = 5
LEAST_LINES = 2
"""Of its words that are in view in the lowest window."""
FOLLOW_MS = 80
"""How often the panel looks where its widget is: it may be scrolled, and scrolling tells nobody but the viewport."""


class Ring(QWidget):
    """A rounded outline; clicks go through it."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.hide()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the outline."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(theme.current().colour("accent"), 2.5))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(2, 2, -2, -2), theme.RADIUS, theme.RADIUS)
        painter.end()


class TourPanel(QFrame):
    """A head, a few words and the way on. It stands beside its target while that is visible, else at the lower edge.

    A panel that comes unasked covers no control; one of the tour, which leads, may.
    """

    onward = Signal()
    back = Signal()
    skipped = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("coach")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground, True)
        self.setFixedWidth(WIDTH)
        self.ring = Ring(parent)
        self._target: Callable[[], QWidget | None] = lambda: None
        self._clear = False
        self._where: Callable[[], bool] = lambda: True
        self.active = False
        """Between the first step and the end, also while it is not seen."""
        self._found: tuple[tuple[QSize, QPoint, QRect, list[QRect]], QPoint] | None = None
        self._do: Callable[[], None] | None = None
        self.head = label("", "lead", wrap=True)
        self.words = label("", "body", wrap=True)
        self.place = label("", "caption")
        self.close_button = IconButton("close", "End the tour", self.skipped.emit)
        self.action_button = Button("", "primary", on_click=self._act)
        self.back_button = Button("Back", "quiet", on_click=self.back.emit)
        self.next_button = Button("Next", "primary", on_click=self.onward.emit)
        self.skip_button = Button("Not now", "quiet", on_click=self.skipped.emit)
        inside = column(spacing=theme.S, margins=(theme.L, theme.M, theme.M, theme.M))
        top = line(spacing=theme.S)
        top.addWidget(self.head, 1)
        top.addWidget(self.close_button, 0, Qt.AlignmentFlag.AlignTop)
        inside.addLayout(top)
        # In a very low window, or with very large letters, the words give way and scroll; the buttons stay.
        self.reader = QScrollArea()
        self.reader.setObjectName("scroll")
        self.reader.setFrameShape(QFrame.Shape.NoFrame)
        self.reader.setWidgetResizable(True)
        self.reader.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.reader.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.reader.setWidget(self.words)
        inside.addWidget(self.reader, 1)
        inside.addSpacing(theme.XS)
        inside.addLayout(line(self.action_button, None))
        foot = line(self.place, None, self.skip_button, self.back_button, self.next_button)
        inside.addLayout(foot)
        self.setLayout(inside)
        self.hide()
        self._timer = QTimer(self)
        self._timer.setInterval(FOLLOW_MS)
        self._timer.timeout.connect(self.follow)

    def show_step(
        self,
        head: str,
        words: str,
        target: Callable[[], QWidget | None],
        *,
        place: str = "",
        onward: str = "Next",
        back: bool = True,
        skip: bool = False,
        action: tuple[str, Callable[[], None]] | None = None,
        clear: bool = False,
        where: Callable[[], bool] = lambda: True,
    ) -> None:
        """Say ``words`` beside what ``target`` returns.

        Args:
            place: Where in the tour this is.
            onward: What the button to the next step says.
            back: Whether there is a step before this one.
            skip: Whether a button refuses the tour; the cross always ends it.
            action: A thing to do right here: what its button says, and what it does, once.
            clear: Cover no control: stand right or left of the target, or wherever there is room.
            where: Whether what it speaks of is in front; it is not seen meanwhile where it is not.
        """
        self.head.setText(head)
        self.words.setText(words)
        self.place.setText(place)
        self.next_button.setText(onward)
        self.next_button.setAccessibleName(onward)
        self.next_button.setProperty("look", "plain" if action is not None else "primary")
        self.next_button.style().unpolish(self.next_button)
        self.next_button.style().polish(self.next_button)
        self.back_button.setVisible(back)
        self.skip_button.setVisible(skip)
        self._do = None if action is None else action[1]
        self.action_button.setVisible(action is not None)
        if action is not None:
            self.action_button.setText(action[0])
            self.action_button.setAccessibleName(action[0])
        self._target, self._clear, self._where = target, clear, where
        self.active = True
        self.setVisible(where())
        # The keyboard begins here: Enter goes on, Tab finds the other ways, Esc ends it.
        (self.action_button if action is not None else self.next_button).setFocus(Qt.FocusReason.OtherFocusReason)
        self._timer.start()
        self.follow()

    def end(self) -> None:
        """Go away."""
        self._timer.stop()
        self.active = False
        self._target = lambda: None
        self.ring.hide()
        self.hide()

    def follow(self) -> None:
        """Stand where the target is now."""
        parent = self.parentWidget()
        if parent is None or not self.active:
            return
        if not self._where():
            self.ring.hide()
            self.hide()
            return
        self.show()
        self.resize(WIDTH, min(self._height(), parent.height() - 2 * MARGIN))
        spot = self._spot()
        if spot is None:
            self.ring.hide()
            place = QPoint((parent.width() - self.width()) // 2, parent.height() - self.height() - 2 * MARGIN)
        else:
            self.ring.setGeometry(spot.adjusted(-RING, -RING, RING, RING))
            self.ring.show()
            self.ring.raise_()
            place = beside(spot, self.rect(), parent.rect(), sideways=self._clear)
        self.move(self._cleared(place, parent) if self._clear else place)
        self.raise_()

    def _cleared(self, wanted: QPoint, parent: QWidget) -> QPoint:
        """The nearest place to ``wanted`` that covers no control; looked for anew where anything moved."""
        room = parent.rect().adjusted(MARGIN, MARGIN, -MARGIN, -MARGIN)
        asked = (self.size(), wanted, room, controls_in(parent, (self,)))
        if self._found is None or self._found[0] != asked:
            self._found = (asked, free_place(*asked))
        return self._found[1]

    def _height(self) -> int:
        """What it would like: all of its words in view."""
        layout = there(self.layout())
        margins = layout.contentsMargins()
        words = self.words.heightForWidth(WIDTH - margins.left() - margins.right())
        self.reader.setMinimumHeight(min(words, self.words.fontMetrics().lineSpacing() * LEAST_LINES))
        beside = layout.totalMinimumSize().height() - self.reader.minimumHeight()
        return beside + words

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll its own words where not all of them are in view, else the page behind; no control behind is turned."""
        event.accept()
        own = self.reader.verticalScrollBar()
        if own.maximum() > 0:
            QApplication.sendEvent(own, event)
        elif (behind := self._behind(event.position().toPoint())) is not None:
            QApplication.sendEvent(behind.verticalScrollBar(), event)

    def _behind(self, point: QPoint) -> QAbstractScrollArea | None:
        """What scrolls under ``point`` of this panel."""
        parent = self.parentWidget()
        if parent is None:
            return None
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        widget = parent.childAt(self.mapTo(parent, point))
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents, False)
        while widget is not None and widget is not parent:
            if isinstance(widget, QAbstractScrollArea) and widget.verticalScrollBar().maximum() > 0:
                return widget
            widget = widget.parentWidget()
        return None

    def _spot(self) -> QRect | None:
        """The part of the target that is on screen, in the parent's coordinates; None when there is none."""
        target, parent = self._target(), self.parentWidget()
        if target is None or parent is None or not target.isVisible():
            return None
        seen = seen_of(target, parent)
        return None if seen.isEmpty() else seen

    def take_action_away(self) -> None:
        """The thing to do right here is being done."""
        self._do = None
        if self.action_button.hasFocus():
            self.next_button.setFocus(Qt.FocusReason.OtherFocusReason)
        self.action_button.hide()

    def _act(self) -> None:
        do = self._do
        self.take_action_away()
        if do is not None:
            do()
        self.follow()


def beside(spot: QRect, panel: QRect, room: QRect, *, sideways: bool = False) -> QPoint:
    """Where a panel of that size stands beside ``spot`` inside ``room``: under it, above it, right or left of it.

    ``sideways`` tries right and left first. Where none of these has room it lies in the corner that covers least.
    """
    inner = room.adjusted(MARGIN, MARGIN, -MARGIN, -MARGIN)

    def clamped(value: int, low: int, high: int) -> int:
        return max(low, min(value, high))

    x = clamped(spot.center().x() - panel.width() // 2, inner.left(), inner.right() - panel.width())
    y = clamped(spot.center().y() - panel.height() // 2, inner.top(), inner.bottom() - panel.height())
    upright = [QPoint(x, spot.bottom() + GAP), QPoint(x, spot.top() - GAP - panel.height())]
    level = [QPoint(spot.right() + GAP, y), QPoint(spot.left() - GAP - panel.width(), y)]
    for candidate in level + upright if sideways else upright + level:
        if inner.contains(QRect(candidate, panel.size())):
            return candidate
    corners = (
        QPoint(inner.right() - panel.width(), inner.bottom() - panel.height()),
        QPoint(inner.left(), inner.bottom() - panel.height()),
        QPoint(inner.right() - panel.width(), inner.top()),
        inner.topLeft(),
    )

    def covered(corner: QPoint) -> int:
        common = QRect(corner, panel.size()).intersected(spot)
        return max(0, common.width()) * max(0, common.height())

    return min(corners, key=covered)

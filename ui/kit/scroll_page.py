"""A page of cards under a title, and its parts for other pages: what is too large for the window scrolls."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPoint, QSize, Qt, QTimer
from PySide6.QtWidgets import (
    QBoxLayout,
    QFrame,
    QLayout,
    QLayoutItem,
    QScrollArea,
    QSizePolicy,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from ui.kit import theme
from ui.kit.basics import Surface, column, label, line
from ui.kit.flow import FlowLayout

CONTENT_WIDTH = 1240
LAYOUTS = 5
"""Rounds of the event loop in which a page finds its places after something opened in it."""
HEAD_BESIDE = 700
"""From this width of a page on its buttons stand beside its title."""
LEAST_WORDS = 160
"""A title's words that have less room than this become a column of single words."""


def reveal(part: QWidget) -> None:
    """Scroll to a part of a page that was opened by hand, as far as it is out of sight, once it has its place.

    What opens makes the page higher, which goes through several layouts before it is known where it stands. A part that
    is higher than the page is shown from its top.
    """

    def look(more: int) -> None:
        if part.isHidden():
            return
        for area in _areas_around(part):
            inside = area.widget()
            if inside is None or area.viewport().height() <= 0:
                continue
            top = part.mapTo(inside, QPoint(0, 0)).y()
            margin = theme.M
            bar, high = area.verticalScrollBar(), area.viewport().height()
            if top + part.height() + margin > bar.value() + high:
                bar.setValue(top + part.height() + margin - high)
            if top - margin < bar.value():
                bar.setValue(max(0, top - margin))
        if more:
            QTimer.singleShot(0, part, lambda: look(more - 1))

    QTimer.singleShot(0, part, lambda: look(LAYOUTS))


def _areas_around(part: QWidget) -> list[QScrollArea]:
    found: list[QScrollArea] = []
    around = part.parentWidget()
    while around is not None and not around.isWindow():
        if isinstance(around, QScrollArea):
            found.append(around)
        around = around.parentWidget()
    return found


class InOnePlace(QStackedWidget):
    """Parts of which one is seen at a time, all with the room of the highest: changing them moves nothing around."""

    def __init__(self, *parts: QWidget) -> None:
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        for part in parts:
            self.addWidget(part)

    def hasHeightForWidth(self) -> bool:
        """No: that of the part that is seen alone would count."""
        return False


class FittedScroll(QScrollArea):
    """As high as what is in it where there is room, else it scrolls; what stands under it stands right under it."""

    def __init__(self, inside: QWidget) -> None:
        super().__init__()
        self._inside = inside
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.setWidget(inside)

    def sizeHint(self) -> QSize:
        """The height of what is in it at the width there is; Qt's own hint ends at 24 lines."""
        inside = self._inside
        wanted = inside.sizeHint()
        high = inside.heightForWidth(self.viewport().width()) if inside.hasHeightForWidth() else wanted.height()
        return QSize(wanted.width(), high)

    def minimumSizeHint(self) -> QSize:
        """It scrolls: a few lines are enough."""
        return QSize(0, 120)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Hear when what is in it wants another height."""
        if watched is self._inside and event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return super().eventFilter(watched, event)


def page_ground(inside: QLayout, width: int = CONTENT_WIDTH) -> Surface:
    """The ground of a page: its margins, and ``inside`` in the middle, no wider than ``width``."""
    content = QWidget()
    content.setMaximumWidth(width)
    content.setLayout(inside)
    across = line(None, spacing=0)
    across.addWidget(content, 1000)
    across.addStretch(1)
    outer = column(margins=(theme.XL, theme.L + 4, theme.XL, theme.L + 4), spacing=0)
    outer.addLayout(across)
    ground = Surface("pageBody")
    ground.setLayout(outer)
    return ground


def page_scroll(body: QWidget) -> QScrollArea:
    """Around a page that fills the window: where the window is too small for it, the page scrolls."""
    area = QScrollArea()
    area.setObjectName("page")
    area.setWidgetResizable(True)
    area.setFrameShape(QFrame.Shape.NoFrame)
    # No stop for Tab: it follows the keyboard to whatever in it has it.
    area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    area.setWidget(body)
    return area


class _Actions(FlowLayout):
    """Buttons in one line where there is room for it, in as many as it takes where the page is narrow."""

    in_one_line = True

    def shown(self) -> list[QLayoutItem]:
        """What can be seen."""
        return [item for item in self._items if not item.isEmpty()]

    def minimumSize(self) -> QSize:
        """All of them side by side, or of no width of its own."""
        least = super().minimumSize()
        if self.in_one_line:
            shown = self.shown()
            least.setWidth(sum(each.sizeHint().width() for each in shown) + self._gap * max(0, len(shown) - 1))
        return least


class PageHead(QBoxLayout):
    """A title with its words, and what can be done beside it; below it where the page is narrow."""

    def __init__(self, texts: QLayout, *actions: QWidget) -> None:
        super().__init__(QBoxLayout.Direction.LeftToRight)
        self.setContentsMargins(0, 0, 0, 0)
        self.setSpacing(theme.S)
        self.addLayout(texts, 1)
        self._actions = _Actions(theme.S)
        for action in actions:
            self._actions.addWidget(action)
        self.addLayout(self._actions)

    def fit(self, width: int) -> None:
        """The page is so wide now."""
        side_by_side = sum(item.sizeHint().width() for item in self._actions.shown())
        left = width - 2 * theme.XL - theme.S * (self._actions.count() + 1) - side_by_side
        wide = width >= HEAD_BESIDE and left >= LEAST_WORDS
        self.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)
        self.setAlignment(self._actions, Qt.AlignmentFlag.AlignVCenter if wide else Qt.AlignmentFlag(0))
        self._actions.in_one_line = wide
        self._actions.invalidate()


class ScrollPage(QScrollArea):
    """Holds its cards in ``inside``. ``actions`` stand beside the title."""

    def __init__(self, title: str, words: str, *actions: QWidget) -> None:
        super().__init__()
        self.setObjectName("page")
        self.setAccessibleName(title)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        texts = column(spacing=1)
        texts.addWidget(label(title, "title"))
        self.explanation = label(words, "muted", wrap=True)
        texts.addWidget(self.explanation)
        head = line()
        head.addLayout(texts, 1)
        for action in actions:
            head.addWidget(action, 0, Qt.AlignmentFlag.AlignVCenter)
        self.inside: QVBoxLayout = column(spacing=theme.L)
        self.inside.addLayout(head)
        self.setWidget(page_ground(self.inside))

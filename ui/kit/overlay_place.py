"""Where something that lies over a page may lie: off everything that can be pressed, typed into or read as a state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from PySide6.QtCore import QPoint, QRect, QSize
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSlider,
    QAbstractSpinBox,
    QComboBox,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QProgressBar,
    QScrollBar,
    QTabBar,
    QWidget,
)

from engine.checked import there

STEP = 24
"""How finely free places are looked for, in pixels."""
AIR = 6
"""Room that is kept around what must not be covered."""
KEEP_CLEAR = "keepClear"
"""Property of a widget that is not to be covered as a whole."""
CONTROLS = (QAbstractButton, QAbstractSlider, QAbstractSpinBox, QComboBox, QLineEdit, QProgressBar, QTabBar)


def controls_in(page: QWidget, over: Sequence[QWidget]) -> list[QRect]:
    """Where ``page`` has visible controls, bars and state words, in its coordinates; ``over`` is what lies over it."""
    found: list[QRect] = []
    for widget in _shown_in(page):
        if not _counts(widget) or any(each is widget or each.isAncestorOf(widget) for each in over):
            continue
        seen = seen_of(widget, page)
        if not seen.isEmpty():
            found.append(seen.adjusted(-AIR, -AIR, AIR, AIR))
    return found


def seen_of(widget: QWidget, page: QWidget) -> QRect:
    """What scrolling and frames leave of a widget, in the page's coordinates.

    Not Qt's visible region: that is without what another widget lies on, and it is that one which looks for a place.
    """
    seen = widget.rect()
    inner, outer = widget, widget.parentWidget()
    while inner is not page and outer is not None:
        seen = seen.translated(inner.pos()).intersected(outer.rect())
        inner, outer = outer, outer.parentWidget()
    return seen


def _shown_in(page: QWidget) -> Iterator[QWidget]:
    """The visible widgets inside ``page``. What is in a hidden one, as other pages are, is not even looked at."""
    # Not findChildren by an empty name: that leaves out whatever has one.
    for child in page.children():
        if isinstance(child, QWidget) and child.isVisible() and not child.isWindow():
            yield child
            yield from _shown_in(child)


def _counts(widget: QWidget) -> bool:
    if isinstance(widget, QScrollBar):
        return False
    if isinstance(widget, QLabel):
        return widget.property("look") == "pill"
    if isinstance(widget, QPlainTextEdit):
        return not widget.isReadOnly()
    return isinstance(widget, CONTROLS) or bool(widget.property(KEEP_CLEAR))


def free_place(size: QSize, wanted: QPoint, room: QRect, taken: Iterable[QRect]) -> QPoint:
    """Where something of that size covers nothing of ``taken``, as near to ``wanted`` as can be, inside ``room``.

    Where there is no such place: where it covers least.
    """
    left, top = room.left(), room.top()
    right, bottom = max(left, room.right() + 1 - size.width()), max(top, room.bottom() + 1 - size.height())
    width, height = size.width(), size.height()
    # Plain numbers: hundreds of places times dozens of rectangles are looked at.
    edges = [(each.left(), each.top(), each.right() + 1, each.bottom() + 1) for each in taken]

    def covered_at(place: tuple[int, int]) -> int:
        x, y = place
        covered = 0
        for x0, y0, x1, y1 in edges:
            across = min(x1, x + width) - max(x0, x)
            down = min(y1, y + height) - max(y0, y)
            if across > 0 and down > 0:
                covered += across * down
        return covered

    def away(place: tuple[int, int]) -> int:
        return abs(place[0] - wanted_x) + abs(place[1] - wanted_y)

    wanted_x, wanted_y = wanted.x(), wanted.y()
    here = (min(max(wanted.x(), left), right), min(max(wanted.y(), top), bottom))
    if covered_at(here) == 0:
        return QPoint(*here)
    xs = sorted({here[0], left, right, *range(left, right + 1, STEP)})
    ys = sorted({here[1], top, bottom, *range(top, bottom + 1, STEP)})
    # The nearest first: most of the time one of the first is free.
    places = sorted(((x, y) for x in xs for y in ys), key=away)
    least: tuple[int, tuple[int, int]] | None = None
    for place in places:
        covered = covered_at(place)
        if covered == 0:
            return QPoint(*place)
        if least is None or covered < least[0]:
            least = (covered, place)
    return QPoint(*there(least)[1])

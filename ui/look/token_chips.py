"""A text token by token: each token a chip on a ground as strong as a feature was there; chips can be picked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPoint, QRect, Qt, Signal
from PySide6.QtGui import QFontMetrics, QHelpEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from ui.kit import theme
from ui.kit.plain_text import as_letters
from ui.kit.token_text import mixed, strength_of
from ui.look.feature_facts import visible

GAP, PAD, CORNER = 2, 3, 4


@dataclass(frozen=True)
class TokenChip:
    """One token. ``faint``: what it shows says little (an attention sink)."""

    text: str
    value: float
    tip: str
    faint: bool = False


class TokenChips(QWidget):
    """Paints the chips; arrows move the choice, a click or Enter picks."""

    picked = Signal(int)
    """Place of the token."""

    def __init__(self, name: str = "Tokens") -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Minimum)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self._chips: Sequence[TokenChip] = ()
        self._scale = 0.0
        self._rects: list[QRect] = []
        self._chosen: int | None = None
        theme.current().changed.connect(self.update)

    def show_chips(self, chips: Sequence[TokenChip], scale: float) -> None:
        """Show these tokens; ``scale`` is the value that has the full colour."""
        same = [chip.text for chip in chips] == [chip.text for chip in self._chips]
        self._chips, self._scale = chips, scale
        if not same:
            self._chosen = None
            self._arrange()
        self.update()

    def choose(self, place: int | None) -> None:
        """Mark a token; no signal."""
        self._chosen = place
        self.update()

    @property
    def chips(self) -> Sequence[TokenChip]:
        """What is shown."""
        return self._chips

    @property
    def chosen(self) -> int | None:
        """The marked token."""
        return self._chosen

    def rect_of(self, place: int) -> QRect:
        """Where a token stands."""
        return self._rects[place]

    def heightForWidth(self, width: int) -> int:
        """The height of all lines at ``width``."""
        return self._places(width)[1]

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Set the chips anew."""
        super().resizeEvent(event)
        self._arrange()

    def changeEvent(self, event: QEvent) -> None:
        """Set the chips anew in another font."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._arrange()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the chips in what is to be drawn."""
        look = theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        ground, ink = look.colour("card"), look.colour("accent")
        for place, (chip, rect) in enumerate(zip(self._chips, self._rects, strict=True)):
            if not rect.intersects(event.rect()):
                continue
            share = strength_of(chip.value, self._scale)
            painter.setBrush(mixed(ground, ink, share) if share else look.colour("raised"))
            chosen = place == self._chosen
            painter.setPen(QPen(look.colour("text"), 1.5) if chosen else Qt.PenStyle.NoPen)
            painter.drawRoundedRect(rect, CORNER, CORNER)
            painter.setPen(look.colour("muted" if chip.faint and not share else "text"))
            painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, visible(chip.text))
        if self.hasFocus() and self._chosen is None and self._rects:
            painter.setPen(QPen(look.colour("accent"), 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(self.rect().adjusted(0, 0, -1, -1), CORNER, CORNER)
        painter.end()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Pick the chip under the pointer."""
        place = self._at(event.position().toPoint())
        if event.button() == Qt.MouseButton.LeftButton and place is not None:
            self._pick(place)
        else:
            super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """A hand over chips."""
        over = self._at(event.position().toPoint()) is not None
        self.setCursor(Qt.CursorShape.PointingHandCursor if over else Qt.CursorShape.ArrowCursor)
        super().mouseMoveEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Left and right move the choice, Enter picks it again."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._chosen is not None:
            self._pick(self._chosen)
            return
        step = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()))
        if step is None or not self._chips:
            super().keyPressEvent(event)
            return
        at = self._chosen + step if self._chosen is not None else 0
        self._pick(min(max(at, 0), len(self._chips) - 1))

    def event(self, event: QEvent) -> bool:
        """The tip of the chip under the pointer."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            place = self._at(event.pos())
            if place is None:
                QToolTip.hideText()
            else:
                QToolTip.showText(event.globalPos(), as_letters(self._chips[place].tip), self)
            return True
        return super().event(event)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _pick(self, place: int) -> None:
        self.choose(place)
        self.picked.emit(place)

    def _at(self, point: QPoint) -> int | None:
        return next((place for place, rect in enumerate(self._rects) if rect.contains(point)), None)

    def _arrange(self) -> None:
        self._rects, height = self._places(self.width())
        self.setMinimumHeight(height)
        self.update()

    def _places(self, width: int) -> tuple[list[QRect], int]:
        metrics = QFontMetrics(self.font())
        high = metrics.height() + 4
        rects: list[QRect] = []
        x = y = 0
        for chip in self._chips:
            wide = min(metrics.horizontalAdvance(visible(chip.text)) + 2 * PAD, max(width, 1))
            if x and x + wide > width:
                x, y = 0, y + high + GAP
            rects.append(QRect(x, y, wide, high))
            x += wide + GAP
            if chip.text.endswith("\n"):
                x, y = 0, y + high + GAP
        return rects, (rects[-1].bottom() + 1 if rects else high)

"""An answer with each piece of text on a ground as strong as a feature was there; the value shows on hover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Slot
from PySide6.QtGui import QColor, QTextBlockFormat, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QWidget

from ui.kit import theme
from ui.kit.basics import column, label
from ui.kit.colours import contrast
from ui.kit.flow_text import LINE_HEIGHT_PERCENT, FlowText
from ui.kit.plain_text import as_letters

WEAKEST, STRONGEST = 0.10, 0.62
"""How much of the accent colour a value just above 0, and the largest one, put on the ground."""


@dataclass(frozen=True)
class TokenPiece:
    """A piece of an answer and the largest activation among its tokens; None where nothing was read."""

    text: str
    value: float | None


@dataclass(frozen=True)
class Coloured:
    """An answer in pieces. ``scale`` is the value that has the full colour; ``words`` say what the values are."""

    pieces: Sequence[TokenPiece]
    scale: float
    name: str
    words: str


def mixed(ground: QColor, ink: QColor, share: float) -> QColor:
    """``share`` (0…1) of ``ink`` on ``ground``."""
    pairs = ((ground.red(), ink.red()), (ground.green(), ink.green()), (ground.blue(), ink.blue()))
    red, green, blue = (round(below + (above - below) * share) for below, above in pairs)
    return QColor(red, green, blue)


def readable(ground: QColor, *inks: QColor) -> QColor:
    """Whichever of ``inks`` stands out most from ``ground``."""
    return max(inks, key=lambda ink: contrast(ground.name(), ink.name()))


def strength_of(value: float, scale: float) -> float:
    """How much of the colour a value gets; 0 for one that is not above 0."""
    if value <= 0 or scale <= 0:
        return 0.0
    return WEAKEST + (STRONGEST - WEAKEST) * min(1.0, value / scale)


class TokenText(QWidget):
    """The coloured text with a line that says what the colours are."""

    def __init__(self) -> None:
        super().__init__()
        self.text = FlowText()
        self.text.setAccessibleName("Answer, coloured by a feature")
        self.words = label("", "caption", wrap=True)
        self._coloured: Coloured | None = None
        layout = column(spacing=theme.XS)
        layout.addWidget(self.text)
        layout.addWidget(self.words)
        self.setLayout(layout)
        theme.current().changed.connect(self._redraw)

    @property
    def coloured(self) -> Coloured | None:
        """What is shown."""
        return self._coloured

    def show_pieces(self, coloured: Coloured) -> None:
        """Show these pieces."""
        self._coloured = coloured
        self.words.setText(coloured.words)
        self._redraw()

    @Slot()
    def _redraw(self) -> None:
        if self._coloured is None:
            return
        look = theme.current()
        self.text.set_plain("")
        cursor = QTextCursor(self.text.document())
        spaced = QTextBlockFormat()
        spaced.setLineHeight(LINE_HEIGHT_PERCENT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        cursor.setBlockFormat(spaced)
        for piece in self._coloured.pieces:
            letters = QTextCharFormat()
            letters.setForeground(look.colour("text"))
            if piece.value is not None:
                letters.setToolTip(as_letters(f"{self._coloured.name}: {piece.value:.2f}"))
                share = strength_of(piece.value, self._coloured.scale)
                if share:
                    behind = mixed(look.colour("card"), look.colour("accent"), share)
                    letters.setBackground(behind)
                    letters.setForeground(readable(behind, look.colour("text"), look.colour("card")))
            cursor.insertText(piece.text, letters)
        self.text.fit()

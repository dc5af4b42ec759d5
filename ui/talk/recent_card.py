"""The card with the conversations written last, to go on with one of them."""

from __future__ import annotations

from datetime import UTC, datetime

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QPushButton

from engine.public.library import ConversationSummary
from ui.kit import theme
from ui.kit.basics import Card, ElidedLabel, column
from ui.kit.text import messages, when

SHOWN = 6
PER_ROW = 3


class ConversationTile(QPushButton):
    """One conversation: its title, and when it was written."""

    def __init__(self, summary: ConversationSummary) -> None:
        super().__init__()
        self.summary = summary
        self.setProperty("look", "tile")
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAccessibleName(summary.title)
        inside = column(spacing=1, margins=(theme.M, theme.S, theme.M, theme.S))
        moment = when(summary.updated_at, datetime.now(UTC))
        for text, look in ((summary.title, "strong"), (f"{moment} · {messages(summary.message_count)}", "small")):
            words = ElidedLabel(text, look)
            words.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
            inside.addWidget(words)
        self.setLayout(inside)


class RecentCard(Card):
    """Up to :data:`SHOWN` conversations, the newest first."""

    opened = Signal(int)

    def __init__(self) -> None:
        super().__init__("Go on where you left off")
        self._grid = QGridLayout()
        self._grid.setSpacing(theme.M)
        self.body.addLayout(self._grid)
        self.tiles: list[ConversationTile] = []
        for each in range(PER_ROW):
            self._grid.setColumnStretch(each, 1)

    def show_summaries(self, summaries: list[ConversationSummary]) -> None:
        """Show these conversations in place of the former ones."""
        for tile in self.tiles:
            self._grid.removeWidget(tile)
            tile.hide()
            tile.deleteLater()
        self.tiles = [ConversationTile(summary) for summary in summaries[:SHOWN]]
        for place, tile in enumerate(self.tiles):
            tile.clicked.connect(lambda _on=False, number=tile.summary.id: self.opened.emit(number))
            self._grid.addWidget(tile, place // PER_ROW, place % PER_ROW)

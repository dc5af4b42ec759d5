"""The right-hand column of a chat: how to answer, and what the SAEs see, one at a time."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QButtonGroup, QPushButton, QStackedWidget

from ui.kit import theme
from ui.kit.basics import Surface, column, line
from ui.talk.chat_settings import PANEL_WIDTH, ChatSettings
from ui.talk.lens_panel import LensPanel

ANSWERING, FEATURES = 0, 1


class ChatSide(Surface):
    """Two panels behind two tabs."""

    def __init__(self) -> None:
        super().__init__("sidePanel")
        self.setFixedWidth(PANEL_WIDTH)
        self.settings = ChatSettings()
        self.lens = LensPanel()
        self.tabs = QButtonGroup(self)
        self.tabs.setExclusive(True)
        self._stack = QStackedWidget()
        heads = line(spacing=theme.L)
        heads.setContentsMargins(theme.L, theme.S, theme.L, 0)
        for place, (words, panel) in enumerate((("Answering", self.settings), ("Features", self.lens))):
            tab = QPushButton(words)
            tab.setProperty("look", "tab")
            tab.setCheckable(True)
            tab.setChecked(place == ANSWERING)
            tab.setCursor(Qt.CursorShape.PointingHandCursor)
            self.tabs.addButton(tab, place)
            heads.addWidget(tab)
            self._stack.addWidget(panel)
        heads.addStretch(1)
        layout = column(spacing=0, margins=(1, 0, 0, 0))
        layout.addLayout(heads)
        layout.addWidget(self._stack, 1)
        self.setLayout(layout)
        self.tabs.idClicked.connect(self.show_panel)

    def show_panel(self, place: int) -> None:
        """Bring a panel to the front."""
        self.tabs.button(place).setChecked(True)
        self._stack.setCurrentIndex(place)

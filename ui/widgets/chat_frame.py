"""The layout of the chat page: three columns that give way to the messages when the window is narrow. No behaviour."""

from __future__ import annotations

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout

from ui import theme
from ui.widgets.basics import ElidedLabel, IconButton, Surface, column, line
from ui.widgets.chat_settings import PANEL_WIDTH, ChatSettings
from ui.widgets.composer import Composer
from ui.widgets.conversation_list import ConversationList
from ui.widgets.message_list import COLUMN_WIDTH, MessageList

LIST_WIDTH = 240
MIDDLE_MIN = 420
"""The messages keep at least this width; what does not fit beside them is hidden until asked for."""


class ChatFrame(Surface):
    """Conversations, messages with the composer under them, settings."""

    def __init__(self) -> None:
        super().__init__("page")
        self.conversations = ConversationList()
        self.messages = MessageList()
        self.composer = Composer()
        self.settings = ChatSettings()
        self.title = ElidedLabel("New chat", "lead")
        self.rename_button = IconButton("pencil", "Rename this conversation")
        self.delete_button = IconButton("bin", "Delete this conversation")
        self.list_button = IconButton("list", "Show or hide the conversations", self._toggle_list)
        self.settings_button = IconButton("dials", "Show or hide the settings", self._toggle_settings)
        self._list_choice: bool | None = None
        self._settings_choice: bool | None = None
        self.conversations.setFixedWidth(LIST_WIDTH)
        self.composer.setMaximumWidth(COLUMN_WIDTH + 2 * theme.M)
        head = line(
            self.list_button, theme.XS, self.title, self.rename_button, self.delete_button, None, self.settings_button
        )
        head.setContentsMargins(theme.M, theme.S, theme.M, theme.S)
        foot = QHBoxLayout()
        foot.setContentsMargins(theme.L, 0, theme.L, theme.M)
        foot.addStretch(1)
        foot.addWidget(self.composer, 1000)
        foot.addStretch(1)
        middle = column(spacing=0)
        middle.addLayout(head)
        middle.addWidget(self.messages, 1)
        middle.addLayout(foot)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.conversations)
        layout.addLayout(middle, 1)
        layout.addWidget(self.settings)

    def show_list(self) -> None:
        """Bring the conversations into view."""
        self._list_choice = True
        self._arrange()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Give the messages the room they need."""
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        """Hide what does not fit; a panel the person asked for stays and the other one gives way."""
        room = self.width() - MIDDLE_MIN
        wants_settings = self._settings_choice is not False and (
            self._settings_choice or room >= PANEL_WIDTH + LIST_WIDTH
        )
        left = room - (PANEL_WIDTH if wants_settings else 0)
        wants_list = self._list_choice is not False and (self._list_choice or left >= LIST_WIDTH)
        self.settings.setVisible(bool(wants_settings))
        self.conversations.setVisible(bool(wants_list))

    def _toggle_list(self) -> None:
        self._list_choice = self.conversations.isHidden()
        if self._list_choice and self.width() < MIDDLE_MIN + PANEL_WIDTH + LIST_WIDTH:
            self._settings_choice = None
        self._arrange()

    def _toggle_settings(self) -> None:
        self._settings_choice = self.settings.isHidden()
        if self._settings_choice and self.width() < MIDDLE_MIN + PANEL_WIDTH + LIST_WIDTH:
            self._list_choice = None
        self._arrange()

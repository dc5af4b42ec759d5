"""The layout of the chat page: three columns that give way to the messages when the window is narrow. No behaviour."""

from __future__ import annotations

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from ui.context.page import Page
from ui.kit import theme
from ui.kit.basics import Button, ElidedLabel, IconButton, Surface, column, line
from ui.talk.chat_settings import PANEL_WIDTH
from ui.talk.chat_side import ChatSide
from ui.talk.composer import Composer
from ui.talk.conversation_list import ConversationList
from ui.talk.message_list import COLUMN_WIDTH, WIDE_COLUMN, MessageList
from ui.talk.steer_strip import SteerStrip

LIST_WIDTH = 240
MIDDLE_MIN = 420
"""The messages keep at least this width; what does not fit beside them is hidden until asked for."""
COMPARE_MIN = 720
"""The same for two answers side by side."""


class ChatFrame(Page, Surface):
    """Conversations, messages with the composer under them, settings."""

    def __init__(self) -> None:
        super().__init__("page")
        self.conversations = ConversationList()
        self.messages = MessageList()
        self.composer = Composer()
        self.side = ChatSide()
        self.settings = self.side.settings
        self.strip = SteerStrip()
        self.compare_button = Button("Compare", "toggle", "columns")
        self.compare_button.setCheckable(True)
        self.compare_button.setToolTip("Write each answer twice, plain and steered, side by side (Ctrl+D)")
        self.title = ElidedLabel("New chat", "lead")
        self.rename_button = IconButton("pencil", "Rename this conversation")
        self.delete_button = IconButton("bin", "Delete this conversation")
        self.export_button = IconButton("export", "Export this conversation, as Markdown or JSON")
        self.list_button = IconButton("list", "Show or hide the conversations", self._toggle_list)
        self.settings_button = IconButton("dials", "Show or hide the settings", self._toggle_settings)
        self._middle = MIDDLE_MIN
        self._list_choice: bool | None = None
        self._settings_choice: bool | None = None
        self.conversations.setFixedWidth(LIST_WIDTH)
        head = line(self.list_button, theme.XS, self.title, self.rename_button, self.export_button, self.delete_button)
        head.addStretch(1)
        head.addWidget(self.compare_button)
        head.addWidget(self.settings_button)
        head.setContentsMargins(theme.M, theme.S, theme.M, theme.S)
        self._under = QWidget()
        self._under.setMaximumWidth(COLUMN_WIDTH + 2 * theme.M)
        under = column(spacing=theme.S)
        under.addWidget(self.strip)
        under.addWidget(self.composer)
        self._under.setLayout(under)
        foot = QHBoxLayout()
        foot.setContentsMargins(theme.L, 0, theme.L, theme.M)
        foot.addStretch(1)
        foot.addWidget(self._under, 1000)
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
        layout.addWidget(self.side)
        self.set_comparing(False)

    def set_comparing(self, on: bool) -> None:
        """Give two answers side by side their room, and say which of them the dial turns."""
        self.compare_button.setChecked(on)
        self.strip.set_comparing(on)
        self.messages.set_wide(on)
        self._under.setMaximumWidth((WIDE_COLUMN if on else COLUMN_WIDTH) + 2 * theme.M)
        self._middle = COMPARE_MIN if on else MIDDLE_MIN
        self._arrange()

    def show_side(self) -> None:
        """Bring the right-hand column into view."""
        self._settings_choice = True
        self._arrange()

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
        room = self.width() - self._middle
        wants_settings = self._settings_choice is not False and (
            self._settings_choice or room >= PANEL_WIDTH + LIST_WIDTH
        )
        left = room - (PANEL_WIDTH if wants_settings else 0)
        wants_list = self._list_choice is not False and (self._list_choice or left >= LIST_WIDTH)
        self.side.setVisible(bool(wants_settings))
        self.conversations.setVisible(bool(wants_list))

    def _toggle_list(self) -> None:
        self._list_choice = self.conversations.isHidden()
        if self._list_choice and self.width() < self._middle + PANEL_WIDTH + LIST_WIDTH:
            self._settings_choice = None
        self._arrange()

    def _toggle_settings(self) -> None:
        self._settings_choice = self.side.isHidden()
        if self._settings_choice and self.width() < self._middle + PANEL_WIDTH + LIST_WIDTH:
            self._list_choice = None
        self._arrange()

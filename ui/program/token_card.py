"""The card about the Hugging Face hub: the token, and room for the settings that belong to it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QLineEdit

from ui.context.services import TokenState
from ui.kit import theme
from ui.kit.basics import Button, Card, Notice, column, label, line, pill, rule, set_pill

FIELD_WIDTH = 260
BESIDE = 640
"""From this width of the card on the field stands beside its words."""


class TokenCard(Card):
    """Takes a token and says where it is kept; never shows it again."""

    saved = Signal(str)
    forgotten = Signal()

    def __init__(self) -> None:
        super().__init__("Hugging Face")
        self.state = pill()
        self.words = label("", "caption", wrap=True)
        self.field = QLineEdit()
        self.field.setEchoMode(QLineEdit.EchoMode.Password)
        self.field.setPlaceholderText("hf_…")
        self.field.setAccessibleName("Hugging Face token")
        self.field.setFixedWidth(FIELD_WIDTH)
        self.field.returnPressed.connect(self._save)
        self.save_button = Button("Save", on_click=self._save)
        self.forget_button = Button("Forget it", "quiet", on_click=self.forgotten.emit)
        self.notice = Notice()
        self.rows = column(spacing=0)
        texts = column(spacing=2)
        texts.addLayout(line(label("Token", "strong"), self.state, None, spacing=theme.M))
        texts.addWidget(
            label("Wanted for gated and private models. Any token with the right to read will do.", "muted", wrap=True)
        )
        texts.addWidget(self.words)
        across = self._across = line(spacing=theme.M)
        across.addLayout(texts, 1)
        field = line(self.field, self.save_button, self.forget_button, spacing=theme.M)
        # Under the words the room is left at the end, beside them there is none.
        field.addStretch(0)
        across.addLayout(field)
        self.body.addLayout(across)
        self.body.addWidget(self.notice)
        self.body.addWidget(rule())
        self.body.addLayout(self.rows)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The field beside the words where there is room, else under them."""
        super().resizeEvent(event)
        wide = self.width() >= BESIDE
        self._across.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)

    def show_state(self, state: TokenState) -> None:
        """Whether there is a token, and where."""
        set_pill(self.state, "kept" if state.known else "none", "good" if state.known else "quiet")
        self.words.setText(state.words)
        self.field.setEnabled(not state.locked)
        self.save_button.setEnabled(not state.locked)
        self.forget_button.setVisible(state.known and not state.locked)

    def _save(self) -> None:
        if text := self.field.text().strip():
            self.notice.hide()
            self.saved.emit(text)

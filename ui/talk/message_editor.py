"""A field in the place of a message that is being edited."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame

from ui.kit import theme
from ui.kit.basics import Button, column, label, line
from ui.talk.composer import DraftField


class MessageEditor(QFrame):
    """Enter confirms, Escape cancels."""

    confirmed = Signal(str)
    cancelled = Signal()

    def __init__(self, text: str) -> None:
        super().__init__()
        self.setObjectName("composer")
        self.field = DraftField()
        self.field.setAccessibleName("Edit your message")
        self.field.setPlainText(text)
        cursor = self.field.textCursor()
        cursor.movePosition(cursor.MoveOperation.End)
        self.field.setTextCursor(cursor)
        self.confirm_button = Button("Answer anew", "primary", on_click=self._confirm)
        self.cancel_button = Button("Cancel", on_click=self.cancelled.emit)
        self.field.submitted.connect(self._confirm)
        self.field.installEventFilter(self)
        inside = column(spacing=theme.S, margins=(theme.M + 2, theme.M - 2, theme.M, theme.S))
        inside.addWidget(self.field)
        inside.addLayout(
            line(label("What follows it is written anew.", "caption"), None, self.cancel_button, self.confirm_button)
        )
        self.setLayout(inside)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Escape leaves the message as it was; it is not the window's while the field has the keyboard."""
        if watched is self.field and isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape:
            if event.type() == QEvent.Type.ShortcutOverride:
                event.accept()
                return True
            if event.type() == QEvent.Type.KeyPress:
                self.cancelled.emit()
                return True
        return super().eventFilter(watched, event)

    def _confirm(self) -> None:
        text = self.field.toPlainText().strip("\n")
        if self.confirm_button.isEnabled() and text.strip():
            self.confirmed.emit(text)

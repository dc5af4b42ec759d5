"""Two answers to one question side by side: the plain one and the steered one."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QWidget

from engine.checked import there
from ui.kit import theme
from ui.kit.basics import Button, column, label, line
from ui.kit.chat_state import ConversationMessage
from ui.talk.message_view import AnswerMessage

PLAIN_HEAD = "Plain"
STEERED_HEAD = "Steered"
SIDE_BY_SIDE = 520
"""Below this width the two stand one under the other."""
NOISE_WORDS = "Both are written at the same time from the same noise"


class _Side(QFrame):
    """One of the two, on a card."""

    def __init__(self, answer: AnswerMessage) -> None:
        super().__init__()
        self.setObjectName("card")
        inside = column(margins=(theme.M, theme.M - 2, theme.M, theme.S))
        inside.addWidget(answer)
        self.setLayout(inside)


class CompareMessage(QWidget):
    """Shows both sides as they are written; ``kept`` asks for the comparison to be saved as a record."""

    again = Signal()
    go_on = Signal()
    inspect = Signal(bool)
    """The exact prompt of a side; True for the plain one."""
    colour = Signal()
    keep = Signal()

    def __init__(self, message: ConversationMessage) -> None:
        super().__init__()
        self._message = message
        self._last = False
        self._locked = False
        self.plain = AnswerMessage(there(message.plain), PLAIN_HEAD, single=False)
        self.steered = AnswerMessage(message, STEERED_HEAD, single=False)
        self.plain.inspect.connect(lambda: self.inspect.emit(True))
        self.steered.inspect.connect(lambda: self.inspect.emit(False))
        for side in (self.plain, self.steered):
            side.colour.connect(self.colour)
        self.keep_button = Button("Save as record", "quiet", "book", self.keep.emit)
        self.go_on_button = Button("Continue", "quiet", "play", self.go_on.emit)
        self.again_button = Button("Write both again", "quiet", "again", self.again.emit)
        self._words = label("", "caption", wrap=True)
        self._footer = QWidget()
        self._footer.setLayout(line(self.keep_button, self.go_on_button, self.again_button, None, spacing=theme.XS))
        self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._columns.setSpacing(theme.M)
        for side in (self.plain, self.steered):
            self._columns.addWidget(_Side(side), 1)
        layout = column(spacing=theme.XS)
        layout.addLayout(self._columns)
        layout.addWidget(self._words)
        layout.addWidget(self._footer)
        self.setLayout(layout)
        self.refresh()

    @property
    def message(self) -> ConversationMessage:
        """What is shown."""
        return self._message

    def refresh(self) -> None:
        """Show both as they are now."""
        for side in (self.plain, self.steered):
            side.refresh()
        seed = self._message.details.get("noise_seed")
        self._words.setText(f"{NOISE_WORDS}{f' (seed {seed})' if seed is not None else ''}.")
        self._show_buttons()

    def set_state(self, words: str) -> None:
        """Say what goes on before the first word."""
        for side in (self.plain, self.steered):
            side.set_state(words)

    def set_last(self, last: bool) -> None:
        """Only the last comparison can be written again or continued."""
        self._last = last
        self._show_buttons()

    def set_locked(self, locked: bool) -> None:
        """While an answer is being written, nothing else is."""
        self._locked = locked
        for button in (self.again_button, self.go_on_button):
            button.setEnabled(not locked)
        self._show_buttons()

    def mark_kept(self, kept: bool) -> None:
        """The comparison is saved, or could not be."""
        self.keep_button.setText(" Saved" if kept else " Save as record")
        self.keep_button.setEnabled(not kept)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Side by side where there is room."""
        super().resizeEvent(event)
        wide = self.width() >= SIDE_BY_SIDE
        self._columns.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)

    def _show_buttons(self) -> None:
        done = all("finish_reason" in side.details for side in self._message.sides)
        self.keep_button.setVisible(done)
        self.go_on_button.setVisible(self._last and done and any(side.ended_early for side in self._message.sides))
        self.again_button.setVisible(self._last and done)

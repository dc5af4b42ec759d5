"""Where the person writes: a field that grows with its text, a send and stop button, the size of the prompt."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QFocusEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QToolButton

from ui.kit import theme
from ui.kit.basics import Button, IconButton, Notice, Surface, column, label, line, set_property
from ui.kit.plain_text import as_letters
from ui.kit.text import count, counted

MAX_LINES = 8


class DraftField(QPlainTextEdit):
    """Text as high as its lines up to :data:`MAX_LINES`. Enter sends, Shift+Enter makes a new line."""

    submitted = Signal()
    focus_changed = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("bare")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTabChangesFocus(True)
        self.setAccessibleName("Your message")
        self.document().setDocumentMargin(2)
        self.textChanged.connect(self._fit)
        theme.current().changed.connect(self._fit)
        self._fit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter and Ctrl+Enter send; with Shift a line is broken."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not (
            event.modifiers() & Qt.KeyboardModifier.ShiftModifier
        ):
            self.submitted.emit()
            event.accept()
            return
        super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Let the frame show the focus."""
        super().focusInEvent(event)
        self.focus_changed.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Let the frame show that the focus left."""
        super().focusOutEvent(event)
        self.focus_changed.emit(False)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Lines wrap anew."""
        super().resizeEvent(event)
        self._fit()

    @Slot()
    def _fit(self) -> None:
        rows = 0
        block = self.document().begin()
        while block.isValid() and rows <= MAX_LINES:
            rows += max(1, block.layout().lineCount())
            block = block.next()
        shown = min(max(rows, 1), MAX_LINES)
        height = round(shown * self.fontMetrics().lineSpacing()) + 8
        if height != self.height():
            self.setFixedHeight(height)
        bar = Qt.ScrollBarPolicy.ScrollBarAsNeeded if rows > MAX_LINES else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        self.setVerticalScrollBarPolicy(bar)


class RoundButton(IconButton):
    """The one round button of the composer."""

    def __init__(self) -> None:
        super().__init__("send", "Send (Enter)", colour="on_accent")
        self.setProperty("look", "round")
        self.setFixedSize(34, 34)
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonIconOnly)
        self.setPopupMode(QToolButton.ToolButtonPopupMode.DelayedPopup)


class Composer(Surface):
    """Takes a message. While no model can answer, says so and offers the way out; the draft can still be written."""

    send = Signal(str)
    stop = Signal()
    changed = Signal()
    remedy = Signal()

    def __init__(self) -> None:
        super().__init__("pageBody")
        self.notice = Notice()
        self.gate = Notice(closable=False)
        self.field = DraftField()
        self.field.setPlaceholderText("Write a message")
        self.button = RoundButton()
        self._count = label("", "caption")
        self.hint = label("Enter sends · Shift+Enter breaks the line", "caption")
        self._frame = QFrame()
        self._frame.setObjectName("composer")
        inside = column(spacing=theme.XS, margins=(theme.M + 2, theme.M - 2, theme.S + 2, theme.S))
        inside.addWidget(self.field)
        inside.addLayout(line(self.hint, None, self._count, theme.XS, self.button))
        self._frame.setLayout(inside)
        layout = column(spacing=theme.S)
        for part in (self.gate, self.notice, self._frame):
            layout.addWidget(part)
        self.setLayout(layout)
        self._busy = False
        self._ready = False
        self._gate_button: Button | None = None
        self.field.submitted.connect(self.submit)
        self.field.textChanged.connect(self._on_text)
        self.field.focus_changed.connect(lambda on: set_property(self._frame, "focused", on))
        self.button.clicked.connect(self._on_button)
        self._refresh()

    def draft(self) -> str:
        """What is written but not sent."""
        return self.field.toPlainText()

    def set_draft(self, text: str) -> None:
        """Put ``text`` back to be edited, unless something else was written meanwhile."""
        if not self.draft().strip():
            self.field.setPlainText(text)
            cursor = self.field.textCursor()
            cursor.movePosition(cursor.MoveOperation.End)
            self.field.setTextCursor(cursor)

    def set_busy(self, busy: bool) -> None:
        """Whether an answer is being written: the button then stops it."""
        self._busy = busy
        self._refresh()

    def set_ready(self) -> None:
        """A model can answer."""
        self._ready = True
        self.gate.hide()
        self._gate_button = None
        self._refresh()

    def set_not_ready(self, words: str, action: str | None) -> None:
        """No model can answer: say why, with a button that emits :attr:`remedy`."""
        self._ready = False
        if words != self.gate.words() or (self._gate_button.text() if self._gate_button else None) != action:
            self._gate_button = Button(action, on_click=self.remedy.emit) if action else None
            self.gate.show_words(words, "info", *([self._gate_button] if self._gate_button else []))
        self._refresh()

    def show_count(self, tokens: int | None, window: int | None, problem: str) -> None:
        """The size of what would be sent: quiet while it fits, a warning where it does not."""
        self._count.setText(f"{count(tokens)} of {counted(window, 'token')}" if tokens is not None and window else "")
        self._count.setToolTip(as_letters(problem))
        set_property(self._count, "look", "bad" if problem else "caption")

    def count_text(self) -> str:
        """What is said about the size."""
        return self._count.text()

    @property
    def gate_button(self) -> Button | None:
        """The way out of :meth:`set_not_ready`, where there is one."""
        return self._gate_button

    @Slot()
    def submit(self) -> None:
        """Send the draft, where a model can answer and nothing is being answered."""
        text = self.draft().strip("\n")
        if self._ready and not self._busy and text.strip():
            self.field.clear()
            self.notice.hide()
            self.send.emit(text)

    @Slot()
    def _on_button(self) -> None:
        if self._busy:
            self.stop.emit()
        else:
            self.submit()

    @Slot()
    def _on_text(self) -> None:
        self._refresh()
        self.changed.emit()

    def _refresh(self) -> None:
        tip = "Stop (Esc)" if self._busy else "Send (Enter)"
        if self.button.toolTip() != tip:
            self.button.setToolTip(tip)
            self.button.setAccessibleName(tip)
            self.button.set_icon("stop" if self._busy else "send")
        self.button.setEnabled(self._busy or (self._ready and bool(self.draft().strip())))

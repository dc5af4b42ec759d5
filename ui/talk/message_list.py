"""The messages of a conversation in one readable column that follows the text being written."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from ui.kit import theme
from ui.kit.basics import Button, Surface, column, label
from ui.kit.chat_state import ConversationMessage
from ui.talk.compare_message import CompareMessage
from ui.talk.message_view import AnswerMessage, UserMessage

COLUMN_WIDTH = 780
"""Lines longer than this are hard to read; in device-independent pixels."""
WIDE_COLUMN = 1240
"""Of two answers side by side."""
MessageView = UserMessage | AnswerMessage | CompareMessage
SUGGESTIONS = (
    "Explain why the sea is salty, in three points",
    "Write a short, friendly birthday message",
    "Show me a Python function that reverses a list",
)
PAGE_SIZE = 40
"""Messages put on screen at a time; earlier ones come with a click, so that a long conversation opens at once."""


class MessageList(QScrollArea):
    """Shows messages and keeps at the end while text arrives, unless the person scrolled away from it."""

    again = Signal()
    go_on = Signal()
    inspect = Signal(int, bool)
    """(message, whether the plain answer beside it is meant)."""
    colour = Signal(int)
    keep = Signal(int)
    edited = Signal(int, str)
    suggested = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setObjectName("page")
        self._messages: list[ConversationMessage] = []
        self._views: list[MessageView] = []
        self._first = 0
        self._follow = True
        self._locked = False
        self._wide = False
        body = Surface("pageBody")
        outer = QVBoxLayout(body)
        outer.setContentsMargins(theme.XL, theme.L, theme.XL, theme.L)
        self._column = QWidget()
        self._column.setMaximumWidth(COLUMN_WIDTH)
        self._column.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        self._stack = column(spacing=theme.L + 4)
        self._column.setLayout(self._stack)
        self._earlier = Button("Show earlier messages", "quiet", on_click=self._show_earlier)
        self._earlier.hide()
        self._empty = self._build_empty()
        outer.addWidget(self._earlier, 0, Qt.AlignmentFlag.AlignHCenter)
        outer.addWidget(self._empty, 1)
        outer.addWidget(self._column)
        outer.addStretch(1)
        outer.setAlignment(self._column, Qt.AlignmentFlag.AlignTop)
        self._outer = outer
        self.setWidget(body)
        body.installEventFilter(self)
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._on_scrolled)
        bar.rangeChanged.connect(self._on_range)
        self.newest = Button("Jump to newest", "plain", "down", self.scroll_to_end)
        self.newest.setObjectName("floating")
        self.newest.setParent(self)
        self.newest.hide()
        self._settle = QTimer(self)
        self._settle.setSingleShot(True)
        self._settle.setInterval(0)
        self._settle.timeout.connect(self._to_end)

    # --- what is shown ----------------------------------------------------------------------------------------------

    def show_all(self, messages: list[ConversationMessage]) -> None:
        """Show a conversation from its end."""
        self.setUpdatesEnabled(False)
        while self._views:
            self._drop(self._views.pop())
        self._messages = list(messages)
        self._first = max(0, len(messages) - PAGE_SIZE)
        for index in range(self._first, len(messages)):
            self._add_view(index)
        self._refresh_frame()
        self.setUpdatesEnabled(True)
        self.scroll_to_end()

    def add(self, message: ConversationMessage) -> None:
        """Show one more message at the end."""
        self._messages.append(message)
        self._add_view(len(self._messages) - 1)
        self._refresh_frame()
        self.scroll_to_end()

    def remove_last(self) -> None:
        """Take the last message away."""
        self._messages.pop()
        if self._views:
            self._drop(self._views.pop())
        self._refresh_frame()

    def refresh(self, index: int) -> None:
        """Show the message at ``index`` as it is now."""
        view = self.view(index)
        if isinstance(view, AnswerMessage | CompareMessage):
            view.refresh()

    def set_state(self, words: str) -> None:
        """What the last, still empty answer waits for."""
        if self._views and isinstance(last := self._views[-1], AnswerMessage | CompareMessage):
            last.set_state(words)

    def set_locked(self, locked: bool) -> None:
        """Whether an answer is being written."""
        self._locked = locked
        self._refresh_frame()

    def view(self, index: int) -> MessageView | None:
        """The widget of the message at ``index``, where it is on screen."""
        place = index - self._first
        return self._views[place] if 0 <= place < len(self._views) else None

    def message_count(self) -> int:
        """How many messages the conversation has."""
        return len(self._messages)

    def scroll_to_end(self) -> None:
        """Go to the end and stay there."""
        self._follow = True
        self._settle.start()
        self._offer_newest()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _build_empty(self) -> QWidget:
        holder = QWidget()
        inside = column(spacing=theme.S)
        head = label("What is on your mind?", "display")
        hint = label("The answer is made on this computer; nothing leaves it.", "muted", wrap=True)
        for part in (head, hint):
            part.setAlignment(Qt.AlignmentFlag.AlignCenter)
        inside.addStretch(1)
        inside.addWidget(head)
        inside.addWidget(hint)
        inside.addSpacing(theme.M)
        for text in SUGGESTIONS:
            chip = Button(text, on_click=partial(self.suggested.emit, text))
            inside.addWidget(chip, 0, Qt.AlignmentFlag.AlignHCenter)
        inside.addStretch(1)
        holder.setLayout(inside)
        return holder

    def set_wide(self, wide: bool) -> None:
        """Whether the column has the width of two answers."""
        self._wide = wide
        self._column.setMaximumWidth(WIDE_COLUMN if wide else COLUMN_WIDTH)
        self._keep_in_the_middle()

    def _make_view(self, index: int) -> MessageView:
        message = self._messages[index]
        if message.role == "user":
            question = UserMessage(message)
            question.edited.connect(lambda text: self.edited.emit(index, text))
            return question
        answer: AnswerMessage | CompareMessage
        if message.plain is not None:
            answer = CompareMessage(message)
            answer.inspect.connect(lambda plain: self.inspect.emit(index, plain))
            answer.keep.connect(lambda: self.keep.emit(index))
        else:
            answer = AnswerMessage(message)
            answer.inspect.connect(lambda: self.inspect.emit(index, False))
        answer.again.connect(self.again)
        answer.go_on.connect(self.go_on)
        answer.colour.connect(lambda: self.colour.emit(index))
        return answer

    def _add_view(self, index: int) -> None:
        view = self._make_view(index)
        self._views.append(view)
        self._stack.addWidget(view)

    def _show_earlier(self) -> None:
        start = max(0, self._first - PAGE_SIZE)
        for place, index in enumerate(range(start, self._first)):
            view = self._make_view(index)
            self._views.insert(place, view)
            self._stack.insertWidget(place, view)
        self._first = start
        self._follow = False
        self._refresh_frame()

    def _drop(self, view: QWidget) -> None:
        self._stack.removeWidget(view)
        view.hide()
        view.deleteLater()

    def _refresh_frame(self) -> None:
        empty = not self._messages
        self._empty.setVisible(empty)
        self._column.setVisible(not empty)
        self._outer.setStretch(self._outer.count() - 1, 0 if empty else 1)
        self._earlier.setVisible(self._first > 0)
        for place, view in enumerate(self._views):
            if isinstance(view, AnswerMessage | CompareMessage):
                view.set_last(place == len(self._views) - 1)
            view.set_locked(self._locked)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Keep the column in the middle when the window is wide."""
        if event.type() == QEvent.Type.Resize and watched is self.widget():
            self._keep_in_the_middle()
        return super().eventFilter(watched, event)

    def _keep_in_the_middle(self) -> None:
        body = self.widget()
        if body is None:
            return
        side = max(theme.XL, (body.width() - self._column.maximumWidth()) // 2)
        margins = self._outer.contentsMargins()
        if margins.left() != side:
            self._outer.setContentsMargins(side, margins.top(), side, margins.bottom())

    @Slot(int)
    def _on_scrolled(self, value: int) -> None:
        if not self._settle.isActive():
            self._follow = value >= self.verticalScrollBar().maximum() - 8
            self._offer_newest()

    @Slot(int, int)
    def _on_range(self, _low: int, _high: int) -> None:
        if self._follow:
            self._settle.start()
        self._offer_newest()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the way to the end in its place."""
        super().resizeEvent(event)
        self._offer_newest()

    def _offer_newest(self) -> None:
        """Where a person has scrolled away from the end, a way back there floats over the text."""
        away = not self._follow and bool(self._messages)
        if away:
            self.newest.adjustSize()
            room = self.viewport().geometry()
            place = QPoint(room.center().x() - self.newest.width() // 2, room.bottom() - self.newest.height() - theme.S)
            self.newest.move(place)
            self.newest.raise_()
        elif self.newest.hasFocus():
            # It goes; the keys stay with what it moved.
            self.setFocus()
        self.newest.setVisible(away)

    @Slot()
    def _to_end(self) -> None:
        bar = self.verticalScrollBar()
        bar.setValue(bar.maximum())

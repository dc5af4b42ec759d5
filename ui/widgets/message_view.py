"""One message of a chat: the person's in a bubble on the right, the model's as Markdown with its figures under it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QWidget

from ui import theme
from ui.chat_state import ChatMessage
from ui.steering_words import report_words
from ui.widgets.basics import CopyButton, ElidedLabel, IconButton, column, label, line
from ui.widgets.flow_text import FlowText
from ui.widgets.markdown_view import MarkdownView
from ui.words import count, finish

BUBBLE_SHARE = 0.8
"""The person's messages take at most this share of the column, so that the two sides can be told apart."""


def number(details: dict[str, object], key: str) -> float | None:
    """A figure of a message's details, where it is one."""
    value = details.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def tokens_per_second(details: dict[str, object]) -> float | None:
    """Decode speed: tokens after the first, over the time after the first. None where that is not defined."""
    tokens, total, first = (
        number(details, k) for k in ("completion_tokens", "seconds_total", "seconds_to_first_token")
    )
    if tokens is None or total is None or first is None or tokens < 2 or total <= first:
        return None
    return (tokens - 1) / (total - first)


def figures(details: dict[str, object]) -> str:
    """What is shown under an answer: why it ended, how long it is, how fast it came."""
    parts: list[str] = []
    reason = details.get("finish_reason")
    if isinstance(reason, str):
        parts.append(finish(reason))
    tokens = number(details, "completion_tokens")
    if tokens is not None and reason is not None:
        parts.append(f"{count(int(tokens))} token{'' if tokens == 1 else 's'}")
    speed = tokens_per_second(details)
    if speed is not None:
        parts.append(f"{speed:.1f} tokens/s")
    return " · ".join(parts)


def _tooltip(details: dict[str, object]) -> str:
    rows: list[str] = []
    for key, words, form in (
        ("prompt_tokens", "Prompt tokens", "{:.0f}"),
        ("cached_tokens", "of them from the cache", "{:.0f}"),
        ("seconds_queued", "Waited", "{:.2f} s"),
        ("seconds_to_first_token", "First token after", "{:.2f} s"),
        ("seconds_total", "In all", "{:.2f} s"),
    ):
        value = number(details, key)
        if value is not None and not (key == "cached_tokens" and value == 0):
            rows.append(f"{words}: {form.format(value)}")
    sampling = details.get("sampling")
    if isinstance(sampling, dict):
        seed = sampling.get("seed")
        rows.append(f"Temperature: {sampling.get('temperature')}, seed: {'random' if seed is None else seed}")
    steering = details.get("steering")
    if isinstance(steering, dict):
        rows.append(f"Steering report: {steering.get('text')}")
    notes = details.get("notes")
    if isinstance(notes, list):
        rows.extend(str(note) for note in notes)
    return "\n".join(rows)


class UserMessage(QWidget):
    """What the person wrote, as it was typed."""

    def __init__(self, message: ChatMessage) -> None:
        super().__init__()
        self._text = FlowText()
        self._text.set_plain(message.content)
        self._bubble = QFrame()
        self._bubble.setObjectName("bubble")
        inside = column(margins=(theme.M + 2, theme.S + 2, theme.M + 2, theme.S + 2))
        inside.addWidget(self._text)
        self._bubble.setLayout(inside)
        self._bubble.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Maximum)
        copy = CopyButton(lambda: message.content, "Copy your message")
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.XS)
        layout.addStretch(1)
        layout.addWidget(copy, 0, Qt.AlignmentFlag.AlignTop)
        layout.addWidget(self._bubble)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Let the bubble be as wide as its words, up to its share of the column."""
        super().resizeEvent(event)
        margins = self._bubble.contentsMargins()
        inside = self._bubble.layout()
        air = margins.left() + margins.right()
        if inside is not None:
            air += inside.contentsMargins().left() + inside.contentsMargins().right()
        limit = max(80, round(self.width() * BUBBLE_SHARE) - air)
        self._bubble.setFixedWidth(self._text.ideal_width(limit) + air)


class AnswerMessage(QWidget):
    """What the model wrote. Actions: copy, write again (where it is the last), show the exact prompt."""

    again = Signal()
    inspect = Signal()

    def __init__(self, message: ChatMessage) -> None:
        super().__init__()
        self._message = message
        model = message.details.get("model")
        self._name = label(str(model) if model else "Model", "caption")
        self._text = MarkdownView()
        self._state = label("", "muted")
        self._figures = label("", "caption")
        self.steering = ElidedLabel("", "caption")
        self._error = label("", "bad", wrap=True, selectable=True)
        self.copy = CopyButton(lambda: message.content, "Copy this answer")
        self.again_button = IconButton("again", "Write this answer again", self.again.emit)
        self.inspect_button = IconButton("text", "Show the exact prompt of this answer", self.inspect.emit)
        self._footer = QWidget()
        footer = line(self.copy, self.again_button, self.inspect_button, theme.S, spacing=2)
        told = column(spacing=0)
        told.addWidget(self._figures)
        told.addWidget(self.steering)
        footer.addLayout(told, 1)
        self._footer.setLayout(footer)
        layout = column(spacing=theme.XS)
        layout.addWidget(self._name)
        layout.addWidget(self._text)
        layout.addWidget(self._state)
        layout.addWidget(self._error)
        layout.addWidget(self._footer)
        self.setLayout(layout)
        self.refresh()

    def refresh(self) -> None:
        """Show the message as it is now."""
        message = self._message
        done = "finish_reason" in message.details
        self._text.set_text(message.content)
        self._text.setVisible(bool(message.content))
        if done and not message.content:
            self._state.setText("The model ended its answer without writing anything.")
        self._state.setVisible(not message.content)
        words = figures(message.details)
        self._figures.setText(words)
        self._figures.setToolTip(_tooltip(message.details))
        self.steering.set_text(report_words(message.details))
        self.steering.setVisible(bool(self.steering.full_text()))
        error = message.details.get("error")
        self._error.setText(str(error) if error else "")
        self._error.setVisible(bool(error))
        self._footer.setVisible(done)

    def set_state(self, words: str) -> None:
        """Say what goes on before the first word."""
        if not self._message.content:
            self._state.setText(words)

    def set_last(self, last: bool) -> None:
        """Only the last answer can be written again."""
        self.again_button.setVisible(last)

    def set_locked(self, locked: bool) -> None:
        """While an answer is being written, none can be written again."""
        self.again_button.setEnabled(not locked)

"""One message of a chat: the person's in a bubble on the right, the model's as Markdown with its figures under it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QSizePolicy, QWidget

from ui.kit import theme
from ui.kit.basics import CopyButton, ElidedLabel, IconButton, column, label, line
from ui.kit.chat_options import sampling_words
from ui.kit.chat_state import ConversationMessage
from ui.kit.flow_text import FlowText
from ui.kit.markdown_view import MarkdownView
from ui.kit.plain_text import as_letters
from ui.kit.reasoning_fold import ReasoningFold
from ui.kit.steering_text import report_lines, report_words
from ui.kit.token_text import Coloured, TokenText
from ui.talk.figures import figures, number
from ui.talk.message_editor import MessageEditor

NOTHING = "The model ended its answer without writing anything."
NO_ANSWER = "There is no answer: the model's turn ended in its reasoning."
BUBBLE_SHARE = 0.8
"""The person's messages take at most this share of the column, so that the two sides can be told apart."""


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
    if sampled := sampling_words(details):
        rows.append(sampled[:1].upper() + sampled[1:])
    steering = details.get("steering")
    if isinstance(steering, dict):
        rows.append(report_lines(steering))
    notes = details.get("notes")
    if isinstance(notes, list):
        rows.extend(str(note) for note in notes)
    return "\n".join(rows)


class UserMessage(QWidget):
    """What the person wrote, as it was typed; it can be edited, which begins the conversation anew from there."""

    edited = Signal(str)

    def __init__(self, message: ConversationMessage) -> None:
        super().__init__()
        self._message = message
        self._text = FlowText()
        self._text.set_plain(message.content)
        self._bubble = QFrame()
        self._bubble.setObjectName("bubble")
        inside = column(margins=(theme.M + 2, theme.S + 2, theme.M + 2, theme.S + 2))
        inside.addWidget(self._text)
        self._bubble.setLayout(inside)
        self._bubble.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Maximum)
        self.copy = CopyButton(lambda: message.content, "Copy your message")
        self.edit_button = IconButton("pencil", "Edit this message and answer it anew", self.begin_edit)
        self.editor: MessageEditor | None = None
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.XS)
        layout.addStretch(1)
        layout.addWidget(self.edit_button, 0, Qt.AlignmentFlag.AlignTop)
        layout.addWidget(self.copy, 0, Qt.AlignmentFlag.AlignTop)
        layout.addWidget(self._bubble)
        self._layout = layout

    def begin_edit(self) -> None:
        """Put a field in the place of the bubble."""
        if self.editor is not None:
            return
        editor = MessageEditor(self._message.content)
        editor.cancelled.connect(self.end_edit)
        editor.confirmed.connect(self._on_confirmed)
        self.editor = editor
        for part in (self._bubble, self.edit_button, self.copy):
            part.hide()
        self._layout.addWidget(editor, 1000)
        editor.field.setFocus()

    def end_edit(self) -> None:
        """Show the bubble again."""
        editor, self.editor = self.editor, None
        if editor is not None:
            self._layout.removeWidget(editor)
            editor.hide()
            editor.deleteLater()
        for part in (self._bubble, self.edit_button, self.copy):
            part.show()

    def set_locked(self, locked: bool) -> None:
        """While an answer is being written, nothing is edited."""
        self.edit_button.setEnabled(not locked)
        if self.editor is not None:
            self.editor.confirm_button.setEnabled(not locked)

    def _on_confirmed(self, text: str) -> None:
        if text.strip() == self._message.content.strip():
            self.end_edit()
        else:
            self.edited.emit(text)

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
    """What the model wrote. Actions: copy, continue, write again (where it is the last), exact prompt, colours.

    ``heading`` stands in the place of the model's name where two answers stand side by side; those are written again
    and continued together, so ``single`` is False there.
    """

    again = Signal()
    go_on = Signal()
    inspect = Signal()
    colour = Signal()

    def __init__(self, message: ConversationMessage, heading: str = "", *, single: bool = True) -> None:
        super().__init__()
        self._message = message
        self._single = single
        self._last = False
        model = message.details.get("model")
        self._name = label(heading or (str(model) if model else "Model"), "strong" if heading else "caption")
        self.reasoning = ReasoningFold()
        self._text = MarkdownView()
        self.tokens: TokenText | None = None
        self._state = label("", "muted")
        self._figures = ElidedLabel("", "caption")
        self.steering = label("", "caption", wrap=True)
        self._error = label("", "bad", wrap=True, selectable=True)
        self.copy = CopyButton(lambda: message.content, "Copy this answer")
        self.go_on_button = IconButton("play", "Continue this answer", self.go_on.emit)
        self.again_button = IconButton("again", "Write this answer again", self.again.emit)
        self.inspect_button = IconButton("text", "Show the exact prompt of this answer", self.inspect.emit)
        self.colour_button = IconButton("drop", "Colour this answer by a feature", self.colour.emit)
        self._footer = QWidget()
        buttons = line(self.copy, spacing=2)
        for button in (self.go_on_button, self.again_button, self.inspect_button, self.colour_button):
            buttons.addWidget(button)
        told = column(spacing=0)
        told.addWidget(self._figures)
        told.addWidget(self.steering)
        if single:
            footer: QBoxLayout = line(buttons, theme.S, spacing=2)
            footer.addLayout(told, 1)
        else:
            buttons.addStretch(1)
            footer = column(spacing=2)
            footer.addLayout(told)
            footer.addLayout(buttons)
        self._footer.setLayout(footer)
        layout = column(spacing=theme.XS)
        layout.addWidget(self._name)
        layout.addWidget(self.reasoning)
        layout.addWidget(self._text)
        layout.addWidget(self._state)
        layout.addWidget(self._error)
        layout.addWidget(self._footer)
        if not single:
            layout.addStretch(1)
        self._layout = layout
        self.setLayout(layout)
        self.refresh()
        self._show_buttons()

    @property
    def message(self) -> ConversationMessage:
        """What is shown."""
        return self._message

    def refresh(self) -> None:
        """Show the message as it is now."""
        message = self._message
        done = "finish_reason" in message.details
        if not done:
            self.clear_colours()
        self.reasoning.show_text(message.reasoning, under_way=not done and not message.content)
        self._text.set_text(message.content)
        self._text.setVisible(bool(message.content) and self.tokens is None)
        if done and not message.content:
            self._state.setText(NOTHING if not message.reasoning else NO_ANSWER)
        self._state.setVisible(not message.content)
        self._figures.set_text(figures(message.details))
        self._figures.setToolTip(as_letters(_tooltip(message.details)))
        self.steering.setText(report_words(message.details))
        self.steering.setVisible(bool(self.steering.text()))
        error = message.details.get("error")
        self._error.setText(str(error) if error else "")
        self._error.setVisible(bool(error))
        self._footer.setVisible(done)
        self._show_buttons()

    def show_colours(self, coloured: Coloured) -> None:
        """Show the text with each piece in the strength of a feature."""
        if self.tokens is None:
            self.tokens = TokenText()
            self._layout.insertWidget(self._layout.indexOf(self._text) + 1, self.tokens)
        self.tokens.show_pieces(coloured)
        self._text.hide()
        self.colour_button.setToolTip("Show this answer without colours")

    def clear_colours(self) -> None:
        """Show the text as it is written."""
        if self.tokens is None:
            return
        self._layout.removeWidget(self.tokens)
        self.tokens.hide()
        self.tokens.deleteLater()
        self.tokens = None
        self._text.setVisible(bool(self._message.content))
        self.colour_button.setToolTip("Colour this answer by a feature")

    def set_state(self, words: str) -> None:
        """Say what goes on before the first word."""
        if not self._message.content:
            self._state.setText(words)

    def set_last(self, last: bool) -> None:
        """Only the last answer can be written again or continued."""
        self._last = last
        self._show_buttons()

    def set_locked(self, locked: bool) -> None:
        """While an answer is being written, none can be written again."""
        for button in (self.again_button, self.go_on_button):
            button.setEnabled(not locked)

    def _show_buttons(self) -> None:
        self.again_button.setVisible(self._single and self._last)
        self.go_on_button.setVisible(self._single and self._last and self._message.ended_early)
        self.colour_button.setVisible(
            bool(self._message.content) and isinstance(self._message.details.get("pieces"), list)
        )

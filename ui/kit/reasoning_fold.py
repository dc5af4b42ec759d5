"""What a model wrote before its answer, folded above it: open while it is written, closed once the answer begins."""

from __future__ import annotations

from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QFrame, QSizePolicy, QWidget

from ui.kit import theme
from ui.kit.basics import Button, column, line
from ui.kit.flow_text import FlowText
from ui.kit.plain_text import as_letters


class ReasoningFold(QWidget):
    """A line that opens and closes the text under it; nothing where there is no text.

    Once a person has opened or closed it, it stays as they left it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown = ""
        self._chosen = False
        self.button = Button("Reasoning", "quiet", "unfold", self._toggle)
        self.button.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.text = FlowText("caption")
        self.text.setAccessibleName("Reasoning")
        self._ground = QFrame()
        self._ground.setObjectName("inset")
        inside = column(margins=(theme.M, theme.S, theme.M, theme.S))
        inside.addWidget(self.text)
        self._ground.setLayout(inside)
        layout = column(spacing=theme.XS, margins=(0, 0, 0, theme.XS))
        layout.addLayout(line(self.button, None))
        layout.addWidget(self._ground)
        self.setLayout(layout)
        self._open(False)
        self.hide()

    @property
    def is_open(self) -> bool:
        """Whether the text can be read."""
        return not self._ground.isHidden()

    def show_text(self, text: str, *, under_way: bool = False) -> None:
        """Show ``text``, which may have grown. ``under_way``: it is being written, and no answer has begun."""
        if text != self._shown:
            if self._shown and text.startswith(self._shown):
                cursor = QTextCursor(self.text.document())
                cursor.movePosition(QTextCursor.MoveOperation.End)
                cursor.insertText(text[len(self._shown) :])
                self.text.fit()
            else:
                self.text.set_plain(text)
            self._shown = text
        if not self._chosen and self.is_open != under_way:
            self._open(under_way)
        self.setVisible(bool(text))

    def _toggle(self) -> None:
        self._chosen = True
        self._open(not self.is_open)

    def _open(self, opened: bool) -> None:
        for part in (self._ground, self.text):
            part.setVisible(opened)
        self.button.set_icon("fold" if opened else "unfold")
        words = "Hide the reasoning" if opened else "Show the reasoning"
        self.button.setToolTip(as_letters(words))
        self.button.setAccessibleName(f"Reasoning, {'open' if opened else 'folded'}")

"""The card that says what to do first: chat, connect another program, and what this program is heading for."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QBoxLayout, QButtonGroup, QFrame, QHBoxLayout, QPushButton, QWidget

from ui import theme
from ui.snippets import Snippet, snippets
from ui.widgets.basics import Button, Card, CopyButton, column, label, line
from ui.widgets.markdown_view import CodeText

PLACE_ADDRESS = "http://127.0.0.1:8000/v1"
PLACE_MODEL = "MODEL"


class Step(QWidget):
    """A numbered step with a head and a body that callers fill."""

    def __init__(self, number: int, head: str) -> None:
        super().__init__()
        mark = label(str(number), "step")
        mark.setFixedSize(26, 26)
        mark.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.body = column(spacing=theme.S)
        self.body.addWidget(label(head, "strong"))
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.M)
        layout.addWidget(mark, 0, Qt.AlignmentFlag.AlignTop)
        layout.addLayout(self.body, 1)


class FirstSteps(Card):
    """Three steps; the snippet is filled with the real address and model once there are any."""

    chat = Signal()
    steering = Signal()

    def __init__(self) -> None:
        super().__init__("What to do first")
        self.chat_button = Button("Open the chat", "plain", "chat", self.chat.emit)
        self.steering_button = Button("Open the dials", "plain", "dials", self.steering.emit)
        self.hint = label("", "small", wrap=True)
        self.code = CodeText()
        self.copy = CopyButton(self.code.toPlainText, "Copy the snippet")
        self.tabs = QButtonGroup(self)
        self.tabs.setExclusive(True)
        self._tab_line = line(spacing=theme.M)
        self._snippets: list[Snippet] = []
        one = Step(1, "Chat with the model")
        one.body.addWidget(
            label(
                "Write to it here. You can stop it, set how freely it answers, and see its exact prompt.",
                "muted",
                wrap=True,
            )
        )
        one.body.addLayout(line(self.chat_button, None))
        two = Step(2, "Use it from another program")
        two.body.addLayout(self._tab_line)
        two.body.addWidget(self.hint)
        box = QFrame()
        box.setObjectName("inset")
        inside = line(spacing=theme.XS)
        inside.setContentsMargins(theme.M, theme.S, theme.XS, theme.XS)
        inside.addWidget(self.code, 1)
        inside.addWidget(self.copy, 0, Qt.AlignmentFlag.AlignTop)
        box.setLayout(inside)
        two.body.addWidget(box)
        three = Step(3, "Steer it")
        three.body.addWidget(
            label(
                "Attach an SAE, turn single features of the model up and down, and watch what changes. Each answer "
                "says what was added.",
                "muted",
                wrap=True,
            )
        )
        three.body.addLayout(line(self.steering_button, None))
        left = column(spacing=theme.L)
        left.addWidget(one)
        left.addWidget(three)
        left.addStretch(1)
        right = column()
        right.addWidget(two)
        right.addStretch(1)
        self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._columns.setSpacing(theme.XL)
        self._columns.addLayout(left, 2)
        self._columns.addLayout(right, 3)
        self.body.addLayout(self._columns)
        self.fill(None, None)

    def set_wide(self, wide: bool) -> None:
        """The snippet beside the other steps, or under them."""
        self._columns.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)

    def fill(self, address: str | None, model: str | None) -> None:
        """Put the real address and model into the snippets; placeholders where there is none."""
        self._snippets = snippets(address or PLACE_ADDRESS, model or PLACE_MODEL)
        if not self.tabs.buttons():
            for place, snippet in enumerate(self._snippets):
                tab = QPushButton(snippet.title)
                tab.setProperty("look", "tab")
                tab.setCheckable(True)
                tab.setChecked(place == 0)
                tab.setCursor(Qt.CursorShape.PointingHandCursor)
                self.tabs.addButton(tab, place)
                self._tab_line.addWidget(tab)
            self._tab_line.addStretch(1)
            self.tabs.idClicked.connect(self._show)
        self._show(self.tabs.checkedId())

    def _show(self, place: int) -> None:
        snippet = self._snippets[max(0, place)]
        self.hint.setText(snippet.hint)
        self.code.set_code(snippet.text)

"""The card that says what to do first: load, attach, turn the dial; and how another program connects."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QWidget

from ui.kit import theme
from ui.kit.basics import Button, Card, column, keep_place, label, line, set_property
from ui.kit.flow import FlowLayout
from ui.kit.overlay_place import KEEP_CLEAR
from ui.kit.snippet_panel import Snippets
from ui.kit.snippets import snippets

PLACE_ADDRESS = "http://127.0.0.1:8000/v1"
PLACE_MODEL = "MODEL"


class StepRow(QWidget):
    """A numbered step with a head, words and one button; done steps show a tick."""

    wanted = Signal()

    def __init__(self, number: int, head: str) -> None:
        super().__init__()
        self._number = number
        self.done = False
        # What lies over the page covers none of the words that say what to do.
        self.setProperty(KEEP_CLEAR, True)
        self.mark = label(str(number), "step")
        self.mark.setFixedSize(26, 26)
        self.mark.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.words = label("", "muted", wrap=True)
        self.button = Button("", "plain", on_click=self.wanted.emit)
        self.body = column(spacing=theme.XS)
        self.body.addWidget(label(head, "strong"))
        self.body.addWidget(self.words)
        self.row = line(self.button, None)
        self.body.addLayout(self.row)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.M)
        layout.addWidget(self.mark, 0, Qt.AlignmentFlag.AlignTop)
        layout.addLayout(self.body, 1)

    def show_step(
        self, words: str, button: str | None, *, done: bool = False, able: bool = True, first: bool = False
    ) -> None:
        """Say how it stands. ``button`` None: nothing to press; ``first``: it is the next thing to do."""
        self.done = done
        self.mark.setText("✓" if done else str(self._number))
        set_property(self.mark, "tone", "done" if done else "")
        self.mark.setAccessibleName(f"Step {self._number}{', done' if done else ''}")
        self.words.setText(words)
        keep_place(self.button, not done)
        self.button.setVisible(button is not None)
        if button is not None:
            self.button.setText(button)
            self.button.setAccessibleName(button)
            self.button.setEnabled(able)
            set_property(self.button, "look", "primary" if first else "plain")


class FirstSteps(Card):
    """Three steps to the dial; beside them a snippet, filled with the real address and model once there are any."""

    chat = Signal()
    steering = Signal()
    report = Signal()
    tour = Signal()

    def __init__(self) -> None:
        super().__init__("What to do first")
        self.load = StepRow(1, "Load a model")
        self.attach = StepRow(2, "Attach its SAEs")
        self.dial = StepRow(3, "Turn the dial")
        self.chat_button = Button("Open the chat", "plain", "chat", self.chat.emit)
        self.steering_button = Button("Open the dials", "plain", "dials", self.steering.emit)
        self.tour_button = Button("Show me around", "quiet", "info", self.tour.emit)
        self.tour_button.setToolTip("A tour of a minute: the dial, comparing, the server's address")
        self.report_button = Button("What was measured", "quiet", "book", self.report.emit)
        self.report_button.setToolTip("The demo pack's report, with its plots")
        self.dial.row.insertWidget(1, self.report_button)
        self.snippets = Snippets(spacing=theme.S)
        left = column(spacing=theme.L - 2)
        for step in (self.load, self.attach, self.dial):
            left.addWidget(step)
        left.addStretch(1)
        right = column()
        right.addWidget(label("Or use it right away", "strong"))
        # A second line where three buttons do not fit into one.
        ways = FlowLayout(theme.S)
        for way in (self.chat_button, self.steering_button, self.tour_button):
            ways.addWidget(way)
        right.addLayout(ways)
        right.addSpacing(theme.S)
        right.addWidget(label("From another program", "strong"))
        right.addWidget(self.snippets, 1)
        self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._columns.setSpacing(theme.XL)
        self._columns.addLayout(left, 2)
        self._columns.addLayout(right, 3)
        self.body.addLayout(self._columns)
        self.fill(None, None)

    def set_wide(self, wide: bool) -> None:
        """The snippet beside the steps, or under them."""
        self._columns.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)

    def fill(self, address: str | None, model: str | None, key: str | None = None) -> None:
        """Put the real address, model and key into the snippets; placeholders where there is none."""
        self.snippets.fill(snippets(address or PLACE_ADDRESS, model or PLACE_MODEL, key))

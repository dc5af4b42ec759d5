"""Beside a chat, what SAEs see in it: a feature to colour answers by, the strongest features of the last token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QProgressBar, QScrollArea, QVBoxLayout, QWidget

from engine.public.steering import AttachmentKey
from ui.kit import theme
from ui.kit.basics import Button, ElidedLabel, IconButton, Notice, column, label, line, rule
from ui.kit.plain_text import as_letters
from ui.kit.switch import Switch

ROWS = 5
"""Features shown of each SAE."""
COLOUR_WORDS = (
    "Each answer is read once more, unsteered, and each word gets the colour of the feature's strength there. "
    "Hover for the value."
)
LIVE_WORDS = "Read as the model runs, so what steers is in it. About ten times a second."


@dataclass(frozen=True)
class LiveRow:
    """A feature at the last token."""

    index: int
    label: str
    value: float


class _Strength(QWidget):
    """A label, a bar and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ElidedLabel("", "small")
        self.value = label("", "caption")
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setRange(0, 1000)
        inside = column(spacing=2)
        inside.addLayout(line(self.name, self.value))
        inside.itemAt(0).layout().setStretch(0, 1)  # type: ignore[union-attr]
        inside.addWidget(self.bar)
        self.setLayout(inside)

    def show_row(self, row: LiveRow, most: float) -> None:
        """Show a feature; ``most`` fills the bar."""
        self.name.set_text(f"#{row.index}  {row.label}" if row.label else f"#{row.index}")
        self.value.setText(f"{row.value:.1f}")
        self.bar.setValue(round(1000 * row.value / most) if most > 0 else 0)


class _PlaceBox(QWidget):
    """The strongest features of one SAE."""

    def __init__(self, place: AttachmentKey) -> None:
        super().__init__()
        self.place = place
        self.rows = [_Strength() for _ in range(ROWS)]
        inside = column(spacing=theme.XS)
        head = ElidedLabel(f"Layer {place[1]}", "group")
        head.setToolTip(as_letters(place[0]))
        inside.addWidget(head)
        for row in self.rows:
            inside.addWidget(row)
        self.setLayout(inside)
        for row in self.rows:
            row.hide()

    def show_rows(self, found: list[LiveRow]) -> None:
        """Show these, strongest first."""
        most = max((each.value for each in found), default=0.0)
        for place, row in enumerate(self.rows):
            row.setVisible(place < len(found))
            if place < len(found):
                row.show_row(found[place], most)


class LensPanel(QScrollArea):
    """Shows; says what the person wants with signals."""

    choose = Signal()
    clear = Signal()
    read_along = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.choose_button = Button("Choose a feature…", "plain", "drop", self.choose.emit)
        self.feature = ElidedLabel("", "strong")
        self.where = ElidedLabel("", "caption", Qt.TextElideMode.ElideMiddle)
        self.clear_button = IconButton("close", "Show answers without colours", self.clear.emit)
        self.switch = Switch("Read the strongest features along")
        self.switch.clicked.connect(self.read_along)
        self.token = ElidedLabel("", "strong")
        self.empty = label("", "small", wrap=True)
        self.notice = Notice()
        self._boxes: dict[AttachmentKey, _PlaceBox] = {}
        self._stack: QVBoxLayout = column(spacing=theme.M)
        body = QWidget()
        body.setObjectName("scrollBody")
        layout = column(spacing=theme.S, margins=(theme.L, theme.M, theme.M, theme.L))
        layout.addWidget(self.notice)
        layout.addWidget(label("Colour words by a feature", "strong"))
        chosen = line(self.feature, self.clear_button)
        chosen.setStretch(0, 1)
        layout.addLayout(chosen)
        layout.addWidget(self.where)
        layout.addWidget(self.choose_button)
        layout.addWidget(label(COLOUR_WORDS, "caption", wrap=True))
        layout.addSpacing(theme.S)
        layout.addWidget(rule())
        layout.addSpacing(theme.S)
        layout.addLayout(line(label("Strongest at the last word", "strong"), None, self.switch))
        layout.addWidget(label(LIVE_WORDS, "caption", wrap=True))
        layout.addWidget(self.token)
        layout.addWidget(self.empty)
        layout.addLayout(self._stack)
        layout.addStretch(1)
        body.setLayout(layout)
        self.setWidget(body)
        self.show_feature("", "")
        self.show_state(attached=False, on=False)

    def show_feature(self, name: str, where: str) -> None:
        """Which feature answers are coloured by; empty for none."""
        self.feature.set_text(name)
        self.where.set_text(where)
        for part in (self.feature, self.where, self.clear_button):
            part.setVisible(bool(name))
        self.choose_button.setText(" Choose another…" if name else " Choose a feature…")

    def show_state(self, *, attached: bool, on: bool) -> None:
        """Whether there is an SAE to read with, and whether it reads along."""
        self.choose_button.setEnabled(attached)
        self.switch.setEnabled(attached)
        self.switch.setChecked(on)
        if not attached:
            words = "Attach an SAE first."
        elif not on:
            words = "Turn this on, then write: the features of each new word show here."
        else:
            words = "" if self._boxes else "Nothing was written yet."
        self.empty.setText(words)
        self.empty.setVisible(bool(words))

    def show_live(self, token: str, found: Mapping[AttachmentKey, list[LiveRow]]) -> None:
        """The strongest features of the last token, by SAE."""
        self.token.set_text(f"“{token}”" if token else "")
        self.token.setVisible(bool(token))
        for place in [each for each in self._boxes if each not in found]:
            box = self._boxes.pop(place)
            self._stack.removeWidget(box)
            box.hide()
            box.deleteLater()
        for place in sorted(found, key=lambda each: (each[1], each[0])):
            if place not in self._boxes:
                self._boxes[place] = _PlaceBox(place)
                self._stack.addWidget(self._boxes[place])
            self._boxes[place].show_rows(found[place][:ROWS])
        if found:
            self.empty.hide()

    def live_rows(self) -> dict[AttachmentKey, list[str]]:
        """What is shown of each SAE, from the top."""
        return {
            place: [row.name.full_text() for row in box.rows if not row.isHidden()]
            for place, box in self._boxes.items()
        }

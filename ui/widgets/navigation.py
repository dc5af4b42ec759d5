"""The navigation on the left: pages in named groups; narrow windows show icons alone."""

from __future__ import annotations

from PySide6.QtCore import QSize, Signal, Slot
from PySide6.QtWidgets import QButtonGroup, QLabel

from ui import theme
from ui.widgets.basics import Button, Surface, column, label, line, set_property

WIDE = 188
SLIM = 60


class Navigation(Surface):
    """Says which page is wanted; pages are numbered in the order they are added."""

    wanted = Signal(int)

    def __init__(self, program: str, foot: str) -> None:
        super().__init__("rail")
        self._slim = False
        self._program = label(program, "lead")
        self._mark = QLabel()
        self._mark.setFixedSize(26, 26)
        self._foot = label(foot, "caption", wrap=True)
        self._buttons: list[Button] = []
        self._titles: list[str] = []
        self._groups: list[QLabel] = []
        self._choice = QButtonGroup(self)
        self._choice.setExclusive(True)
        self._choice.idClicked.connect(self.wanted)
        self._pages = column(spacing=theme.XS - 1)
        layout = column(spacing=theme.S, margins=(theme.M, theme.M + 2, theme.M, theme.M))
        layout.addLayout(line(self._mark, self._program, None))
        layout.addSpacing(theme.S)
        layout.addLayout(self._pages)
        layout.addStretch(1)
        layout.addWidget(self._foot)
        self.setLayout(layout)
        self.setFixedWidth(WIDE)
        theme.current().changed.connect(self._redraw)
        self._redraw()

    def add_group(self, name: str) -> None:
        """Begin a group of pages."""
        head = label(name, "group")
        head.setContentsMargins(theme.S + 2, theme.S, 0, 2)
        self._groups.append(head)
        self._pages.addWidget(head)

    def add_page(self, title: str, icon: str) -> None:
        """Add a page to the group begun last."""
        number = len(self._buttons)
        button = Button(title, "nav", icon)
        button.setText(f"  {title}")
        button.setCheckable(True)
        button.setToolTip(f"{title} (Ctrl+{number + 1})")
        self._choice.addButton(button, number)
        self._buttons.append(button)
        self._titles.append(title)
        self._pages.addWidget(button)

    def button(self, number: int) -> Button:
        """The button of a page."""
        return self._buttons[number]

    def mark(self, number: int) -> None:
        """Show which page is open."""
        self._buttons[number].setChecked(True)
        self._redraw()

    def set_slim(self, slim: bool) -> None:
        """Icons alone, or icons with words."""
        if slim == self._slim:
            return
        self._slim = slim
        self.setFixedWidth(SLIM if slim else WIDE)
        for part in (self._program, self._foot, *self._groups):
            part.setVisible(not slim)
        for button, title in zip(self._buttons, self._titles, strict=True):
            button.setText("" if slim else f"  {title}")
            set_property(button, "slim", slim)

    @Slot()
    def _redraw(self) -> None:
        look = theme.current()
        self._mark.setPixmap(look.icon("mark", "accent", 26).pixmap(QSize(26, 26), self.devicePixelRatioF()))
        for button in self._buttons:
            button.set_icon(button.icon_name, "on_accent_soft" if button.isChecked() else "muted")

    def sizeHint(self) -> QSize:
        """As wide as set, as high as the window."""
        return QSize(SLIM if self._slim else WIDE, 400)

"""The navigation on the left: pages in named groups; narrow windows show icons alone."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QSize, Qt, Signal, Slot
from PySide6.QtWidgets import QButtonGroup, QFrame, QLabel, QScrollArea, QWidget

from ui.kit import theme
from ui.kit.basics import Button, Surface, column, label, line, set_property
from ui.kit.shortcuts import NUMBERED

WIDE = 188
SLIM = 60


class Navigation(Surface):
    """Says which page is wanted; pages go by their key."""

    wanted = Signal(str)

    def __init__(self, program: str, foot: str) -> None:
        super().__init__("rail")
        self._slim = False
        self._program = label(program, "lead")
        self._mark = QLabel()
        self._mark.setFixedSize(26, 26)
        self._foot = label(foot, "caption", wrap=True)
        self._buttons: dict[str, Button] = {}
        self._titles: dict[str, str] = {}
        self._groups: list[QLabel] = []
        self._choice = QButtonGroup(self)
        self._choice.setExclusive(True)
        self._pages = column(spacing=1)
        self._pages.addStretch(1)
        pages = QWidget()
        pages.setObjectName("scrollBody")
        pages.setLayout(self._pages)
        # In a low window the pages scroll, the rest stays.
        self._scroll = QScrollArea()
        self._scroll.setWidgetResizable(True)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._scroll.setWidget(pages)
        layout = column(spacing=theme.S, margins=(theme.M, theme.M + 2, theme.M, theme.M))
        layout.addLayout(line(self._mark, self._program, None))
        layout.addSpacing(theme.S)
        layout.addWidget(self._scroll, 1)
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
        self._pages.insertWidget(self._pages.count() - 1, head)

    def add_page(self, key: str, title: str, icon: str) -> None:
        """Add a page to the group begun last. The first ones have a shortcut."""
        number = len(self._buttons) + 1
        button = Button(title, "nav", icon)
        button.setText(f"  {title}")
        button.setCheckable(True)
        button.setToolTip(f"{title} (Ctrl+{number})" if number <= NUMBERED else title)
        button.clicked.connect(partial(self._clicked, key))
        self._choice.addButton(button)
        self._buttons[key] = button
        self._titles[key] = title
        self._pages.insertWidget(self._pages.count() - 1, button)

    def _clicked(self, key: str, _checked: bool = False) -> None:
        self.wanted.emit(key)

    def button(self, key: str) -> Button:
        """The button of a page."""
        return self._buttons[key]

    def mark(self, key: str) -> None:
        """Show which page is open."""
        self._buttons[key].setChecked(True)
        self._scroll.ensureWidgetVisible(self._buttons[key], 0, theme.S)
        self._redraw()

    def follow(self, key: str) -> None:
        """Where the keyboard is on a page's button, move it to the button of the page that was opened."""
        if any(button.hasFocus() for button in self._buttons.values()):
            self._buttons[key].setFocus(Qt.FocusReason.OtherFocusReason)

    def set_slim(self, slim: bool) -> None:
        """Icons alone, or icons with words."""
        if slim == self._slim:
            return
        self._slim = slim
        self.setFixedWidth(SLIM if slim else WIDE)
        for part in (self._program, self._foot, *self._groups):
            part.setVisible(not slim)
        for key, button in self._buttons.items():
            button.setText("" if slim else f"  {self._titles[key]}")
            set_property(button, "slim", slim)

    @Slot()
    def _redraw(self) -> None:
        look = theme.current()
        self._mark.setPixmap(look.icon("mark", "accent", 26).pixmap(QSize(26, 26), self.devicePixelRatioF()))
        for button in self._buttons.values():
            button.set_icon(button.icon_name, "on_accent_soft" if button.isChecked() else "muted")

    def sizeHint(self) -> QSize:
        """As wide as set, as high as the window."""
        return QSize(SLIM if self._slim else WIDE, 400)

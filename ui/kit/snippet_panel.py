"""Ready-made snippets: one tab for each program, what to know, the text, and a copy button."""

from __future__ import annotations

from itertools import pairwise

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QButtonGroup, QFrame, QPushButton, QWidget

from ui.kit import theme
from ui.kit.basics import CopyButton, column, label, line
from ui.kit.markdown_view import CodeText
from ui.kit.snippets import Snippet


class Snippets(QWidget):
    """Shows what :func:`ui.kit.snippets.snippets` makes."""

    def __init__(self, *, spacing: int = theme.M) -> None:
        super().__init__()
        self.hint = label("", "small", wrap=True)
        self.code = CodeText()
        self.copy = CopyButton(self.code.toPlainText, "Copy the snippet")
        self.tabs = QButtonGroup(self)
        self.tabs.setExclusive(True)
        self._tab_line = line(spacing=theme.M)
        self._snippets: list[Snippet] = []
        box = QFrame()
        box.setObjectName("inset")
        inside = line(spacing=theme.XS)
        inside.setContentsMargins(theme.M, theme.S, theme.XS, theme.XS)
        inside.addWidget(self.code, 1)
        inside.addWidget(self.copy, 0, Qt.AlignmentFlag.AlignTop)
        box.setLayout(inside)
        body = column(spacing=spacing)
        body.addLayout(self._tab_line)
        body.addWidget(self.hint)
        body.addWidget(box)
        body.addStretch(1)
        self.setLayout(body)

    def fill(self, made: list[Snippet]) -> None:
        """Show other texts; the tab that is open stays open. Their titles are the same each time."""
        self._snippets = made
        if not self.tabs.buttons():
            for place, snippet in enumerate(made):
                tab = QPushButton(snippet.title)
                tab.setProperty("look", "tab")
                tab.setCheckable(True)
                tab.setChecked(place == 0)
                tab.setCursor(Qt.CursorShape.PointingHandCursor)
                self.tabs.addButton(tab, place)
                self._tab_line.addWidget(tab)
            self._tab_line.addStretch(1)
            # The tabs were made last and stand first.
            for former, after in pairwise([*self.tabs.buttons(), self.code, self.copy]):
                QWidget.setTabOrder(former, after)
            self.tabs.idClicked.connect(self._show)
        self._show(self.tabs.checkedId())

    def _show(self, place: int) -> None:
        snippet = self._snippets[max(0, place)]
        self.hint.setText(snippet.hint)
        self.code.set_code(snippet.text)

"""The keys of the window, as a list in a dialog."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QGridLayout, QWidget

from ui.kit import theme
from ui.kit.basics import Button, Surface, column, label, line
from ui.kit.scroll_page import page_scroll
from ui.kit.shortcuts import key_groups

SIZE = (620, 560)
KEYS_WIDTH = 190


class ShortcutsDialog(QDialog):
    """Opens over ``parent``; Esc closes it."""

    def __init__(self, pages: Sequence[str], parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Keyboard shortcuts")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(*SIZE)
        inside = column(spacing=theme.M, margins=(theme.L, theme.L, theme.L, theme.L))
        for head, rows in key_groups(pages):
            inside.addWidget(label(head, "lead"))
            grid = QGridLayout()
            grid.setHorizontalSpacing(theme.M)
            grid.setVerticalSpacing(theme.XS + 2)
            grid.setColumnStretch(1, 1)
            grid.setColumnMinimumWidth(0, KEYS_WIDTH)
            for row, (keys, words) in enumerate(rows):
                grid.addWidget(label(keys, "mono", selectable=True), row, 0, Qt.AlignmentFlag.AlignTop)
                grid.addWidget(label(words, "body", wrap=True), row, 1)
            inside.addLayout(grid)
        inside.addStretch(1)
        body = Surface("pageBody")
        body.setLayout(inside)
        area = page_scroll(body)
        # The arrows scroll it.
        area.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        area.setAccessibleName("Keyboard shortcuts")
        around = column(spacing=0, margins=(0, 0, 0, theme.M))
        around.addWidget(area, 1)
        foot = line(None, Button("Close", on_click=self.close))
        foot.setContentsMargins(theme.L, theme.S, theme.L, 0)
        around.addLayout(foot)
        self.setLayout(around)

"""Ways from a document to the pages that use it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from ui.kit import theme
from ui.kit.basics import Button
from ui.kit.flow import Flow


class UseButtons(Flow):
    """The buttons in ``first`` and two more; they break the line where there is no room."""

    compare_wanted = Signal()
    sweep_wanted = Signal()

    def __init__(self, *first: QWidget) -> None:
        super().__init__(theme.S)
        self.compare_button = Button("Compare", "plain", "columns", self.compare_wanted.emit)
        self.compare_button.setToolTip("Plain and steered answers side by side, in Chat")
        self.sweep_button = Button("Sweep", "plain", "sweep", self.sweep_wanted.emit)
        self.sweep_button.setToolTip("Try several values of λ and measure the answers")
        for button in (*first, self.compare_button, self.sweep_button):
            self.add(button)

    def offer(self, usable: bool) -> None:
        """Lead to the other pages only where what is chosen can steer."""
        self.compare_button.setVisible(usable)
        self.sweep_button.setVisible(usable)

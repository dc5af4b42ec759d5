"""A page of cards under a title: scrolls where it is longer than the window, never wider than it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtWidgets import QFrame, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from ui import theme
from ui.widgets.basics import Surface, column, label, line

CONTENT_WIDTH = 1240


class FittedScroll(QScrollArea):
    """As high as what is in it where there is room, else it scrolls; what stands under it stands right under it."""

    def __init__(self, inside: QWidget) -> None:
        super().__init__()
        self._inside = inside
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.setWidget(inside)

    def sizeHint(self) -> QSize:
        """The height of what is in it at the width there is; Qt's own hint ends at 24 lines."""
        inside = self._inside
        wanted = inside.sizeHint()
        high = inside.heightForWidth(self.viewport().width()) if inside.hasHeightForWidth() else wanted.height()
        return QSize(wanted.width(), high)

    def minimumSizeHint(self) -> QSize:
        """It scrolls: a few lines are enough."""
        return QSize(0, 120)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Hear when what is in it wants another height."""
        if watched is self._inside and event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return super().eventFilter(watched, event)


class ScrollPage(QScrollArea):
    """Holds its cards in ``inside``. ``actions`` stand beside the title."""

    def __init__(self, title: str, words: str, *actions: QWidget) -> None:
        super().__init__()
        self.setObjectName("page")
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        texts = column(spacing=1)
        texts.addWidget(label(title, "title"))
        self.explanation = label(words, "muted", wrap=True)
        texts.addWidget(self.explanation)
        head = line()
        head.addLayout(texts, 1)
        for action in actions:
            head.addWidget(action, 0, Qt.AlignmentFlag.AlignVCenter)
        self.inside: QVBoxLayout = column(spacing=theme.L)
        self.inside.addLayout(head)
        content = QWidget()
        content.setMaximumWidth(CONTENT_WIDTH)
        content.setLayout(self.inside)
        across = line(None, spacing=0)
        across.addWidget(content, 1000)
        across.addStretch(1)
        outer = column(margins=(theme.XL, theme.L + 4, theme.XL, theme.L + 4), spacing=0)
        outer.addLayout(across)
        body = Surface("pageBody")
        body.setLayout(outer)
        self.setWidget(body)

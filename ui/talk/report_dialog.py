"""A Markdown file with its pictures, in a dialog. Works offline: only files beside it are read."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QByteArray, QRectF, Qt, QUrl
from PySide6.QtGui import QImage, QPainter, QTextDocument
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QDialog, QFrame, QScrollArea, QVBoxLayout, QWidget

from ui.kit import theme
from ui.kit.basics import Button, ElidedLabel, Surface, column, line
from ui.kit.flow_text import FlowText
from ui.talk.svg_colours import dressed

PICTURE_WIDTH = 760
SHARPNESS = 2
"""Pictures are drawn with this many pixels for one, so that they are sharp on most screens."""


class ReportText(FlowText):
    """Markdown that may show pictures of its own folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        super().__init__()
        self.setObjectName("bare")

    def loadResource(self, kind: int, name: QUrl | str) -> object:
        """A picture that lies beside the text; nothing else, from nowhere else."""
        wanted = name.toString() if isinstance(name, QUrl) else str(name)
        if int(kind) == QTextDocument.ResourceType.ImageResource.value and self._beside(wanted):
            drawn = picture(self._folder / wanted)
            if not drawn.isNull():
                return drawn
        return super().loadResource(kind, name)

    def shows_picture(self, address: str) -> bool:
        """One that lies beside the text."""
        return self._beside(address)

    def _beside(self, name: str) -> bool:
        return Path(name).name == name and (self._folder / name).is_file()


def picture(file: Path) -> QImage:
    """An SVG in the colours of the window, as wide as the text; a null image where it cannot be read."""
    try:
        drawing = file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return QImage()
    renderer = QSvgRenderer(QByteArray(dressed(drawing, theme.current().colours).encode("utf-8")))
    size = renderer.defaultSize()
    if not renderer.isValid() or size.width() <= 0:
        return QImage()
    width = PICTURE_WIDTH
    height = round(size.height() * width / size.width())
    drawn = QImage(width * SHARPNESS, height * SHARPNESS, QImage.Format.Format_ARGB32_Premultiplied)
    drawn.fill(theme.current().colour("ground"))
    painter = QPainter(drawn)
    renderer.render(painter, QRectF(0, 0, drawn.width(), drawn.height()))
    painter.end()
    drawn.setDevicePixelRatio(SHARPNESS)
    return drawn


class ReportDialog(QDialog):
    """Opens at once; the text comes when it was read."""

    def __init__(self, title: str, folder: Path, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(940, 680)
        self.text = ReportText(folder)
        self.text.setAccessibleName(title)
        body = Surface("pageBody")
        inside = column(margins=(theme.L, theme.L, theme.L, theme.L))
        inside.addWidget(self.text)
        inside.addStretch(1)
        body.setLayout(inside)
        self.area = scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setObjectName("page")
        scroll.setWidget(body)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, theme.M)
        layout.addWidget(scroll, 1)
        foot = line(ElidedLabel(str(folder), "caption"), None, Button("Close", on_click=self.close))
        foot.setContentsMargins(theme.L, 0, theme.L, 0)
        layout.addLayout(foot)

    def show_text(self, markdown: str) -> None:
        """Show the report."""
        self.text.set_markdown(markdown)

    def show_problem(self, words: str) -> None:
        """Say why there is none to show."""
        self.text.set_plain(words)

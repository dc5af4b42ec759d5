"""Read-only text as high as it needs to be: plain words, and Markdown without HTML or pictures."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt, QUrl, Slot
from PySide6.QtGui import (
    QDesktopServices,
    QImage,
    QResizeEvent,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextFragment,
    QTextFrameFormat,
    QTextOption,
    QTextTable,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QSizePolicy, QTextBrowser

from ui.kit import theme
from ui.kit.plain_text import as_letters

MARKDOWN = QTextDocument.MarkdownFeature.MarkdownDialectGitHub | QTextDocument.MarkdownFeature.MarkdownNoHTML
LINE_HEIGHT_PERCENT = 132.0
PICTURE = "\ufffc"
"""What stands in a document's text where a picture is."""
_HEADING_SIZES = {1: "title", 2: "lead", 3: "lead"}
LONGEST_ADDRESS = 120
"""Letters of a picture's address that are shown; one that holds the picture itself can have millions."""
_SAFE_SCHEMES = ("http", "https", "mailto")


class FlowText(QTextBrowser):
    """Text as high as its content at the width it is given. Plain until :meth:`set_markdown` is called.

    Args:
        role: Its size: a role of the type scale; ``caption`` is muted as well.
    """

    def __init__(self, role: str = "body") -> None:
        super().__init__()
        self._role = role
        self.setObjectName("bare")
        self.setProperty("look", role)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setOpenLinks(False)
        self.setUndoRedoEnabled(False)
        self.viewport().setAutoFillBackground(False)
        self._markdown: str | None = None
        self.setDocument(self._empty_document())
        self.anchorClicked.connect(self._open)
        theme.current().changed.connect(self._redress)

    def set_plain(self, text: str) -> None:
        """Show ``text`` as it stands."""
        self._markdown = None
        self.setPlainText(text)
        self._finish()

    def set_markdown(self, text: str) -> None:
        """Show GitHub-flavoured Markdown; HTML and pictures in it are shown as text."""
        self._markdown = text
        # Read apart from the widget: once a picture is in a document that is laid out, Qt looks for its file, whatever
        # loadResource says, and again when a selection is copied.
        document = self._empty_document()
        document.setMarkdown(text, MARKDOWN)
        self._disarm(document)
        former = self.document()
        self.setDocument(document)
        former.deleteLater()
        self._finish()

    def fit(self) -> None:
        """Take the height the text asks for; for who writes into the document."""
        self._fit()

    def ideal_width(self, limit: int) -> int:
        """The width the text would like, in device-independent pixels, at most ``limit``."""
        self.document().setTextWidth(limit)
        return min(limit, round(self.document().idealWidth()) + 2)

    def loadResource(self, kind: int, name: QUrl | str) -> object:
        """An empty picture, whatever is asked for: for a null answer Qt opens a file of that name by itself."""
        empty = QImage(1, 1, QImage.Format.Format_ARGB32_Premultiplied)
        empty.fill(Qt.GlobalColor.transparent)
        return empty

    def shows_picture(self, address: str) -> bool:
        """Whether a picture in Markdown is shown as one; else its Markdown is."""
        return False

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Take the height the new width asks for."""
        super().resizeEvent(event)
        self._fit()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Leave scrolling to the list around."""
        event.ignore()

    def changeEvent(self, event: QEvent) -> None:
        """Follow a change of font."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self._fit()

    def sizeHint(self) -> QSize:
        """The height of the text; any width will do."""
        return QSize(200, self.height())

    def _empty_document(self) -> QTextDocument:
        """A document in our type that nothing shows yet, and so nothing lays out."""
        made = QTextDocument(self)
        made.setUndoRedoEnabled(False)
        made.setDocumentMargin(0)
        option = made.defaultTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        made.setDefaultTextOption(option)
        made.setDefaultFont(theme.current().font(self._role))
        return made

    def _disarm(self, document: QTextDocument) -> None:
        """Pictures become their Markdown, and the tip of a link its address, whatever title the text gives it."""
        for piece in reversed(_fragments(document)):
            letters = piece.charFormat()
            cursor = QTextCursor(document)
            cursor.setPosition(piece.position())
            cursor.setPosition(piece.position() + piece.length(), QTextCursor.MoveMode.KeepAnchor)
            if letters.isImageFormat():
                address = letters.toImageFormat().name()
                if self.shows_picture(address):
                    continue
                if len(address) > LONGEST_ADDRESS:
                    address = f"{address[:LONGEST_ADDRESS]}…"
                words = f"![{letters.property(QTextFormat.Property.ImageAltText) or ''}]({address})"
                # Two of the same picture are one piece.
                cursor.insertText(words * piece.length(), QTextCharFormat())
            elif letters.isAnchor() or letters.toolTip():
                tip = QTextCharFormat()
                tip.setToolTip(as_letters(letters.anchorHref()))
                cursor.mergeCharFormat(tip)

    def _finish(self) -> None:
        cursor = QTextCursor(self.document())
        cursor.select(QTextCursor.SelectionType.Document)
        spaced = QTextBlockFormat()
        spaced.setLineHeight(LINE_HEIGHT_PERCENT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        cursor.mergeBlockFormat(spaced)
        if self._markdown is not None:
            self._dress_blocks()
        self._fit()

    def _dress_blocks(self) -> None:
        """Calm headings, readable code, paragraphs apart from each other, tables with air."""
        look = theme.current()
        block = self.document().begin()
        while block.isValid():
            form = block.blockFormat()
            letters = QTextCharFormat()
            spaced = QTextBlockFormat()
            if level := form.headingLevel():
                letters.setProperty(QTextFormat.Property.FontSizeAdjustment, 0)
                letters.setProperty(QTextFormat.Property.FontPixelSize, look.pixels(_HEADING_SIZES.get(level, "body")))
                spaced.setTopMargin(0 if block.position() == 0 else theme.M)
                spaced.setBottomMargin(theme.XS)
            elif form.hasProperty(QTextFormat.Property.BlockCodeFence):
                letters.setFontFamilies(look.mono().families())
                letters.setBackground(look.colour("code"))
            elif form.hasProperty(QTextFormat.Property.BlockQuoteLevel):
                letters.setForeground(look.colour("muted"))
                spaced.setLeftMargin(theme.L * form.intProperty(QTextFormat.Property.BlockQuoteLevel))
                spaced.setRightMargin(0)
            elif block.textList() is not None:
                spaced.setTopMargin(2)
                spaced.setBottomMargin(2)
            elif block.position() == 0:
                spaced.setTopMargin(0)
            if PICTURE in block.text():
                # The line is as high as the picture; air in proportion to that would be a void.
                spaced.setLineHeight(100.0, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
            cursor = self._select(block.position(), block.length() - 1)
            cursor.mergeBlockFormat(spaced)
            cursor.mergeCharFormat(letters)
            self._dress_inline_code(block)
            block = block.next()
        for frame in self.document().rootFrame().childFrames():
            if isinstance(frame, QTextTable):
                table = frame.format().toTableFormat()
                table.setBorder(1)
                table.setBorderCollapse(True)
                table.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
                table.setTopMargin(theme.S)
                table.setBottomMargin(theme.S)
                table.setBorderBrush(look.colour("line_strong"))
                table.setCellPadding(theme.XS + 2)
                table.setCellSpacing(0)
                frame.setFormat(table)

    def _select(self, position: int, length: int) -> QTextCursor:
        cursor = QTextCursor(self.document())
        cursor.setPosition(position)
        cursor.setPosition(position + max(0, length), QTextCursor.MoveMode.KeepAnchor)
        return cursor

    def _dress_inline_code(self, block: QTextBlock) -> None:
        look = theme.current()
        spans: list[tuple[int, int]] = []
        walker = block.begin()
        while not walker.atEnd():
            piece = walker.fragment()
            if piece.charFormat().fontFixedPitch():
                spans.append((piece.position(), piece.length()))
            walker += 1
        for position, length in spans:
            letters = QTextCharFormat()
            letters.setFontFamilies(look.mono().families())
            letters.setBackground(look.colour("raised"))
            self._select(position, length).mergeCharFormat(letters)

    def _fit(self) -> None:
        width = self.viewport().width()
        if width <= 0:
            return
        self.document().setTextWidth(width)
        height = max(1, round(self.document().size().height() + 0.5))
        if height != self.height():
            self.setFixedHeight(height)

    @Slot()
    def _redress(self) -> None:
        self.document().setDefaultFont(theme.current().font(self._role))
        if self._markdown is not None:
            self.set_markdown(self._markdown)

    @Slot(QUrl)
    def _open(self, url: QUrl) -> None:
        if url.scheme() in _SAFE_SCHEMES and url.isValid() and (url.host() or url.scheme() == "mailto"):
            QDesktopServices.openUrl(url)


def _fragments(document: QTextDocument) -> list[QTextFragment]:
    """The pieces of one format each, in order."""
    found: list[QTextFragment] = []
    block = document.begin()
    while block.isValid():
        walker = block.begin()
        while not walker.atEnd():
            found.append(walker.fragment())
            walker += 1
        block = block.next()
    return found

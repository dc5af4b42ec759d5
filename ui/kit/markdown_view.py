"""A Markdown answer as it is being written: prose flows, fenced code stands in its own boxes with a copy button."""

from __future__ import annotations

import re
from dataclasses import dataclass

from PySide6.QtCore import QSize, Qt, Slot
from PySide6.QtGui import QFontMetricsF, QWheelEvent
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QSizePolicy, QVBoxLayout, QWidget

from ui.kit import theme
from ui.kit.basics import CopyButton, column, label, line
from ui.kit.flow_text import FlowText

STRETCH = 1200
"""Characters after which prose is cut at the next paragraph that stands on its own."""

_JOINED = re.compile(r"\s|[-+*] |\d+[.)]|[|>]")
"""Beginnings of a line that may belong to what stands above a blank line: indentation, lists, tables, quotes."""
_OPEN = re.compile(r"^ {0,3}(?P<marks>`{3,}|~{3,})(?P<info>.*)$")


@dataclass(frozen=True)
class Segment:
    """A stretch of a Markdown text. ``language`` is None for prose, else the fence's first word (may be empty)."""

    text: str
    language: str | None = None

    @property
    def is_code(self) -> bool:
        """Whether this is the inside of a fence."""
        return self.language is not None


def _stretches(prose: str) -> list[str]:
    """``prose`` cut after :data:`STRETCH` characters wherever a blank line is followed by a paragraph or a heading."""
    done: list[str] = []
    held: list[str] = []
    length = 0
    for text_line in prose.split("\n"):
        if length >= STRETCH and not held[-1].strip() and text_line.strip() and not _JOINED.match(text_line):
            done.append("\n".join(held).strip("\n"))
            held, length = [], 0
        held.append(text_line)
        length += len(text_line) + 1
    return [*done, "\n".join(held).strip("\n")]


def split_fences(markdown: str) -> list[Segment]:
    """The text as alternating prose and code, in order; stretches of prose that are only blank are left out. Long prose
    is split too, so that a text being written is drawn anew only at its end.

    Fences follow CommonMark §4.5: at most three spaces of indentation, at least three backticks or tildes, closed by a
    run of the same character at least as long. Fences inside lists or quotes stay part of the prose. An unclosed fence
    runs to the end, which is what a text that is still being written looks like.
    """
    segments: list[Segment] = []
    held: list[str] = []
    marks = ""
    language: str | None = None

    def close() -> None:
        text = "\n".join(held)
        held.clear()
        if language is not None:
            segments.append(Segment(text, language))
        elif text.strip():
            segments.extend(Segment(stretch) for stretch in _stretches(text.strip("\n")))

    for text_line in markdown.split("\n"):
        opened = _OPEN.match(text_line)
        if language is None:
            if opened and not (opened["marks"][0] == "`" and "`" in opened["info"]):
                close()
                marks = opened["marks"]
                words = opened["info"].split()
                language = words[0] if words else ""
            else:
                held.append(text_line)
        elif opened and opened["marks"].startswith(marks) and not opened["info"].strip():
            close()
            language = None
        else:
            held.append(text_line)
    close()
    return segments


SCROLL_BAR = 10
"""Height of the scroll bar in the style sheet; room is kept for it whether it shows or not."""


class CodeText(QPlainTextEdit):
    """Fixed-width read-only text as high as its lines; long lines scroll sideways."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("code")
        self.setAccessibleName("Code")
        self.setReadOnly(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.document().setDocumentMargin(0)
        theme.current().changed.connect(self._redress)
        self._redress()

    def set_code(self, text: str) -> None:
        """Show ``text``, growing at the end where it only got longer."""
        shown = self.toPlainText()
        if text == shown:
            return
        if shown and text.startswith(shown):
            cursor = self.textCursor()
            cursor.movePosition(cursor.MoveOperation.End)
            cursor.insertText(text[len(shown) :])
        else:
            self.setPlainText(text)
        self._fit()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll sideways only; up and down belongs to the list around."""
        if event.angleDelta().x() or event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            super().wheelEvent(event)
        else:
            event.ignore()

    def sizeHint(self) -> QSize:
        """The height of the lines; any width will do."""
        return QSize(200, self.height())

    def _fit(self) -> None:
        rows = max(1, self.document().blockCount())
        self.setFixedHeight(round(rows * QFontMetricsF(self.font()).lineSpacing()) + SCROLL_BAR + 4)

    @Slot()
    def _redress(self) -> None:
        self.setFont(theme.current().mono())
        self._fit()


class CodeBlock(QFrame):
    """A fenced code block: its language, a copy button, the code."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("inset")
        self._language = label("", "caption")
        self.code = CodeText()
        self.copy = CopyButton(self.code.toPlainText, "Copy code")
        layout = column(spacing=theme.XS, margins=(theme.M, theme.XS, theme.XS, theme.XS))
        layout.addLayout(line(self._language, None, self.copy))
        layout.addWidget(self.code)
        self.setLayout(layout)

    def show_code(self, language: str, text: str) -> None:
        """Show ``text``; an unnamed language reads "code"."""
        self._language.setText(language or "code")
        self.code.set_code(text)


class MarkdownView(QWidget):
    """Shows a Markdown text; :meth:`set_text` with a longer text redraws only the part that changed."""

    def __init__(self) -> None:
        super().__init__()
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(theme.S)
        self._segments: list[Segment] = []
        self._parts: list[FlowText | CodeBlock] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)

    def set_text(self, markdown: str) -> None:
        """Show ``markdown``."""
        segments = split_fences(markdown)
        for index, segment in enumerate(segments):
            if index < len(self._segments) and self._segments[index] == segment:
                continue
            self._show(index, segment)
        while len(self._parts) > len(segments):
            self._drop(self._parts.pop())
        self._segments = segments

    def code_blocks(self) -> list[CodeBlock]:
        """The boxes of fenced code, in order."""
        return [part for part in self._parts if isinstance(part, CodeBlock)]

    def _show(self, index: int, segment: Segment) -> None:
        kind = CodeBlock if segment.is_code else FlowText
        if index < len(self._parts) and not isinstance(self._parts[index], kind):
            self._drop(self._parts[index])
            self._parts[index] = kind()
            self._layout.insertWidget(index, self._parts[index])
        elif index == len(self._parts):
            self._parts.append(kind())
            self._layout.addWidget(self._parts[index])
        part = self._parts[index]
        if isinstance(part, CodeBlock):
            part.show_code(segment.language or "", segment.text)
        else:
            part.set_markdown(segment.text)

    def _drop(self, part: QWidget) -> None:
        self._layout.removeWidget(part)
        part.hide()
        part.deleteLater()

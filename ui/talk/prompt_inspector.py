"""A dialog that shows exactly what a model is given (the rendered prompt, each of its tokens), what was added while it
answered, and what a client of the API would have been told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtWidgets import (
    QAbstractItemView,
    QButtonGroup,
    QDialog,
    QFrame,
    QHeaderView,
    QPlainTextEdit,
    QPushButton,
    QSplitter,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from engine.public.generation import PreparedRequest
from ui.kit import theme
from ui.kit.basics import Button, CopyButton, Notice, column, label, line
from ui.kit.chat_options import sampling_words
from ui.kit.steering_text import path_of, since
from ui.kit.text import count, counted, describe_error
from ui.kit.views import RowTable

_Index = QModelIndex | QPersistentModelIndex
_VISIBLE = str.maketrans({"\n": "↵", "\t": "⇥", " ": "·", "\r": "␍"})


@dataclass(frozen=True)
class PromptView:
    """What the dialog shows. ``tokens`` are (id, text) in order; ``window`` and ``room`` count tokens."""

    model: str
    text: str
    tokens: tuple[tuple[int, str], ...]
    window: int
    room: int
    notes: tuple[str, ...]


def view_of(prepared: PreparedRequest) -> PromptView:
    """The first prompt of a prepared request, token by token. Takes milliseconds; for a background thread."""
    prompt = prepared.prompts[0]
    tokenizer = prepared.loaded.backend.tokenizer
    return PromptView(
        model=prepared.model_name,
        text=prompt.text,
        tokens=tuple((token, tokenizer.token_text(token)) for token in prompt.token_ids),
        window=prepared.loaded.info.context_length,
        room=prepared.max_tokens,
        notes=prepared.notes,
    )


def added_text(report: Mapping[str, Any]) -> str:
    """A steering report as lines: its text, then each item with its strengths; of a path, step by step."""
    lines = [str(report.get("text", "")), ""]
    path = path_of(report)
    if len(path) < 2:
        lines += _item_lines(report.get("items", []))
    for step in path if len(path) > 1 else ():
        lines.append(f"{since(step, first=step is path[0])}: {step.get('text', '')}")
        lines += [*(f"    {each}" for each in _item_lines(step["items"])), ""]
    return "\n".join(lines).rstrip()


def _item_lines(items: Iterable[Mapping[str, Any]]) -> list[str]:
    lines = []
    for item in items:
        facts = ", ".join(f"{key} {value}" for key, value in item.items() if key not in ("kind", "strengths", "hash"))
        lines.append(f"{item.get('kind')}: {facts}" if facts else str(item.get("kind")))
        lines += [f"    #{index}  {value:+g}" for index, value in item.get("strengths", {}).items()]
    return lines


class TokenTable(QAbstractTableModel):
    """Position, id and text of each token; white space is made visible."""

    HEADS = ("#", "Id", "Text")

    def __init__(self, tokens: tuple[tuple[int, str], ...]) -> None:
        super().__init__()
        self._tokens = tokens

    def rowCount(self, parent: _Index | None = None) -> int:
        """One row a token."""
        return 0 if parent is not None and parent.isValid() else len(self._tokens)

    def columnCount(self, parent: _Index | None = None) -> int:
        """Position, id, text."""
        return 0 if parent is not None and parent.isValid() else len(self.HEADS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """The heads of the columns."""
        if role == Qt.ItemDataRole.DisplayRole and orientation == Qt.Orientation.Horizontal:
            return self.HEADS[section]
        if role == Qt.ItemDataRole.TextAlignmentRole and orientation == Qt.Orientation.Horizontal:
            return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        return None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """One cell."""
        token, text = self._tokens[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return (index.row(), token, text.translate(_VISIBLE))[index.column()]
        if role == Qt.ItemDataRole.FontRole and index.column() == 2:
            return theme.current().mono("small")
        if role == Qt.ItemDataRole.ForegroundRole and index.column() < 2:
            return theme.current().colour("muted")
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        return None


class PromptInspector(QDialog):
    """Opens at once and is filled when the prompt is rendered."""

    def __init__(self, heading: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Exact prompt")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(900, 600)
        self._view: PromptView | None = None
        self.summary = label("Rendering…", "muted", wrap=True)
        self.sampled = label("", "muted", wrap=True, selectable=True)
        self.sampled.hide()
        self.notice = Notice(closable=False)
        self.text = QPlainTextEdit()
        self.text.setObjectName("code")
        self.text.setReadOnly(True)
        self.text.setFrameShape(QFrame.Shape.NoFrame)
        self.text.setFont(theme.current().mono())
        self.text.setAccessibleName("Rendered prompt")
        self.tokens = RowTable()
        self.tokens.setFrameShape(QFrame.Shape.NoFrame)
        self.tokens.setShowGrid(False)
        self.tokens.setAccessibleName("Tokens")
        self.tokens.verticalHeader().hide()
        self.tokens.verticalHeader().setDefaultSectionSize(theme.current().pixels("body") + 12)
        self.tokens.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self._splitter = QSplitter(Qt.Orientation.Horizontal)
        self._splitter.setHandleWidth(theme.M)
        self._splitter.setChildrenCollapsible(False)
        self._splitter.addWidget(self._boxed("Text", self.text, CopyButton(self.text.toPlainText, "Copy the prompt")))
        self._splitter.addWidget(self._boxed("Tokens", self.tokens, CopyButton(self._ids, "Copy the token ids")))
        self._splitter.setStretchFactor(0, 3)
        self._splitter.setStretchFactor(1, 2)
        self.told = QPlainTextEdit()
        self.told.setObjectName("code")
        self.told.setReadOnly(True)
        self.told.setFrameShape(QFrame.Shape.NoFrame)
        self.told.setFont(theme.current().mono())
        self.told.setAccessibleName("Response headers")
        self.added = QPlainTextEdit()
        self.added.setObjectName("code")
        self.added.setReadOnly(True)
        self.added.setFrameShape(QFrame.Shape.NoFrame)
        self.added.setFont(theme.current().mono())
        self.added.setAccessibleName("Steering report")
        self._answer = QWidget()
        answer = column(spacing=theme.M)
        answer.addWidget(
            self._boxed("Steering report: what was added", self.added, CopyButton(self.added.toPlainText, "Copy")), 1
        )
        answer.addWidget(
            self._boxed("Headers a client of the API gets", self.told, CopyButton(self.told.toPlainText, "Copy")), 1
        )
        self._answer.setLayout(answer)
        self._stack = QStackedWidget()
        self._stack.addWidget(self._splitter)
        self._stack.addWidget(self._answer)
        self.tabs = QButtonGroup(self)
        self.tabs.setExclusive(True)
        self._tab_row = QWidget()
        heads = line(spacing=theme.L)
        for place, words in enumerate(("Prompt", "Steering and headers")):
            tab = QPushButton(words)
            tab.setProperty("look", "tab")
            tab.setCheckable(True)
            tab.setChecked(place == 0)
            self.tabs.addButton(tab, place)
            heads.addWidget(tab)
        heads.addStretch(1)
        self._tab_row.setLayout(heads)
        self._tab_row.hide()
        self.tabs.idClicked.connect(self._stack.setCurrentIndex)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(theme.L, theme.L, theme.L, theme.L)
        layout.setSpacing(theme.M)
        layout.addWidget(label(heading, "title", wrap=True))
        layout.addWidget(self.summary)
        layout.addWidget(self.sampled)
        layout.addWidget(self.notice)
        layout.addWidget(self._tab_row)
        layout.addWidget(self._stack, 1)
        layout.addLayout(line(None, Button("Close", on_click=self.close)))
        self.text.setFocus()

    def show_prompt(self, view: PromptView) -> None:
        """Fill the dialog."""
        self._view = view
        self.notice.hide()
        self.summary.setText(
            f"{counted(len(view.tokens), 'token')} for {view.model}, whose window holds {count(view.window)}; "
            f"the answer may take {count(view.room)}."
        )
        self.text.setPlainText(view.text)
        table = TokenTable(view.tokens)
        table.setParent(self.tokens)
        self.tokens.setModel(table)
        head = self.tokens.horizontalHeader()
        head.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        head.setStretchLastSection(True)
        head.setHighlightSections(False)
        if view.notes:
            self.notice.show_words("\n".join(view.notes), "info")

    def show_answer(self, details: Mapping[str, object]) -> None:
        """What is known of the answer: how it was sampled, its steering report and its headers."""
        sampled = sampling_words(details)
        self.sampled.setText(f"Sampled with {sampled}." if sampled else "")
        self.sampled.setVisible(bool(sampled))
        report, headers = details.get("steering"), details.get("headers")
        if not isinstance(report, dict):
            return
        self.added.setPlainText(added_text(report))
        if isinstance(headers, dict) and headers:
            self.told.setPlainText("\n".join(f"{name}: {value}" for name, value in headers.items()))
        else:
            self.told.setPlainText("Not known: this answer was written by an earlier version.")
        self._tab_row.show()

    def show_nothing(self) -> None:
        """There is neither a draft nor a conversation."""
        self.summary.setText("There is nothing to send yet. Write a message first.")

    def show_error(self, error: Exception) -> None:
        """Say why there is no prompt to show."""
        self.summary.setText("The prompt could not be rendered.")
        self.notice.show_words(describe_error(error))

    def _ids(self) -> str:
        return ", ".join(str(token) for token, _text in self._view.tokens) if self._view else ""

    def _boxed(self, head: str, content: QWidget, copy: CopyButton) -> QFrame:
        box = QFrame()
        box.setObjectName("inset")
        layout = column(spacing=theme.XS, margins=(theme.M, theme.XS, theme.XS, theme.S))
        layout.addLayout(line(label(head, "group"), None, copy))
        layout.addWidget(content, 1)
        box.setLayout(layout)
        return box

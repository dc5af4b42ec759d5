"""A dialog that shows exactly what a model is given: the rendered prompt, and each of its tokens."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QFrame,
    QHeaderView,
    QPlainTextEdit,
    QSplitter,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from engine.generation.service import PreparedRequest
from ui import theme
from ui.widgets.basics import Button, CopyButton, Notice, column, label, line
from ui.words import count, describe_error

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
        self.notice = Notice(closable=False)
        self.text = QPlainTextEdit()
        self.text.setObjectName("code")
        self.text.setReadOnly(True)
        self.text.setFrameShape(QFrame.Shape.NoFrame)
        self.text.setFont(theme.current().mono())
        self.text.setAccessibleName("Rendered prompt")
        self.tokens = QTableView()
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
        layout = QVBoxLayout(self)
        layout.setContentsMargins(theme.L, theme.L, theme.L, theme.L)
        layout.setSpacing(theme.M)
        layout.addWidget(label(heading, "title", wrap=True))
        layout.addWidget(self.summary)
        layout.addWidget(self.notice)
        layout.addWidget(self._splitter, 1)
        layout.addLayout(line(None, Button("Close", on_click=self.close)))
        self.text.setFocus()

    def show_prompt(self, view: PromptView) -> None:
        """Fill the dialog."""
        self._view = view
        self.notice.hide()
        self.summary.setText(
            f"{count(len(view.tokens))} tokens for {view.model}, whose window holds {count(view.window)}; "
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

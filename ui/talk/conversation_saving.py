"""Asks where a conversation is to be exported to, and writes it there in the background."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtWidgets import QFileDialog, QWidget

from engine.files import write_text
from ui.context.page_context import PageContext
from ui.context.record_keeping import versions_now
from ui.kit.basics import Notice
from ui.kit.chat_state import ConversationMessage
from ui.kit.text import describe_error
from ui.talk.conversation_export import as_json, as_markdown

FILTERS = {"md": "Markdown (*.md)", "json": "JSON (*.json)"}


class ConversationExport:
    """One dialog at a time, over ``page``; ``notice`` says how it went."""

    def __init__(self, frame: PageContext, notice: Notice, page: QWidget) -> None:
        self._frame = frame
        self._notice = notice
        self._page = page
        self.dialog: QFileDialog | None = None

    def ask(self, title: str, system_prompt: str, messages: Sequence[ConversationMessage]) -> None:
        """Let the person choose a place and one of both forms for these messages, as they are now."""
        name = " ".join("".join(c if c.isalnum() or c in " -_" else " " for c in title).split())[:60]
        dialog = QFileDialog(self._page, "Export this conversation")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilters(list(FILTERS.values()))
        dialog.setDefaultSuffix("md")
        dialog.filterSelected.connect(lambda chosen: dialog.setDefaultSuffix("json" if "json" in chosen else "md"))
        dialog.selectFile(name or "conversation")
        dialog.fileSelected.connect(lambda path: self.write(path, title, system_prompt, messages))
        dialog.finished.connect(dialog.deleteLater)
        self.dialog = dialog
        dialog.open()

    def write(self, path: str, title: str, system_prompt: str, messages: Sequence[ConversationMessage]) -> None:
        """Write the messages to ``path``: as JSON where it is called so, else as Markdown."""
        own = dict(self._frame.services.versions)
        form = as_json if path.lower().endswith(".json") else as_markdown

        def task() -> None:
            write_text(Path(path), form(title, system_prompt, messages, versions_now(own)))

        self._frame.bridge.run_in_background(
            task,
            lambda _none: self._notice.show_words(f"Written to {path}.", "info"),
            lambda error: self._notice.show_words(describe_error(error)),
            owner=self._page,
        )

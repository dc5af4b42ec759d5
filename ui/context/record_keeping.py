"""Saving a comparison, a sweep or a contrast as a record, in the background."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from PySide6.QtCore import QObject, Signal

from engine.library.records import ExperimentRecord
from ui.context.page_context import RECORDS, PageContext
from ui.kit.basics import Button, Notice
from ui.kit.chat_state import ConversationMessage
from ui.kit.record_export import new_record

PACKAGES = ("torch", "transformers", "llama-cpp-python")
"""Their versions go into a record, where they are installed: another one may write other words."""


def versions_now(own: dict[str, str]) -> dict[str, str]:
    """Versions of the program and of what runs the model."""
    found = dict(own)
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


class RecordKeeper(QObject):
    """Writes records for a page."""

    kept = Signal(object)
    """The :class:`ExperimentRecord` that was saved."""

    def __init__(self, frame: PageContext, on_error: Callable[[Exception], None], parent: QObject) -> None:
        super().__init__(parent)
        self._frame = frame
        self._on_error = on_error

    def keep(self, messages: Sequence[ConversationMessage], index: int, title: str | None = None) -> None:
        """Save the comparison at ``index``."""
        frozen = [message.copied() for message in messages[: index + 1]]
        self.add(lambda versions: new_record(frozen, index, versions, title=title))

    def add(self, make: Callable[[Mapping[str, str]], ExperimentRecord]) -> None:
        """Save the record that ``make`` makes, given the versions of now."""
        engine, own = self._frame.engine, dict(self._frame.services.versions)

        def save() -> ExperimentRecord:
            return engine.experiments.add(make(versions_now(own)))

        self._frame.bridge.run_in_background(save, self.kept.emit, self._on_error, owner=self)

    def tell(self, notice: Notice, record: ExperimentRecord) -> None:
        """Say that it is kept, with the way to it."""
        look = Button("Show the records", on_click=lambda: self._frame.go(RECORDS, record=record.id))
        notice.show_words(f"Saved as a record: “{record.title}”", "info", look)

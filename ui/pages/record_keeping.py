"""Saving a comparison of the chat as a record, in the background."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version

from PySide6.QtCore import QObject, Signal

from engine.library.records import ExperimentRecord
from ui.chat_state import ChatMessage
from ui.frame import Frame
from ui.record_export import new_record

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
    """Writes records for the chat page."""

    kept = Signal(object)
    """The :class:`ExperimentRecord` that was saved."""

    def __init__(self, frame: Frame, on_error: Callable[[Exception], None], parent: QObject) -> None:
        super().__init__(parent)
        self._frame = frame
        self._on_error = on_error

    def keep(self, messages: Sequence[ChatMessage], index: int, title: str | None = None) -> None:
        """Save the comparison at ``index``."""
        engine, own = self._frame.engine, dict(self._frame.services.versions)
        frozen = [message.copied() for message in messages[: index + 1]]

        def save() -> ExperimentRecord:
            return engine.experiments.add(new_record(frozen, index, versions_now(own), title=title))

        self._frame.bridge.run_in_background(save, self.kept.emit, self._on_error, owner=self)

"""Saving a comparison, a sweep or a contrast as a record, in the background; its export is in the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from PySide6.QtCore import QObject, Signal

from engine.documents.evidence import rung_language
from engine.library.records import ExperimentRecord
from ui.context.page_context import RECORDS, PageContext
from ui.kit.basics import Button, Notice
from ui.kit.chat_state import ConversationMessage
from ui.kit.steering_text import NO_CLAIM, has_circuit
from ui.kit.text import title_of

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


FIGURES = (
    "finish_reason",
    "completion_tokens",
    "prompt_tokens",
    "seconds_total",
    "backend",
    "headers",
    "notes",
    "error",
)


def new_record(
    messages: Sequence[ConversationMessage], index: int, versions: Mapping[str, str], *, title: str | None = None
) -> ExperimentRecord:
    """The comparison at ``index`` of a conversation. Raises ValueError where there is none."""
    answer = messages[index]
    if answer.plain is None:
        raise ValueError(f"message {index} is no comparison")
    before = list(messages[:index])
    prompt = next((each.content for each in reversed(before) if each.role == "user"), "")
    details = answer.details
    rung = details.get("rung")
    report = details.get("steering")
    steers = isinstance(report, dict) and has_circuit(report)
    language = rung_language(rung) if isinstance(rung, int) else (NO_CLAIM if steers else "")
    sampling = details.get("sampling")
    return ExperimentRecord(
        title=title or title_of(prompt),
        model=str(details.get("model", "")),
        prompt=prompt,
        plain=answer.plain.content,
        steered=answer.content,
        settings={
            **(sampling if isinstance(sampling, dict) else {}),
            "noise_seed": details.get("noise_seed"),
            "system_prompt": details.get("system_prompt", ""),
            "earlier_turns": [
                {
                    "role": each.role,
                    "content": each.content,
                    **({} if each.plain is None else {"plain": each.plain.content}),
                }
                for each in before[:-1]
            ],
        },
        steering=report if isinstance(report, dict) else {},
        evidence={"rung": rung, "language": language},
        versions=dict(versions),
        plain_details=_figures(answer.plain.details),
        steered_details=_figures(details),
    )


def _figures(details: Mapping[str, Any]) -> dict[str, Any]:
    return {key: details[key] for key in FIGURES if key in details}

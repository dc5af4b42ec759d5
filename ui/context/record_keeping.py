"""Saving a comparison, a sweep or a contrast as a record, in the background; its export is in the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from PySide6.QtCore import QObject, Signal

from engine.public.documents import rung_language
from engine.public.library import ExperimentRecord
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
    not_kept = Signal(object)
    """What could not be saved, as it was given to :meth:`add`: it can be tried again."""

    def __init__(self, frame: PageContext, on_error: Callable[[Exception], None], parent: QObject) -> None:
        super().__init__(parent)
        self._frame = frame
        self._on_error = on_error

    def keep(self, messages: Sequence[ConversationMessage], index: int, title: str | None = None) -> None:
        """Save the comparison at ``index``."""
        frozen = [message.copied() for message in messages[: index + 1]]
        self.add(lambda versions: new_record(frozen, index, versions, title=title), messages[index])

    def add(self, make: Callable[[Mapping[str, str]], ExperimentRecord], of: object) -> None:
        """Save the record that ``make`` makes, given the versions of now; ``of`` is what it tells of.

        The same thing is not saved again while it is being saved.
        """
        engine, own = self._frame.engine, dict(self._frame.services.versions)

        def save() -> ExperimentRecord:
            return engine.experiments.add(make(versions_now(own)))

        def failed(error: Exception) -> None:
            self._on_error(error)
            self.not_kept.emit(of)

        # What is held cannot be mistaken for another with its id.
        self._frame.bridge.run_once(("keep record", id(of)), save, self.kept.emit, failed, owner=self)

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
                    **_turn(each),
                    **_beside(each.plain),
                }
                for each in before[:-1]
            ],
        },
        steering=report if isinstance(report, dict) else {},
        evidence={"rung": rung, "language": language},
        versions=dict(versions),
        plain_details=_figures(answer.plain),
        steered_details=_figures(answer),
    )


def _figures(side: ConversationMessage) -> dict[str, Any]:
    reasoning = {"reasoning": side.reasoning} if side.reasoning else {}
    return {**{key: side.details[key] for key in FIGURES if key in side.details}, **reasoning}


def _turn(side: ConversationMessage) -> dict[str, Any]:
    return {"content": side.content, **({"reasoning": side.reasoning} if side.reasoning else {})}


def _beside(plain: ConversationMessage | None) -> dict[str, Any]:
    """What a model wrote beside a turn that was steered."""
    if plain is None:
        return {}
    return {"plain": plain.content, **({"plain_reasoning": plain.reasoning} if plain.reasoning else {})}

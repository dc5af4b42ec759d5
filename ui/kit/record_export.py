"""A comparison of the chat as a record. Pure functions; its export is in ``engine/actions/experiments``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.documents.evidence import rung_language
from engine.library.records import ExperimentRecord
from ui.kit.chat_state import ConversationMessage
from ui.kit.steering_text import NO_CLAIM, has_circuit
from ui.kit.text import title_of

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

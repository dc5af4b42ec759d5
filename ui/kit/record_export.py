"""A comparison of the chat as a record. Pure functions; its export is in ``engine/actions/experiments``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.documents.evidence import rung_language
from engine.library.records import NewExperiment
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
) -> NewExperiment:
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
    return NewExperiment(
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

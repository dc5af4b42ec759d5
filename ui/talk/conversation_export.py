"""A conversation as Markdown and as JSON, with both sides of its comparisons and what steered each. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.public.experiments import steering_lines
from ui.kit.chat_options import sampling_words
from ui.kit.chat_state import ConversationMessage
from ui.kit.steering_text import report_words
from ui.talk.figures import figures

KIND: Final = "millm.conversation"


def as_json(
    title: str, system_prompt: str, messages: Sequence[ConversationMessage], versions: Mapping[str, str]
) -> str:
    """All that is known of every message; ``plain`` is the answer beside a steered one, ``reasoning`` what the model
    wrote before an answer.
    """
    whole = {
        "kind": KIND,
        "schema_version": "1",
        "title": title,
        "system_prompt": system_prompt,
        "versions": dict(versions),
        "messages": [_message(message) for message in messages],
    }
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def as_markdown(
    title: str, system_prompt: str, messages: Sequence[ConversationMessage], versions: Mapping[str, str]
) -> str:
    """The conversation to be read and passed on."""
    parts = [f"# {' '.join(title.split())}", ""]
    if system_prompt.strip():
        parts += ["## System prompt", "", _quoted(system_prompt), ""]
    for message in messages:
        if message.role == "user":
            parts += ["## You", "", _quoted(message.content), ""]
            continue
        model = str(message.details.get("model") or "The model")
        if message.plain is None:
            parts += [f"## {model}", "", *_answer(message)]
            continue
        parts += [f"## {model}, plain", "", *_answer(message.plain), f"## {model}, steered", "", *_answer(message)]
        seed = message.details.get("noise_seed")
        if seed is not None:
            parts += [f"*Both sides were written from the same noise (seed {seed}).*", ""]
    parts += ["---", "", *(f"- {name} {version}" for name, version in versions.items())]
    return "\n".join(parts).rstrip() + "\n"


def _message(message: ConversationMessage) -> dict[str, Any]:
    told: dict[str, Any] = {"role": message.role, **_said(message)}
    if message.plain is not None:
        told["plain"] = _said(message.plain)
    return told


def _said(side: ConversationMessage) -> dict[str, Any]:
    reasoning = {"reasoning": side.reasoning} if side.reasoning else {}
    return {"content": side.content, **reasoning, "details": dict(side.details)}


def _answer(answer: ConversationMessage) -> list[str]:
    details = answer.details
    told = [figures(details) or "still being written", report_words(details, every_step=True), sampling_words(details)]
    if details.get("error"):
        told.append(str(details["error"]))
    thought = ["### Reasoning", "", _quoted(answer.reasoning), "", "### Answer", ""] if answer.reasoning else []
    lines = [*thought, _quoted(answer.content), "", *(f"*{' '.join(each.split())}*  " for each in told if each)]
    report = details.get("steering")
    if isinstance(report, dict):
        lines += steering_lines(report, "###")
    return [*lines, ""]


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines()) or ">"

"""A saved comparison as Markdown and as JSON. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from engine.actions.experiments.words import report_words
from engine.library.records import ExperimentRecord

KIND: Final = "millm.comparison"


def as_json(record: ExperimentRecord) -> str:
    """The whole record."""
    whole = {"kind": KIND, "schema_version": "1", **vars(record), "created_at": record.created_at.isoformat()}
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def steered_words(record: ExperimentRecord) -> str:
    """What steered the steered side, in words."""
    return report_words({"steering": record.steering, "rung": record.evidence.get("rung")}) or "not steered"


def setting_rows(record: ExperimentRecord) -> list[tuple[str, str]]:
    """What was set, for a person."""
    given = record.settings
    longest = given.get("max_tokens")
    rows = [
        ("Model", record.model),
        ("Steered side", steered_words(record)),
        ("Steering report", str(record.steering.get("text", ""))),
    ]
    if record.evidence.get("language"):
        rows.append(("Evidence", str(record.evidence["language"])))
    rows += [
        ("Temperature", str(given.get("temperature", ""))),
        ("Longest answer", "automatic" if longest is None else f"{longest} tokens"),
        ("Noise seed, both sides", str(given.get("noise_seed", ""))),
    ]
    if given.get("system_prompt"):
        rows.append(("System prompt", str(given["system_prompt"])))
    if given.get("earlier_turns"):
        rows.append(("Messages before", str(len(given["earlier_turns"]))))
    rows += [(name, version) for name, version in record.versions.items()]
    rows.append(("Saved", f"{record.created_at:%Y-%m-%d %H:%M} UTC"))
    return rows


def as_markdown(record: ExperimentRecord) -> str:
    """The record to be read and passed on."""
    parts = [f"# {record.title}", "", "## Prompt", "", _quoted(record.prompt), ""]
    for head, text, details in (
        ("Plain", record.plain, record.plain_details),
        ("Steered", record.steered, record.steered_details),
    ):
        parts += [f"## {head}", "", _quoted(text), "", f"*{_ending(details)}*", ""]
    parts += ["## Settings", "", "| | |", "|---|---|"]
    parts += [f"| {name} | {_cell(value)} |" for name, value in setting_rows(record)]
    strengths = [
        f"- {item.get('sae', item.get('id', ''))}, layer {item.get('layer', '–')}: "
        + ", ".join(f"#{index} {value:g}" for index, value in item["strengths"].items())
        for item in record.steering.get("items", [])
        if item.get("strengths")
    ]
    if strengths:
        parts += ["", "## Strengths added", "", *strengths]
    earlier = record.settings.get("earlier_turns") or []
    if earlier:
        parts += ["", "## Messages before", ""]
        parts += [f"**{turn['role']}**\n\n{_quoted(str(turn['content']))}\n" for turn in earlier]
    return "\n".join(parts).rstrip() + "\n"


def _ending(details: Mapping[str, Any]) -> str:
    tokens = details.get("completion_tokens")
    return f"{tokens if tokens is not None else '?'} tokens, ended by: {details.get('finish_reason', '?')}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines()) or ">"


def _cell(value: str) -> str:
    return " ".join(value.split()).replace("|", "\\|")

"""A record as Markdown, as JSON and, of a sweep or a contrast, as CSV. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.actions.experiments.contrasts import KeptContrast, KeptDifference, contrast_of
from engine.actions.experiments.sweeps import sweep_of
from engine.actions.experiments.words import path_of, report_words, since, step_words
from engine.actions.sweeping import export as sweeping
from engine.actions.tables import csv_text
from engine.counting import so_many
from engine.documents.evidence import ONLY_PERSISTENCE
from engine.errors import InvalidParameter
from engine.library.records import ExperimentRecord, RecordKind
from engine.sampling import named_values

KIND: Final = "millm.comparison"
KINDS: Final = {kind: f"millm.{kind}" for kind in RecordKind}
"""What the JSON of a record calls itself."""
CONTRAST_HEAD = (
    "leans_to",
    "feature",
    "label",
    "score",
    "mean",
    "other_mean",
    "share",
    "other_share",
    "density",
    "strength",
)
"""Columns of a contrast as CSV; means and shares are of the set a feature leans to and of the other."""


def as_json(record: ExperimentRecord) -> str:
    """The whole record."""
    given = {**vars(record), "created_at": record.created_at.isoformat()}
    if record.kind is RecordKind.COMPARISON:
        # All of a comparison is in its other fields.
        del given["content"]
    whole = {"kind": KINDS[record.kind], "schema_version": "1", **{k: v for k, v in given.items() if k != "kind"}}
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def as_csv(record: ExperimentRecord) -> str:
    """The answers of a sweep or the features of a contrast, a row for each; see :mod:`engine.actions.tables`.

    Raises :class:`InvalidParameter` for a comparison.
    """
    if record.kind is RecordKind.CONTRAST:
        found = contrast_of(record)
        sides = (("a", found.toward_a), ("b", found.toward_b))
        return csv_text(
            CONTRAST_HEAD,
            [
                (
                    side,
                    each.index,
                    each.label,
                    each.score,
                    each.mean,
                    each.other_mean,
                    each.share,
                    each.other_share,
                    each.density,
                    each.strength,
                )
                for side, rows in sides
                for each in rows
            ],
        )
    if record.kind is not RecordKind.SWEEP:
        raise InvalidParameter(f"A {record.kind} is no table.", param="format", remedy="Export it as Markdown or JSON.")
    return sweeping.as_csv(sweep_of(record), record.versions)


def steered_words(record: ExperimentRecord, *, every_step: bool = False) -> str:
    """What steered the steered side, in words; ``every_step`` of a long path, where it was turned often."""
    details = {"steering": record.steering, "rung": record.evidence.get("rung")}
    return report_words(details, every_step=every_step) or "not steered"


def evidence_of(record: ExperimentRecord) -> str:
    """What can be claimed for the circuit that steered; empty where none did."""
    language = str(record.evidence.get("language") or "")
    circuits = [item for item in record.steering.get("items", []) if item.get("kind") == "circuit"]
    persistent = bool(circuits) and all(item.get("only_persistence") is True for item in circuits)
    known = record.evidence.get("rung") is not None
    return f"{language} · {ONLY_PERSISTENCE}" if language and known and persistent else language


def setting_rows(record: ExperimentRecord) -> list[tuple[str, str]]:
    """What was set, for a person."""
    given = record.settings
    longest = given.get("max_tokens")
    report = "Steering report" if len(path_of(record.steering)) < 2 else "Steering report, at its end"
    rows = [
        ("Model", record.model),
        ("Steered side", steered_words(record, every_step=True)),
        (report, str(record.steering.get("text", ""))),
    ]
    if record.evidence.get("language"):
        rows.append(("Evidence", evidence_of(record)))
    rows += [
        ("Temperature", str(given.get("temperature", ""))),
        *((words.capitalize(), value) for words, value in named_values(given)),
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
    if record.kind is RecordKind.SWEEP:
        return sweeping.as_markdown(sweep_of(record), record.versions)
    if record.kind is RecordKind.CONTRAST:
        return _contrast(record, contrast_of(record))
    parts = [f"# {record.title}", "", "## Prompt", "", _quoted(record.prompt), ""]
    for head, text, details in (
        ("Plain", record.plain, record.plain_details),
        ("Steered", record.steered, record.steered_details),
    ):
        parts += [f"## {head}", ""]
        if details.get("reasoning"):
            parts += ["### Reasoning", "", _quoted(str(details["reasoning"])), "", "### Answer", ""]
        parts += [_quoted(text), "", f"*{_ending(details)}*", ""]
    parts += ["## Settings", "", "| | |", "|---|---|"]
    parts += [f"| {name} | {_cell(value)} |" for name, value in setting_rows(record)]
    parts += steering_lines(record.steering, "##")
    earlier = record.settings.get("earlier_turns") or []
    if earlier:
        parts += ["", "## Messages before", ""]
        for turn in earlier:
            if turn.get("reasoning"):
                parts += [f"**{turn['role']}, reasoning**\n\n{_quoted(str(turn['reasoning']))}\n"]
            parts += [f"**{turn['role']}**\n\n{_quoted(str(turn['content']))}\n"]
    return "\n".join(parts).rstrip() + "\n"


def steering_lines(report: Mapping[str, Any], level: str) -> list[str]:
    """The strengths that were added, for Markdown under a heading of ``level``; of a path, those of each step."""
    path = path_of(report)
    if len(path) < 2:
        strengths = _strengths(report.get("items", []))
        return ["", f"{level} Strengths added", "", *strengths] if strengths else []
    lines = ["", f"{level} Steering path", ""]
    for step in path:
        lines.append(f"- {since(step, first=step is path[0])}: {step_words(step)}")
        lines += [f"  {line}" for line in _strengths(step.get("items", []))]
    if report.get("path_left_out"):
        lines.append(f"- {report['path_left_out']} steps before the last one were not kept")
    return lines


def _strengths(items: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"- {item.get('sae', item.get('id', ''))}, layer {item.get('layer', '–')}: "
        + ", ".join(f"#{index} {value:g}" for index, value in item["strengths"].items())
        for item in items
        if item.get("strengths")
    ]


def contrast_rows(record: ExperimentRecord, found: KeptContrast) -> list[tuple[str, str]]:
    """What a contrast was made with, for a person."""
    return [
        ("Model", record.model),
        ("SAE", f"{found.sae_id} @ layer {found.layer}"),
        ("Tokens", f"{found.tokens_a} in A, {found.tokens_b} in B"),
        ("Left out", f"{found.left_out} that fire at more than {found.density_cap * 100:.3g} % of tokens"),
        *record.versions.items(),
        ("Saved", f"{record.created_at:%Y-%m-%d %H:%M} UTC"),
    ]


def _contrast(record: ExperimentRecord, found: KeptContrast) -> str:
    lines = [f"# {record.title}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in contrast_rows(record, found)]
    lines += [
        "",
        "Means and shares are over tokens, read unsteered; the score is (difference of means) × (difference of",
    ]
    lines += ["shares). That a feature differs does not say that it causes anything."]
    for head, rows in (("More in A", found.toward_a), ("More in B", found.toward_b)):
        lines += ["", f"## {head}", "", "| # | label | score | mean | in the other | on | in the other | density |"]
        lines += ["|--:|---|--:|--:|--:|--:|--:|--:|", *(_difference(each) for each in rows)]
    for head, texts in (("Texts A", found.texts_a), ("Texts B", found.texts_b)):
        lines += ["", f"## {head}", "", *(f"- {' '.join(text.split())}" for text in texts)]
    return "\n".join(lines) + "\n"


def _difference(row: KeptDifference) -> str:
    shares = " | ".join(f"{each * 100:.3g} %" for each in (row.share, row.other_share, row.density))
    figures = f"{row.score:.3g} | {row.mean:.4g} | {row.other_mean:.4g} | {shares}"
    return f"| {row.index} | {_cell(row.label or 'no label')} | {figures} |"


def _ending(details: Mapping[str, Any]) -> str:
    tokens = details.get("completion_tokens")
    written = "? tokens" if tokens is None else so_many(tokens, "token")
    return f"{written}, ended by: {details.get('finish_reason', '?')}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines()) or ">"


def _cell(value: str) -> str:
    return " ".join(value.split()).replace("|", "\\|")

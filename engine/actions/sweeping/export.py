"""A sweep as a file: CSV with one row a cell, Markdown for people, both with what it ran on."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from engine.actions.sweeping.settings import CellResult, SweepOutcome

HEAD = (
    "prompt",
    "intensity",
    "answer",
    "tokens",
    "finish",
    "topic_share",
    "features",
    "perplexity",
    "repeated_trigrams",
    "clamped",
    "error",
)
"""Columns of the CSV, after the lines with ``#`` that say what the sweep ran on."""

_MEASURES = """Topic: share of the words that are topic words. Features: mean activation of the steered features on an \
unsteered reading of the answer. Perplexity: of the answer under the unsteered model. Repeats: share of repeated \
trigrams of tokens."""


def as_csv(outcome: SweepOutcome, versions: Mapping[str, str]) -> str:
    """Comment lines with the settings, a head, and a row for each cell. Lines end as RFC 4180 wants."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    for name, value in facts_of(outcome, versions):
        # One cell, so that a comma in a name stays where it is.
        writer.writerow([f"# {name}: {_one_line(value)}"])
    writer.writerow(HEAD)
    for cell in _in_order(outcome):
        writer.writerow(
            [
                _safe(outcome.settings.prompts[cell.prompt]),
                f"{cell.intensity:g}",
                _safe(cell.text),
                cell.tokens,
                cell.finish,
                _figure(cell.topic),
                _figure(cell.features),
                _figure(cell.perplexity),
                _figure(cell.trigrams),
                cell.clamped,
                cell.error or "",
            ]
        )
    return text.getvalue()


def as_markdown(outcome: SweepOutcome, versions: Mapping[str, str]) -> str:
    """A page: what it ran on, the means, and the answers under their prompts."""
    lines = [f"# Sweep of {outcome.base.name}", ""]
    lines += [f"- {name}: {_one_line(value)}" for name, value in facts_of(outcome, versions)]
    lines += [
        "",
        "## Means",
        "",
        "| λ | answers | topic | features | perplexity | repeats |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for mean in outcome.means():
        figures = (mean.topic, mean.features, mean.perplexity, mean.trigrams)
        told = " | ".join(_figure(value) or "–" for value in figures)
        lines.append(f"| {mean.intensity:g} | {mean.answers} | {told} |")
    lines += ["", _MEASURES]
    for number, prompt in enumerate(outcome.settings.prompts):
        lines += ["", f"## {_one_line(prompt)}", "", "| λ | answer | topic | perplexity |", "|--:|---|--:|--:|"]
        for cell in _in_order(outcome):
            if cell.prompt == number:
                answer = _cell(cell.error if cell.error is not None else cell.text)
                told = f"{_figure(cell.topic) or '–'} | {_figure(cell.perplexity) or '–'}"
                lines.append(f"| {cell.intensity:g} | {answer} | {told} |")
    return "\n".join(lines) + "\n"


def facts_of(outcome: SweepOutcome, versions: Mapping[str, str]) -> list[tuple[str, str]]:
    """What a reader needs to run it again, in order."""
    settings, base = outcome.settings, outcome.base
    sampled = f"temperature {settings.temperature:g}, top-p {settings.top_p:g}, seed {settings.seed}"
    found = [
        ("Dial", f"{base.name} ({base.kind.value})"),
        *outcome.facts.items(),
        ("λ", ", ".join("plain" if value == 0 else f"{value:g}" for value in settings.intensities)),
        ("Sampling", sampled if settings.temperature > 0 else "greedy"),
        ("Tokens per answer", str(settings.max_tokens)),
    ]
    if settings.repetition_penalty != 1.0:
        found.append(("Repetition penalty", f"{settings.repetition_penalty:g}"))
    if settings.system.strip():
        found.append(("System", settings.system))
    if settings.topic:
        found.append(("Topic words", " ".join(sorted(settings.topic))))
    for place, values in base.authored.items():
        told = ", ".join(f"{index}: {value:g}" for index, value in values.items())
        found.append((f"Strengths at λ 1, {place[0]} @ layer {place[1]}", told))
    if not outcome.complete:
        found.append(("Note", "The sweep was ended before it was complete."))
    found.append(("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    return found


def _in_order(outcome: SweepOutcome) -> list[CellResult]:
    return sorted(outcome.cells, key=lambda cell: (cell.prompt, cell.intensity))


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    """Text inside a Markdown table: no line ends, no bars, nothing a viewer would take for HTML."""
    return _one_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _safe(text: str) -> str:
    """Text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text

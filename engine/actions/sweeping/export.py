"""A sweep as a file: CSV with one row a cell for programs, Markdown with what it ran on for people."""

from __future__ import annotations

from collections.abc import Mapping

from engine.actions.sweeping.settings import PLAIN, CellResult, SweepOutcome
from engine.actions.tables import Cell, csv_text
from engine.sampling import named_values

PLAIN_SIDE, STEERED_SIDE = "plain", "steered"
HEAD = (
    "prompt",
    "side",
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
    "reasoning",
)
"""Columns of the CSV. ``side`` is plain or steered; a plain answer was asked at no intensity, so its cell is empty."""

_MEASURES = """Topic: share of the words that are topic words. Features: mean activation of the steered features on an \
unsteered reading of the answer. Perplexity: of the answer under the unsteered model. Repeats: share of repeated \
trigrams of tokens."""


def as_csv(outcome: SweepOutcome, versions: Mapping[str, str]) -> str:
    """A head and a row for each cell, and nothing else; see :mod:`engine.actions.tables`.

    What the sweep ran on, ``versions`` included, is in its Markdown: remarks in a table are no part of it.
    """
    del versions
    return csv_text(HEAD, [_row(cell, outcome.settings.prompts[cell.prompt]) for cell in _in_order(outcome)])


def _row(cell: CellResult, prompt: str) -> tuple[Cell, ...]:
    plain = cell.intensity == PLAIN
    return (
        prompt,
        PLAIN_SIDE if plain else STEERED_SIDE,
        None if plain else cell.intensity,
        cell.text,
        cell.tokens,
        cell.finish,
        cell.topic,
        cell.features,
        cell.perplexity,
        cell.trigrams,
        cell.clamped,
        cell.error,
        cell.reasoning,
    )


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
        lines.append(f"| {_side(mean.intensity)} | {mean.answers} | {told} |")
    lines += ["", _MEASURES]
    for number, prompt in enumerate(outcome.settings.prompts):
        lines += ["", f"## {_one_line(prompt)}", "", "| λ | answer | topic | perplexity |", "|--:|---|--:|--:|"]
        for cell in _in_order(outcome):
            if cell.prompt == number:
                answer = _cell(cell.error if cell.error is not None else cell.text)
                told = f"{_figure(cell.topic) or '–'} | {_figure(cell.perplexity) or '–'}"
                lines.append(f"| {_side(cell.intensity)} | {answer} | {told} |")
        thought = [cell for cell in _in_order(outcome) if cell.prompt == number and cell.reasoning]
        if thought:
            lines += ["", "| λ | reasoning before the answer, not measured |", "|--:|---|"]
            lines += [f"| {_side(cell.intensity)} | {_cell(cell.reasoning)} |" for cell in thought]
    return "\n".join(lines) + "\n"


def facts_of(outcome: SweepOutcome, versions: Mapping[str, str]) -> list[tuple[str, str]]:
    """What a reader needs to run it again, in order."""
    settings, base = outcome.settings, outcome.base
    sampling = settings.sampling
    drawn = sampling.temperature > 0
    sampled = f"temperature {sampling.temperature:g}, top-p {sampling.top_p:g}, seed {settings.seed}"
    # Top-p stands beside the temperature where there is one.
    more = {name: value for name, value in sampling.changes().items() if not (drawn and name == "top_p")}
    found = [
        ("Dial", f"{base.name} ({base.kind.value})"),
        *outcome.facts.items(),
        ("λ", ", ".join(map(_side, settings.intensities))),
        ("Sampling", sampled if drawn else "greedy"),
        ("Tokens per answer", str(settings.max_tokens)),
    ]
    found += [(words.capitalize(), value) for words, value in named_values(more)]
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


def _side(intensity: float) -> str:
    return PLAIN_SIDE if intensity == PLAIN else f"{intensity:g}"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    """Text inside a Markdown table: no line ends, no bars, nothing a viewer would take for HTML."""
    return _one_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")

"""Words and starting values of the Sweep page; pure."""

from __future__ import annotations

from engine.public.sweeps import BaseChoice, BaseKind, CellResult

PROMPTS = """Tell me about your day.
Describe the view from a window.
What should I do this weekend?
Write the first lines of a story."""
"""Everyday prompts that name no subject: what the dial adds then shows."""

INTENSITIES = "0..2 by 0.5"

KINDS = {
    BaseKind.CLUSTER: "cluster",
    BaseKind.PROFILE: "profile",
    BaseKind.CIRCUIT: "circuit",
    BaseKind.LIVE: "now",
}


def choice_words(choice: BaseChoice) -> str:
    """A choice in the list: Demo: sea, ships and sailing · cluster."""
    return choice.name if choice.kind is BaseKind.LIVE else f"{choice.name} · {KINDS[choice.kind]}"


def intensity_words(value: float) -> str:
    """A column's head: plain, λ 0.5."""
    return "plain" if value == 0 else f"λ {value:g}"


def share_words(value: float | None) -> str:
    """A share as per cent: 4.2 %."""
    return "–" if value is None else f"{value * 100:.3g} %"


def figure_words(value: float | None) -> str:
    """A figure, short."""
    return "–" if value is None else f"{value:.3g}"


def cell_words(cell: CellResult) -> str:
    """An answer's measures in one line."""
    if cell.error is not None:
        return cell.error
    parts = []
    if cell.topic is not None:
        parts.append(f"topic {share_words(cell.topic)}")
    parts.append(f"features {figure_words(cell.features)}")
    parts.append(f"perplexity {figure_words(cell.perplexity)}")
    parts.append(f"repeats {share_words(cell.trigrams)}")
    if cell.clamped:
        parts.append(f"{cell.clamped} held at ±200")
    return " · ".join(parts)

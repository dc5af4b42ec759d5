"""A cluster in plain words: what it is, how it stands, where its dial may go. Pure functions."""

from __future__ import annotations

from engine.public.documents import Envelope, Range
from engine.public.steering import Advice, ClusterView
from ui.kit.steering_text import features, place_words, strength

Mark = tuple[str, str]
"""A state word and its tone."""


def cluster_marks(view: ClusterView) -> tuple[Mark, ...]:
    """The state words of a cluster."""
    record = view.summary.record
    marks: list[Mark] = []
    if record.is_active:
        marks.append(("active", "good") if view.steers else ("active, adds nothing", "warn"))
    if view.verdict is None:
        marks.append(("damaged", "bad"))
    elif not view.verdict.binding.serves:
        marks.append(("unbound", "warn"))
    if view.slice_of is not None:
        marks.append(("slice of a circuit", "quiet"))
    if record.hub_ref is not None:
        marks.append(("from the hub", "quiet"))
    return tuple(marks)


def cluster_line(view: ClusterView) -> str:
    """A cluster in one line of small print."""
    record = view.summary.record
    parts = [features(len(view.summary.members))]
    if record.layer is not None:
        parts.append(f"layer {record.layer}")
    parts.append(f"λ {strength(record.intensity)}")
    return " · ".join(parts)


def cluster_facts(view: ClusterView) -> str:
    """What its document says of where it belongs and how its strengths were made."""
    summary, record = view.summary, view.summary.record
    parts = [] if summary.display_token is None else [f"token “{summary.display_token}”"]
    parts.append(features(len(summary.members)))
    if record.layer is not None:
        parts.append(f"layer {record.layer}")
    if record.model_id is not None:
        parts.append(record.model_id)
    if summary.budget_b is not None:
        by = "" if summary.formula_id is None else f" by {summary.formula_id}"
        parts.append(f"budget B {strength(summary.budget_b)}{by}")
    elif summary.formula_id is not None:
        parts.append(f"strengths by {summary.formula_id}")
    return " · ".join(parts)


def binding_words(view: ClusterView) -> str:
    """Which SAE it runs on now, or why it has none."""
    if view.verdict is None:
        return "Its stored document can no longer be read. Delete it and import the document again."
    binding = view.verdict.binding
    if binding.sae is not None:
        place = place_words((binding.sae.sae_id, binding.sae.layer))
        return f"Runs on {place}" + (f": {binding.reason}." if binding.reason else ".")
    if view.verdict.warnings:
        return next((each for each in view.verdict.warnings if each.startswith("Not bound")), "Not bound.")
    return "Not bound."


def cluster_warnings(view: ClusterView) -> tuple[str, ...]:
    """What the engine remarks now, and what it noted when the document came in and still stands."""
    now = () if view.verdict is None else view.verdict.warnings
    bound = ("Not bound", "Bound with a remark")
    kept = tuple(each for each in now if not each.startswith(bound))
    noted = tuple(each for each in view.summary.record.warnings if each.startswith("Not activated"))
    return kept + (() if view.summary.record.is_active else noted)


def dial_words(declared: Range | None, envelope: Envelope, advice: Advice) -> str:
    """Where the dial may stand, and whose word that is."""
    whose = "the document's range" if declared is not None else "the program's range, since the document gives none"
    words = f"λ {strength(envelope.floor)} to {strength(envelope.ceiling)} is {whose}; 0 is off."
    return f"{words} The author calls the marks provisional." if advice.provisional else words

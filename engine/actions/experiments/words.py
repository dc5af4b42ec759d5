"""What steered an answer, in plain words; pure functions, one spelling for the window and for what is exported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.documents.evidence import evidence_words

NO_CLAIM = "no evidence can be claimed"


def features(number: int) -> str:
    """How many features: 1 feature, 12 features."""
    return f"{number:,} feature{'' if number == 1 else 's'}"


def strength(value: float) -> str:
    """A strength or λ without needless digits, with a real minus sign."""
    return f"{value:.4g}".replace("-", "−")


def report_words(details: Mapping[str, Any]) -> str:
    """An answer's steering report, as kept with a message, in words; empty where none was kept."""
    report = details.get("steering")
    if not isinstance(report, dict):
        return ""
    found: list[str] = []
    by_hand = 0
    for item in report.get("items", []):
        match item.get("kind"):
            case "manual":
                by_hand += int(item.get("features", 0))
            case "inline":
                found.append(f"with values of the request: {features(int(item.get('features', 0)))}")
            case "profile":
                found.append(f"by {item.get('name')} at λ {_lambda(item)}: {features(int(item.get('features', 0)))}")
            case "circuit":
                name = item.get("name", item.get("id"))
                rung = details.get("rung")
                evidence = NO_CLAIM
                if isinstance(rung, int) and 0 <= rung <= 3:
                    evidence = evidence_words(rung, item.get("only_persistence") is True)
                found.append(f"by the circuit {name} at λ {_lambda(item)} ({evidence})")
            case "unknown":
                return "whether it was steered could not be read"
    if by_hand:
        found.append(f"by hand: {features(by_hand)}")
    words = f"steered {', '.join(found)}" if found else "not steered"
    return f"{words}; this changed while it was written" if report.get("changed") else words


def _lambda(item: Mapping[str, Any]) -> str:
    try:
        return strength(float(item.get("intensity", 1.0)))
    except (TypeError, ValueError):
        return str(item.get("intensity"))

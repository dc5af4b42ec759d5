"""What steered an answer, in plain words; pure functions, one spelling for the window and for what is exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from engine.counting import plural
from engine.documents.evidence import evidence_words

NO_CLAIM = "no evidence can be claimed"
FEW_STEPS = 6
"""Steps of a path that are told one by one under an answer; exports tell all of them."""
FEW_FEATURES = 3
"""Hand-set features that are told with their strengths, where those changed."""

Item = Mapping[str, Any]
Step = Mapping[str, Any]


def features(number: int) -> str:
    """How many features: 1 feature, 12 features."""
    return f"{number:,} {plural(number, 'feature')}"


def strength(value: float) -> str:
    """A strength or λ without needless digits, with a real minus sign."""
    return f"{value:.4g}".replace("-", "−")


def report_words(details: Mapping[str, Any], *, every_step: bool = False) -> str:
    """What steered an answer from its first token to its last, as kept with it, in words; empty where nothing was kept.

    An answer whose steering changed is told as the path it took: the last state is not the whole, and claims no
    evidence. ``every_step`` tells a long path in full.
    """
    report = details.get("steering")
    if not isinstance(report, dict):
        return ""
    path = path_of(report)
    if len(path) > 1:
        left_out = report.get("path_left_out")
        return _path_words(path, left_out if isinstance(left_out, int) else 0, every_step=every_step)
    rung = details.get("rung")
    if not report.get("changed"):
        return _items_words(report.get("items", []), rung if isinstance(rung, int) else None)
    if path:
        # It was written to, and what is added stayed what it was.
        return f"{_items_words(report.get('items', []), None)}; set anew meanwhile, without a difference"
    # Kept before paths were: all that is known is how it ended.
    return f"steering changed while it was written; at its end {_items_words(report.get('items', []), None)}"


def path_of(report: Mapping[str, Any]) -> list[Step]:
    """The steps of a kept report, each ``{token, text, items}``; empty where none were kept."""
    found = report.get("path")
    return [step for step in found if _is_step(step)] if isinstance(found, list) else []


def _is_step(given: object) -> bool:
    """A record may have come over the API."""
    items = given.get("items") if isinstance(given, Mapping) else None
    return isinstance(items, list) and all(isinstance(item, Mapping) for item in items)


def token_of(step: Step) -> int:
    """The token at which a step began; 0 is the prompt."""
    token = step.get("token")
    return token if isinstance(token, int) else 0


def since(step: Step, *, first: bool = False) -> str:
    """When a step began: from the start (the ``first`` one), while the prompt was read, from token 12."""
    if first:
        return "from the start"
    return f"from token {token_of(step)}" if token_of(step) else "while the prompt was read"


def step_words(step: Step) -> str:
    """What was added in one step of a path, which claims no evidence."""
    return _items_words(step.get("items", []), None, in_path=True)


def has_circuit(report: Mapping[str, Any]) -> bool:
    """Whether a circuit steered any part of an answer."""
    states: list[Mapping[str, Any]] = [report, *path_of(report)]
    return any(item.get("kind") == "circuit" for state in states for item in state.get("items", []))


# --- one state --------------------------------------------------------------------------------------------------------


def _items_words(items: Sequence[Item], rung: int | None, *, in_path: bool = False) -> str:
    found: list[str] = []
    by_hand: list[Item] = []
    for item in items:
        match item.get("kind"):
            case "manual":
                by_hand.append(item)
            case "inline":
                found.append(f"with values of the request: {features(int(item.get('features', 0)))}")
            case "profile":
                found.append(f"by {item.get('name')} at λ {_lambda(item)}: {features(int(item.get('features', 0)))}")
            case "circuit":
                persists = item.get("only_persistence") is True
                evidence = evidence_words(rung, persists) if rung is not None and 0 <= rung <= 3 else NO_CLAIM
                told = "" if in_path else f" ({evidence})"
                found.append(f"by the circuit {_name(item)} at λ {_lambda(item)}{told}")
            case "unknown":
                return "whether it was steered could not be read"
    if by_hand:
        found.append(f"by hand: {_hand_words(by_hand, exact=in_path)}")
    return f"steered {', '.join(found)}" if found else "not steered"


def _hand_words(items: Sequence[Item], *, exact: bool) -> str:
    strengths = [pair for item in items for pair in _strengths(item).items()]
    if exact and 0 < len(strengths) <= FEW_FEATURES:
        return ", ".join(f"#{index} at {strength(value)}" for (_place, index), value in strengths)
    return features(sum(int(item.get("features", 0)) for item in items))


def _name(item: Item) -> str:
    return str(item.get("name", item.get("id")))


def _lambda(item: Item) -> str:
    value = _intensity(item)
    return str(item.get("intensity")) if value is None else strength(value)


def _intensity(item: Item) -> float | None:
    try:
        return float(item.get("intensity", 1.0))
    except (TypeError, ValueError):
        return None


# --- a path -----------------------------------------------------------------------------------------------------------


def _path_words(path: Sequence[Step], left_out: int, *, every_step: bool) -> str:
    shown = list(path) if every_step or len(path) <= FEW_STEPS else [*path[: FEW_STEPS - 2], path[-1]]
    hidden = len(path) - len(shown) + left_out
    dialled = _one_dial(path)
    more = f"{hidden} more"
    if dialled is None:
        parts = [step_words(shown[0]), *(f"{since(step)} {step_words(step)}" for step in shown[1:])]
        if hidden:
            parts.insert(-1, more)
        return "; ".join(parts)
    who, sign, values = dialled
    told = [values[path.index(step)] for step in shown]
    turns = [f"{sign} {value} {since(step)}" for value, step in zip(told[1:], shown[1:], strict=True)]
    if hidden:
        told.insert(-1, "…")
        turns.insert(-1, more)
    claim = f"; {NO_CLAIM}" if any(has_circuit(step) for step in path) else ""
    return f"steered {who} {sign} {' → '.join(told)} ({', '.join(turns)}{claim})"


def _one_dial(path: Sequence[Step]) -> tuple[str, str, list[str]] | None:
    """Who steered, the sign of the dial and where it stood in each step, where one dial explains the whole path.

    A step that adds nothing is that dial at 0, whoever put it there: what was added is the same.
    """
    steering = [step for step in path if any(item.get("kind") != "none" for item in step.get("items", []))]
    if not steering:
        return None
    items = [list(step.get("items", [])) for step in steering]
    kinds = {str(item.get("kind")) for each in items for item in each}
    if kinds == {"manual"}:
        return _hand_dial(path, steering)
    if kinds not in ({"profile"}, {"circuit"}):
        return None
    names = {(str(item.get("source", "")), str(item.get("id", "")), _name(item)) for each in items for item in each}
    if len(names) != 1:
        return None
    values = []
    for step in path:
        there = {_lambda(item) for item in step.get("items", []) if item.get("kind") != "none"}
        if len(there) > 1:
            return None
        values.append(there.pop() if there else "0")
    name = next(iter(names))[2]
    return (f"by the circuit {name} at" if kinds == {"circuit"} else f"by {name} at"), "λ", values


def _hand_dial(path: Sequence[Step], steering: Sequence[Step]) -> tuple[str, str, list[str]] | None:
    """Hand-set values have no λ of their own: what they were first is 1, if the others are multiples of it."""
    base = _all_strengths(steering[0])
    values = []
    for step in path:
        here = _all_strengths(step)
        if not here:
            values.append("0")
            continue
        if not base or set(here) != set(base):
            return None
        first = next(iter(base))
        factor = here[first] / base[first]
        # Strengths are kept to four digits after the point.
        if any(abs(here[key] - base[key] * factor) > 1e-3 for key in base):
            return None
        values.append(strength(factor))
    if any(one == other for one, other in pairwise(values)):
        return None
    return f"by hand ({features(len(base))}), in multiples of the first values, at", "×", values


def _strengths(item: Item) -> dict[tuple[str, str], float]:
    given = item.get("strengths")
    place = f"{item.get('sae')}@{item.get('layer')}"
    if not isinstance(given, Mapping):
        return {}
    return {(place, str(index)): float(value) for index, value in given.items() if isinstance(value, int | float)}


def _all_strengths(step: Step) -> dict[tuple[str, str], float]:
    return {key: value for item in step.get("items", []) for key, value in _strengths(item).items()}

"""What steers, in plain words, and what a person types to steer; pure functions, one spelling for the whole window."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from engine.counting import plural
from engine.errors import InvalidParameter
from engine.public.documents import short_evidence_words
from engine.public.experiments import NO_CLAIM as NO_CLAIM
from engine.public.experiments import features as features
from engine.public.experiments import has_circuit as has_circuit
from engine.public.experiments import path_of as path_of
from engine.public.experiments import report_words as report_words
from engine.public.experiments import since as since
from engine.public.experiments import strength as strength
from engine.public.library import SaeRecord
from engine.public.steering import AttachmentKey, ManualItem, ProfileItem, Push, Snapshot, shortest_decimal, told

PUSH_TIP = (
    "All features of a layer are summed into one vector. It is as long as their strengths together only where they "
    "point the same way."
)
NOTHING = "nothing"
_COMMA = re.compile(r"#?\d+[:=][-+]?\d+,\d+(?![\d:=.])", re.ASCII)
"""A strength, a comma and a number without a strength of its own, with no blank between them."""
_ONE = re.compile(r"#?(\d{1,18})(?:[:=]([-+]?(?:\d{1,9}(?:\.\d{0,20})?|\.\d{1,20})))?")


def report_lines(report: Mapping[str, Any]) -> str:
    """The text of a kept report as a client gets it; of a path, that of each step."""
    text = f"Steering report: {report.get('text', '')}"
    path = path_of(report)
    if len(path) < 2:
        return text
    return "\n".join([text, *(f"{since(step, first=step is path[0])}: {step.get('text', '')}" for step in path)])


def signed(value: float) -> str:
    """A strength with its sign: +25.8, −6, 0."""
    return f"+{strength(value)}" if value > 0 else strength(value)


def place_words(place: AttachmentKey) -> str:
    """An attachment: id @ layer 12."""
    return f"{place[0]} @ layer {place[1]}"


def attached_words(now: Snapshot) -> str:
    """Which SAE is attached where, or how many on which layers."""
    places = [(each.sae_id, each.layer) for each in now.state.attachments]
    if not places:
        return "none attached"
    if len(places) == 1:
        return place_words(places[0])
    layers = sorted({layer for _sae_id, layer in places})
    return f"{len(places)} on {plural(len(layers), 'layer')} {', '.join(map(str, layers))}"


def can_steer(now: Snapshot) -> tuple[AttachmentKey, ...]:
    """Attached places where something is set that may steer, switched on or not."""
    state = now.state
    places = [(each.sae_id, each.layer) for each in state.attachments]
    served = {place for one in state.circuits for place in one.authored}
    return tuple(place for place in places if state.entry(place).values or place in served)


def live_words(now: Snapshot) -> str:
    """What steers a request without steering of its own, with λ."""
    state, report = now.state, now.plan.report
    if now.plan.is_empty:
        if can_steer(now) and not any_on(now):
            return f"{NOTHING} (switched off)"
        # What is in force at 0 adds nothing, and looks like nothing chosen.
        at_zero = [f"circuit {one.name} at λ 0" for one in state.circuits if one.intensity == 0]
        if state.profile is not None and state.profile.place is not None and state.profile.intensity == 0:
            at_zero.append(f"{'cluster' if state.profile.is_cluster else 'profile'} {state.profile.name} at λ 0")
        return f"{NOTHING} ({', '.join(at_zero)})" if at_zero else NOTHING
    names = {one.circuit_id: one.name for one in state.circuits}
    parts = [
        f"circuit {names.get(each.circuit_id, each.circuit_id)} · λ {strength(each.intensity)}"
        for each in report.circuits
    ]
    by_hand = 0
    for item in report.items:
        if isinstance(item, ProfileItem):
            cluster = state.profile is not None and state.profile.is_cluster
            kind = "cluster" if cluster else "profile"
            parts.append(f"{kind} {item.name} · λ {strength(item.intensity)}")
        elif isinstance(item, ManualItem):
            by_hand += len(item.steered.strengths)
    if by_hand:
        parts.append(f"by hand: {features(by_hand)}")
    return " + ".join(parts) or NOTHING


def any_on(now: Snapshot) -> bool:
    """Whether a place where something is set is switched on."""
    return any(now.state.entry(place).enabled for place in can_steer(now))


def live_evidence(now: Snapshot) -> str:
    """The evidence phrase for the circuits that steer, word for word, and whether it is for persistence only; empty
    where none does.
    """
    if not now.plan.report.circuits:
        return ""
    if now.plan.rung is None:
        return NO_CLAIM
    return short_evidence_words(now.plan.rung, now.plan.report.only_persistence)


def parse_features(text: str) -> dict[int, float | None]:
    """``1234``, ``1234:2.5`` or ``1234=2.5``, separated by commas, spaces or lines, as index → strength, None without.

    Raises :class:`InvalidParameter` with the part that cannot be read or can be read in two ways, or a feature that is
    named twice.
    """
    tidy = re.sub(r"\s*([:=])\s*", r"\1", text.replace("−", "-"))
    if (unclear := _COMMA.search(tidy)) is not None:
        whole, fraction = unclear[0].split(",")
        raise InvalidParameter(
            f"“{unclear[0]}” can be read in two ways: its comma may begin a fraction, or another feature.",
            param="features",
            remedy=f"Write {whole}.{fraction} for one strength, or a blank after the comma for two features.",
        )
    found: dict[int, float | None] = {}
    for part in re.split(r"[\s,;]+", tidy):
        if not part:
            continue
        match = _ONE.fullmatch(part)
        if match is None:
            raise InvalidParameter(
                f"{part[:40]!r} is no feature.",
                param="features",
                remedy="Write its number, or number and strength: 1234, 1234:2.5.",
            )
        index = int(match[1])
        if index in found:
            raise InvalidParameter(
                f"Feature {index} is named twice.", param="features", remedy="Name each feature once."
            )
        found[index] = None if match[2] is None else float(match[2])
    return found


def feature_lines(steering: Mapping[int, float]) -> str:
    """Features as :func:`parse_features` reads them, one to a line, exactly."""
    return "\n".join(f"{index}:{shortest_decimal(value)}" for index, value in sorted(steering.items()))


def sae_facts(record: SaeRecord) -> str:
    """Where an SAE belongs and how large it is."""
    parts = ["layer unknown" if record.trained_layer is None else f"layer {record.trained_layer}"]
    if record.d_sae is not None:
        parts.append(features(record.d_sae))
    if record.architecture:
        parts.append(record.architecture)
    return " · ".join(parts)


def sae_figures(record: SaeRecord) -> str:
    """What was measured here, beside what the source says of itself."""
    source_l0 = record.source_l0 if record.source_l0 is not None else record.average_l0
    if record.measured_l0 is None and record.measured_variance_explained is None:
        told = _figures(source_l0, record.source_variance_explained)
        return f"not measured yet; source: {told}" if told else "not measured yet"
    parts = []
    if record.measured_l0 is not None:
        parts.append(f"L0 {record.measured_l0:.1f}{_beside(source_l0, '{:.1f}')}")
    if record.measured_variance_explained is not None:
        share = f"{record.measured_variance_explained:.0%}".replace("-", "−").replace("%", " %")
        parts.append(f"explains {share}{_beside(record.source_variance_explained, '{:.0%}')}")
    return " · ".join(parts)


def _beside(source: float | None, form: str) -> str:
    return "" if source is None else f" (source {form.format(source).replace('%', ' %')})"


def _figures(l0: float | None, explained: float | None) -> str:
    parts = [] if l0 is None else [f"L0 {l0:.1f}"]
    if explained is not None:
        parts.append(f"explains {explained:.0%}".replace("%", " %"))
    return ", ".join(parts)


def scale_words(value: float, row_norm: float, typical: float) -> str:
    """How long what one feature adds is beside the stream's own: 0.4 × typical norm."""
    return f"{abs(value) * row_norm / typical:.2g} × typical norm"


def push_words(pushes: Sequence[Push], intensity: float) -> str:
    """How long the vectors are that a set adds at ``intensity``, layer by layer; empty where none is known."""
    return f"Length of what is added at λ {strength(intensity)}: {told(pushes)}" if pushes else ""


def reach_words(value: float, greatest: float) -> str:
    """How much a strength is beside the strongest activation that was seen: 0.7 × max activation."""
    return f"{abs(value) / greatest:.2g} × max activation"

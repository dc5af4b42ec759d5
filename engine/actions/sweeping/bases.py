"""What a sweep can turn the dial of, and what that comes to with the SAEs that are attached now."""

from __future__ import annotations

from dataclasses import replace

from engine.actions.saes.context import SaeContext
from engine.actions.steering.lookup import require_circuit, require_cluster, require_profile, stored_circuit
from engine.actions.sweeping.settings import BaseChoice, BaseKind, SweepBase
from engine.documents.verdicts import judge_circuit
from engine.errors import InvalidParameter, SaeNotAttached
from engine.library.records import ProfileKind
from engine.steering.flatten import by_place, flatten
from engine.steering.stored import dial_bounds, read_stored
from engine.steering.targets import bound_for_request, require_indices

MOST_CIRCUITS = 1000
"""Circuits listed at most."""

LIVE = BaseChoice(BaseKind.LIVE, "", "What steers now")


def choices(context: SaeContext) -> tuple[BaseChoice, ...]:
    """Clusters, profiles and circuits of the library, each kind by name, and what steers live. Reads the library."""
    found: list[BaseChoice] = []
    for kind, wanted in ((BaseKind.CLUSTER, ProfileKind.CLUSTER), (BaseKind.PROFILE, ProfileKind.MANUAL)):
        for record in context.library.profiles.list(wanted):
            declared = read_stored(record).declared
            low, high = (None, None) if declared is None else declared
            found.append(BaseChoice(kind, record.id, record.name, low, high))
    found += [
        BaseChoice(BaseKind.CIRCUIT, each.id, each.name)
        for each in context.library.circuits.list(limit=MOST_CIRCUITS).circuits
    ]
    return (*found, LIVE)


def resolve_base(context: SaeContext, kind: BaseKind, base_id: str) -> SweepBase:
    """The strengths of a choice by the SAE that serves them. Nothing is activated.

    Raises :class:`ProfileNotFound`, :class:`ClusterNotFound`, :class:`CircuitNotFound`, :class:`SaeNotAttached`,
    :class:`SaeSetIncomplete`, :class:`InvalidFeatureIndex`, :class:`SteeringInvalid`, and :class:`InvalidParameter`
    where nothing is steered.
    """
    if kind is BaseKind.LIVE:
        found = _live(context)
    elif kind is BaseKind.CIRCUIT:
        found = _circuit(context, base_id)
    else:
        found = _profile(context, kind, base_id)
    if found.is_empty:
        raise InvalidParameter(
            f"{found.name} steers nothing, so its dial changes nothing.",
            param="base",
            remedy="Choose something that holds features, or set some on the Steering page.",
        )
    return replace(found, id=base_id)


def _profile(context: SaeContext, kind: BaseKind, profile_id: str) -> SweepBase:
    require = require_cluster if kind is BaseKind.CLUSTER else require_profile
    record = require(context.library.profiles, profile_id)
    stored = read_stored(record, context.library.saes.feature_count)
    what = f"the {kind.value} '{stored.name}'"
    sae = bound_for_request(stored.reference, context.desk.state.attached, what=what, param="base")
    if sae is None:
        raise SaeNotAttached(
            f"No SAE is attached, so {what} cannot steer.", param="base", remedy="Attach the SAE it was made with."
        )
    require_indices(stored.strengths, sae, what=what, param="base")
    return SweepBase(kind, stored.name, {(sae.sae_id, sae.layer): dict(stored.strengths)})


def _circuit(context: SaeContext, circuit_id: str) -> SweepBase:
    record = require_circuit(context.library.circuits, circuit_id)
    document = stored_circuit(record)
    verdict = judge_circuit(document, context.desk.state.attached, dial_bounds(context.settings))
    authored = by_place(flatten(document), verdict.bindings)
    return SweepBase(BaseKind.CIRCUIT, record.name, authored, tuple(verdict.warnings))


def _live(context: SaeContext) -> SweepBase:
    sets = context.desk.live_plan.sets
    return SweepBase(BaseKind.LIVE, LIVE.name, {(each.sae_id, each.layer): each.values for each in sets})

"""From a request's steering fields to the plan it runs with; asked before a stream's first byte.

The order: inline steering is the whole set; a named profile is the whole set; a dial alone scales its base (the one
serving circuit, else the active profile, else the hand-set values) and leaves the rest as live; else the live plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from engine.checked import there
from engine.documents.binding import SaeReference
from engine.documents.ranges import DialBounds, Range
from engine.errors import MillmError
from engine.library.errors import ProfileNotFound
from engine.steering.dial import Action, Decision, ProfileBase, decide, dial_echo
from engine.steering.inline import aim
from engine.steering.live import (
    LiveState,
    bases,
    circuit_labels,
    claimable_rung,
    profile_label,
    redialled_profile,
    scaled_manual,
    together,
)
from engine.steering.plan import EMPTY_PLAN, SteeringPlan, build_plan
from engine.steering.report import RequestLabel, describe
from engine.steering.request import SteeringRequest
from engine.steering.strengths import SteeredSet
from engine.steering.targets import bound_for_request, require_indices


class NamedProfile(Protocol):
    """What resolving needs of a stored profile or cluster."""

    @property
    def name(self) -> str: ...

    @property
    def is_cluster(self) -> bool:
        """Whether it is a cluster: its dial then has a declared or configured range."""
        ...

    @property
    def strengths(self) -> Mapping[int, float]:
        """Feature index to strength with its direction, at intensity 1."""
        ...

    @property
    def intensity(self) -> float:
        """Where its own dial stands."""
        ...

    @property
    def declared(self) -> Range | None:
        """The range its document declares."""
        ...

    @property
    def reference(self) -> SaeReference:
        """The SAE it is for."""
        ...


ProfileByName = Callable[[str], NamedProfile | None]


@dataclass(frozen=True, eq=False)
class ResolvedSteering:
    """What a request runs with.

    Attributes:
        plan: Its own plan; None follows the live one, token by token.
        admitted: The live plan when it was resolved.
        echo: ``X-miLLM-Steering-Intensity``, where the dial changed the plan.
    """

    plan: SteeringPlan | None
    admitted: SteeringPlan
    echo: str | None = None


def resolve(
    request: SteeringRequest,
    state: LiveState,
    live: SteeringPlan,
    find_profile: ProfileByName,
    bounds: DialBounds,
) -> ResolvedSteering:
    """The plan of ``request`` under ``state``, whose live plan is ``live``.

    Raises :class:`ProfileNotFound`, :class:`SaeNotAttached`, :class:`InvalidParameter`, :class:`InvalidFeatureIndex`.
    """
    if request.inline is not None:
        aimed = aim(request.inline, state.attached)
        return ResolvedSteering(_own(state, () if aimed is None else (aimed,), None, 1.0), live)
    named = None if request.profile is None else _require(request.profile, find_profile)
    circuits, active, hand_set = bases(state)
    decision = decide(
        request.dial,
        named=None if named is None else _base(named),
        circuits=circuits,
        active=active,
        live=hand_set,
        bounds=bounds,
    )
    plan = _plan(decision, state, named)
    if plan is None:
        return ResolvedSteering(None, live)
    undialled = live if named is None else _without_dial(named, state, bounds)
    changed = undialled is None or plan.digest != undialled.digest
    return ResolvedSteering(plan, live, dial_echo(decision, plan_changed=changed))


def _plan(decision: Decision, state: LiveState, named: NamedProfile | None) -> SteeringPlan | None:
    """The plan a decision comes to; None follows the live plan."""
    intensity = decision.intensity if decision.intensity is not None else 1.0
    match decision.action:
        case Action.FOLLOW_LIVE:
            return None
        case Action.UNSTEERED:
            return EMPTY_PLAN
        case Action.NAMED_PROFILE:
            return _named_plan(there(named), state, intensity)
        case Action.CIRCUIT:
            shares = [(one.circuit_id, one.steered(intensity)) for one in state.circuits]
            return _rest_live(state, together(state, circuits=shares), circuit=intensity)
        case Action.ACTIVE_PROFILE:
            return _rest_live(state, together(state, manual=redialled_profile(state, intensity)), profile=intensity)
        case Action.LIVE_VALUES:
            return _rest_live(state, together(state, manual=scaled_manual(state, intensity)))


def _named_plan(named: NamedProfile, state: LiveState, intensity: float) -> SteeringPlan:
    what = f"the profile '{named.name}'"
    sae = bound_for_request(named.reference, state.attached, what=what, param="profile")
    if sae is None:
        return EMPTY_PLAN
    require_indices(named.strengths, sae, what=what, param="profile")
    steered = SteeredSet.of(sae.sae_id, sae.layer, named.strengths, intensity)
    return _own(state, (steered,), named.name, intensity)


def _without_dial(named: NamedProfile, state: LiveState, bounds: DialBounds) -> SteeringPlan | None:
    """What the same request would run with if it had no dial; only to see whether the dial made a difference.

    None where it would be refused: a profile that cannot run may be named with its dial at 0.
    """
    decision = decide(None, named=_base(named), live=bases(state)[2], bounds=bounds)
    try:
        return _plan(decision, state, named) or EMPTY_PLAN
    except MillmError:
        return None


def _own(state: LiveState, sets: tuple[SteeredSet, ...], name: str | None, intensity: float) -> SteeringPlan:
    if state.stream is None or all(each.is_empty for each in sets):
        return EMPTY_PLAN
    report = describe(sets, requested=RequestLabel(sets, name, intensity))
    return build_plan(sets, state.attachments, state.stream, report=report)


def _rest_live(
    state: LiveState, sets: tuple[SteeredSet, ...], *, circuit: float | None = None, profile: float | None = None
) -> SteeringPlan:
    if state.stream is None:
        return EMPTY_PLAN
    report = describe(sets, circuits=circuit_labels(state, circuit), active=profile_label(state, profile))
    rung = claimable_rung(state, sets, circuit)
    return build_plan(sets, state.attachments, state.stream, report=report, rung=rung)


def _require(name: str, find_profile: ProfileByName) -> NamedProfile:
    found = find_profile(name)
    if found is None:
        raise ProfileNotFound(
            f"There is no profile named {name[:100]!r}.",
            param="profile",
            remedy="Use the name of a profile or cluster in the library.",
        )
    return found


def _base(named: NamedProfile) -> ProfileBase:
    return ProfileBase(bool(named.strengths), named.is_cluster, named.intensity, named.declared)

"""Putting a profile or cluster in force, and taking it or circuits out of force: the steps shared by all actions.

Each works on a change under way and raises before anything is in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.actions.steering.unit_of_work import Change
from engine.checked import there
from engine.counting import so_many
from engine.documents.binding import AttachedSae, Binding, Cause, bind
from engine.documents.verdicts import judge_cluster
from engine.errors import SaeNotAttached
from engine.library.records import CircuitRecord, ProfileKind, ProfileRecord, ServingMode
from engine.saes.errors import InvalidFeatureIndex
from engine.steering import transitions
from engine.steering.claims import Claim, is_composed
from engine.steering.errors import SteeringInvalid
from engine.steering.live import AttachmentKey, LiveState, ServingProfile, circuit_steers, profile_steers
from engine.steering.stored import StoredProfile, read_stored, stored_document
from engine.steering.strengths import SteeredSet
from engine.steering.targets import bound_for_request, require_indices
from engine.wire import made_of


@dataclass(frozen=True)
class InForce:
    """A profile that is in force now, and what it adds; ``warnings`` are about where and how."""

    record: ProfileRecord
    steered: tuple[SteeredSet, ...]
    warnings: tuple[str, ...]

    @property
    def feature_count(self) -> int:
        """How many features steer."""
        return sum(len(each.strengths) for each in self.steered)


def serving_profile(stored: StoredProfile, place: AttachmentKey | None) -> ServingProfile:
    """A stored profile as the desk knows it, at ``place``."""
    return ServingProfile(
        stored.profile_id,
        stored.name,
        stored.is_cluster,
        place,
        stored.strengths,
        stored.intensity,
        stored.declared,
    )


def require_sae(stored: StoredProfile, attached: Sequence[AttachedSae]) -> Binding:
    """The binding of a profile that is to be activated; it may lack an SAE only when the profile has no values.

    Raises :class:`SteeringInvalid` for another feature space and for indices outside it, :class:`SaeNotAttached`,
    :class:`InvalidParameter` when several SAEs would do.
    """
    what = f"the {'cluster' if stored.is_cluster else 'profile'} '{stored.name}'"
    binding = bind(stored.reference, attached)
    if not stored.strengths and binding.cause is not Cause.FEATURE_COUNT:
        return binding
    try:
        sae = bound_for_request(stored.reference, attached, what=what, param=None)
        if sae is not None:
            require_indices(stored.strengths, sae, what=what, param=None)
    except InvalidFeatureIndex as error:
        raise SteeringInvalid(error.message, details=error.details, remedy=error.remedy) from error
    if sae is None:
        raise SaeNotAttached(
            f"{what[:1].upper()}{what[1:]} cannot be activated: no SAE is attached.",
            details={"attached_sae_ids": [], "attached": []},
            remedy="Attach the SAE it was made with first.",
        )
    return binding


def put_in_force(change: Change, record: ProfileRecord) -> InForce:
    """Make a profile the active one, at the SAE it belongs to; a cluster meets its SAE here. Raises as above."""
    stored = read_stored(record, change.step.saes.feature_count)
    attached = change.draft.state.attached
    binding = require_sae(stored, attached)
    place = None if binding.sae is None else (binding.sae.sae_id, binding.sae.layer)
    serving = serving_profile(stored, place)
    warnings = [] if binding.reason is None or place is None else [f"Runs with a remark: {binding.reason}."]
    steered = tuple(each for each in serving.steered() if not each.is_empty)
    warnings += clamp_warnings(steered)
    if stored.strengths and serving.intensity == 0:
        warnings.append(AT_ZERO)
    change.desk.apply(transitions.activate_profile(serving))
    changes: dict[str, object] = {}
    if record.source_kind is ProfileKind.CLUSTER:
        document = stored_document(record)
        if document is not None:
            changes["warnings"] = judge_cluster(document, attached, change.bounds).warnings
        if not record.bound and place is not None:
            changes |= {"bound": True, "sae_id": place[0], "layer": place[1]}
    active = there(change.step.profiles.set_active(record.id, **changes))
    return InForce(active, steered, tuple(warnings))


def dial(change: Change, record: ProfileRecord, intensity: float, *, reapply: bool) -> tuple[ProfileRecord, bool]:
    """Set a profile's dial; an active one's values are scaled anew with ``reapply``. Returns whether they were.

    At the place where it steers now; one that lost its SAE looks for it again, and raises as :func:`put_in_force`.
    """
    record = change.step.profiles.update(record.id, intensity=intensity)
    if not (record.is_active and reapply):
        return record, False
    active = change.draft.state.profile
    if active is None or active.profile_id != record.id or active.place is None:
        put_in_force(change, record)
    else:
        change.desk.apply(transitions.activate_profile(serving_profile(read_stored(record), active.place)))
    return record, True


def label_only(change: Change, record: ProfileRecord) -> ProfileRecord:
    """Make a profile the active one and leave what steers as it is."""
    now = change.draft.state.profile
    if now is not None and now.profile_id != record.id:
        change.desk.apply(transitions.deactivate_profile(now.profile_id, clear=False))
    if now is None or now.profile_id != record.id:
        change.desk.apply(transitions.activate_profile(serving_profile(read_stored(record), None)))
    return there(change.step.profiles.set_active(record.id))


def take_out_of_force(change: Change, profile_id: str, *, clear: bool = True) -> bool:
    """Make a profile inactive; True when values of its place are gone by it."""
    state = change.draft.state
    active = state.profile
    had_values = (
        active is not None
        and active.profile_id == profile_id
        and active.place is not None
        and bool(state.entry(active.place).values)
    )
    change.desk.apply(transitions.deactivate_profile(profile_id, clear=clear))
    change.step.profiles.deactivate(profile_id)
    return had_values and clear


def stop_circuit(change: Change, record: CircuitRecord) -> bool:
    """Make a circuit inactive, with the cluster that serves its slice, and release its layers. True when it steered."""
    state = change.draft.state
    steered = holds_live_keys(state, record)
    if record.serving_mode is ServingMode.SLICE_FALLBACK:
        if record.slice_profile_id is not None:
            take_out_of_force(change, record.slice_profile_id)
    elif any(one.circuit_id == record.id for one in state.circuits):
        change.desk.apply(transitions.stop_circuit(record.id))
    change.step.circuits.deactivate(record.id)
    mark_composed(change)
    return steered


def stop_every_circuit(change: Change) -> tuple[CircuitRecord, ...]:
    """Make every circuit inactive and release all their layers; returns them as they were."""
    active = tuple(change.step.circuits.active())
    for record in active:
        stop_circuit(change, record)
    # One the rows do not know steers all the same.
    for one in change.draft.state.circuits:
        change.desk.apply(transitions.stop_circuit(one.circuit_id))
    return active


def stop_circuits_served_by(change: Change, profile_id: str) -> tuple[CircuitRecord, ...]:
    """Make circuits inactive whose slice this cluster serves, and release their layers; the cluster stays as it is."""
    served = tuple(
        each
        for each in change.step.circuits.active()
        if each.serving_mode is ServingMode.SLICE_FALLBACK and each.slice_profile_id == profile_id
    )
    for record in served:
        change.step.circuits.deactivate(record.id)
    if served:
        mark_composed(change)
    return served


def holds_live_keys(state: LiveState, record: CircuitRecord) -> bool:
    """Whether a circuit adds anything under ``state``, by itself or through its slice's cluster."""
    if not record.is_active:
        return False
    if record.serving_mode is ServingMode.SLICE_FALLBACK:
        return (
            state.profile is not None and state.profile.profile_id == record.slice_profile_id and profile_steers(state)
        )
    return any(one.circuit_id == record.id and circuit_steers(state, one) for one in state.circuits)


def mark_composed(change: Change) -> None:
    """Tell the desk which of its circuits share a layer now."""
    claims = live_claims(change)
    change.desk.apply(
        transitions.mark_composed(
            {one.circuit_id: is_composed(claims, one.circuit_id) for one in change.draft.state.circuits}
        )
    )


def live_claims(change: Change) -> tuple[Claim, ...]:
    """Every layer that is held."""
    return tuple(
        made_of(Claim, each, steering_keys=frozenset(each.steering_keys)) for each in change.step.claims.live()
    )


AT_ZERO = "Its dial stands at λ 0, so it adds nothing."


def clamp_warnings(steered: Sequence[SteeredSet]) -> list[str]:
    """A warning for each SAE on which strengths were clamped."""
    return [
        f"{so_many(each.clamped, 'strength')} on '{each.sae_id}' at layer {each.layer} "
        f"{'are' if each.clamped > 1 else 'is'} clamped to ±200."
        for each in steered
        if each.clamped
    ]

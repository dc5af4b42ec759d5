"""Profiles: hand-made steering under a name. Activating, deactivating and deleting work on clusters' rows too."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from engine.actions.steering.activation import (
    dial,
    label_only,
    put_in_force,
    serving_profile,
    stop_circuits_served_by,
    stop_every_circuit,
    take_out_of_force,
)
from engine.actions.steering.lookup import checked_steering, may_rename, require_profile
from engine.actions.steering.results import (
    ActivatedProfile,
    DeactivatedProfile,
    DeletedProfile,
    DialledCluster,
    ProfileList,
    ProfileSummary,
)
from engine.actions.steering.unit_of_work import SteeringActions, each_alone
from engine.documents.errors import IsClusterDocument
from engine.documents.imports import import_profile
from engine.documents.profile import profile_document
from engine.documents.ranges import cluster_envelope, manual_envelope
from engine.errors import InvalidParameter
from engine.events import CircuitsChanged, ClustersChanged, Event, ProfilesChanged
from engine.library.records import PROFILE_FIELDS, CircuitRecord, ProfileKind, ProfileRecord
from engine.steering import transitions
from engine.steering.dial import cluster_setting
from engine.steering.errors import SteeringInvalid
from engine.steering.live import LiveState
from engine.steering.stored import read_stored
from engine.steering.targets import listed
from engine.steering.transitions import find_attachment, place_of


class ProfileActions(SteeringActions):
    """What can be done with profiles. A profile that is not there raises :class:`ProfileNotFound`."""

    # --- reading ----------------------------------------------------------------------------------------------------

    def list(self, kind: ProfileKind | None = None) -> ProfileList:
        """Every profile, clusters among them unless one ``kind`` is asked for, by name."""
        return ProfileList.of(self._library.profiles.list(kind))

    def get(self, profile_id: str) -> ProfileSummary:
        """One profile."""
        return ProfileSummary.of(require_profile(self._library.profiles, profile_id))

    def active(self) -> ProfileSummary | None:
        """The active profile or cluster, None when none is."""
        record = self._library.profiles.active()
        return None if record is None else ProfileSummary.of(record)

    # --- making and editing -----------------------------------------------------------------------------------------

    def create(self, name: str, *, steering: object = None, **others: Any) -> ProfileSummary:
        """Store a profile; ``others`` are the other :class:`ProfileFields`. ``steering`` maps feature indices (numbers
        or digits) to strengths; none is allowed.

        Raises :class:`ProfileAlreadyExists`, :class:`SteeringInvalid` for the strengths, :class:`InvalidParameter` for
        the rest.
        """
        _refuse_unknown(others)
        strengths = {} if steering is None else checked_steering(steering)
        with self._lock:
            record = self._library.profiles.add(ProfileRecord(name, steering=strengths, **others))
        self._publish(ProfilesChanged())
        return ProfileSummary.of(record)

    def save_current(
        self, name: str, description: str | None = None, *, sae_id: str | None = None, layer: int | None = None
    ) -> ProfileSummary:
        """Store the hand-set values of one attached SAE, whether they are switched on or not.

        Without ``sae_id`` and ``layer`` it is the one that has values, or the first attached when none has. Raises
        :class:`SaeNotAttached`, :class:`InvalidParameter` naming the SAEs when several have values,
        :class:`ProfileAlreadyExists`.
        """
        with self._lock:
            state = self._desk.state
            place = _place_to_save(state, sae_id, layer)
            record = self._library.profiles.add(
                ProfileRecord(
                    name,
                    description,
                    model_id=None if state.stream is None else state.stream.model_name,
                    sae_id=place[0],
                    layer=place[1],
                    steering=dict(sorted(state.entry(place).values.items())),
                )
            )
        self._publish(ProfilesChanged())
        return ProfileSummary.of(record)

    def update(self, profile_id: str, changes: Mapping[str, object]) -> ProfileSummary:
        """Set the fields named in ``changes`` and keep the rest; ``steering`` replaces all strengths.

        Of the active profile too only the row changes: what steers stays until it is activated again. Raises
        :class:`SteeringInvalid` for the strengths of a cluster, which belong to its document.
        """
        _refuse_unknown(changes)
        wanted = dict(changes)
        with self._change() as change:
            record = require_profile(change.step.profiles, profile_id)
            if "steering" in wanted:
                if record.source_kind is ProfileKind.CLUSTER:
                    raise SteeringInvalid(
                        "The strengths of a cluster belong to its document and cannot be edited.",
                        param="steering",
                        remedy="Save them as a profile under another name, and edit that one.",
                    )
                wanted["steering"] = checked_steering(wanted["steering"])
            record = change.step.profiles.update(profile_id, **wanted)
            change.desk.apply(transitions.relabel_profile(serving_profile(read_stored(record), None)))
        self._publish(_changed(record))
        return ProfileSummary.of(record)

    def delete(self, profile_id: str) -> DeletedProfile:
        """Delete a profile, deactivating it first where it is active."""
        with self._change() as change:
            record = require_profile(change.step.profiles, profile_id)
            stopped = stop_circuits_served_by(change, profile_id)
            cleared = record.is_active and take_out_of_force(change, profile_id)
            change.step.profiles.remove(profile_id)
        self._publish(_changed(record), *_circuits(stopped))
        return DeletedProfile(profile_id, cleared, _stopped_with_their_cluster(stopped))

    # --- in force ---------------------------------------------------------------------------------------------------

    def activate(self, profile_id: str, *, apply_steering: bool = True) -> ActivatedProfile:
        """Make a profile the active one. Its values become the whole hand-set set of the SAE it is bound to.

        Every active circuit is deactivated first, with a warning each. Without ``apply_steering`` only the rows change:
        what steers stays. Raises :class:`SteeringInvalid` when the SAE lacks its features, :class:`SaeNotAttached`,
        :class:`InvalidParameter` when several SAEs would do; then nothing has changed.
        """
        with self._change() as change:
            record = require_profile(change.step.profiles, profile_id)
            if apply_steering:
                stopped = stop_every_circuit(change)
                in_force = put_in_force(change, record)
                result = ActivatedProfile(
                    profile_id, in_force.feature_count, (*_replaced(stopped, record), *in_force.warnings)
                )
            else:
                before = change.step.profiles.active()
                same = before is None or before.id == profile_id
                stopped = () if before is None or same else stop_circuits_served_by(change, before.id)
                label_only(change, record)
                result = ActivatedProfile(profile_id, 0, _stopped_with_their_cluster(stopped))
        self._publish(ProfilesChanged(), ClustersChanged(), *_circuits(stopped))
        return result

    def deactivate(self, profile_id: str, *, clear_steering: bool = True) -> DeactivatedProfile:
        """Make a profile inactive; with ``clear_steering`` its values go, else they stay as hand-set ones.

        One that is not active stays so, and nothing is cleared. A circuit whose slice it serves goes with it.
        """
        with self._change() as change:
            record = require_profile(change.step.profiles, profile_id)
            stopped = stop_circuits_served_by(change, profile_id)
            cleared = record.is_active and take_out_of_force(change, profile_id, clear=clear_steering)
        if record.is_active:
            self._publish(_changed(record), *_circuits(stopped))
        return DeactivatedProfile(profile_id, cleared, _stopped_with_their_cluster(stopped))

    def set_intensity(self, profile_id: str, intensity: object, *, reapply: bool = True) -> DialledCluster:
        """Set a profile's dial: from 0 to 2, a cluster's to the top of its range.

        Where it is active and ``reapply`` is set its values are scaled anew from what was stored; when that cannot be
        done the dial stays where it was and the reason is raised. Raises :class:`SteeringInvalid` for an intensity
        outside the range.
        """
        with self._change() as change:
            record = require_profile(change.step.profiles, profile_id)
            is_cluster = record.source_kind is ProfileKind.CLUSTER
            declared = read_stored(record).declared
            envelope = cluster_envelope(declared, self._bounds) if is_cluster else manual_envelope(self._bounds)
            value = cluster_setting(intensity, envelope)
            record, reapplied = dial(change, record, value, reapply=reapply)
        self._publish(_changed(record))
        return DialledCluster(profile_id, value, reapplied)

    def restore(self, record: ProfileRecord) -> ProfileSummary:
        """Bring a deleted profile or cluster back as it was, under its id, but not active.

        Raises :class:`ProfileAlreadyExists` when it is there.
        """
        with self._lock:
            restored = self._library.profiles.put_back(record)
        self._publish(_changed(restored))
        return ProfileSummary.of(restored)

    def release_all(self) -> tuple[str, ...]:
        """No profile is active any more: the model has left. Returns the parts that failed, which are logged."""

        def desk() -> None:
            active = self._desk.state.profile
            if active is not None:
                self._desk.apply(transitions.deactivate_profile(active.profile_id))

        with self._lock:
            failed = each_alone(
                {"the active profile": desk, "the profiles": self._library.profiles.reset_after_restart}
            )
        self._publish(ProfilesChanged(), ClustersChanged())
        return failed

    # --- documents --------------------------------------------------------------------------------------------------

    def export(self, profile_id: str) -> dict[str, Any]:
        """A profile as a document. Raises :class:`IsClusterDocument` for a cluster, which has its own export."""
        record = require_profile(self._library.profiles, profile_id)
        if record.source_kind is ProfileKind.CLUSTER:
            raise IsClusterDocument(
                f"{record.name!r} is a cluster; the profile export writes profiles.",
                details={"profile_id": record.id},
                remedy="Export it as a cluster, which gives its whole document.",
            )
        return profile_document(
            record,
            created_at=record.created_at.isoformat(),
            updated_at=record.updated_at.isoformat(),
            extras=record.extras,
        )

    def import_document(self, raw: bytes, *, on_conflict: str = "fail") -> ProfileSummary:
        """Store the profile document in ``raw``; both shapes in circulation are read.

        Raises :class:`DocumentRefused` (:class:`IsClusterDocument` for clusters), :class:`ProfileAlreadyExists`.
        """
        rename = may_rename(on_conflict)
        document = import_profile(raw)
        with self._lock:
            record = self._library.profiles.add(ProfileRecord(**vars(document)), rename=rename)
        self._publish(ProfilesChanged())
        return ProfileSummary.of(record)


def _refuse_unknown(given: Collection[str]) -> None:
    unknown = [key for key in given if key not in PROFILE_FIELDS]
    if unknown:
        raise InvalidParameter(
            f"A profile has no field to edit called {unknown[0][:40]!r}.",
            param=unknown[0][:40],
            remedy=f"Fields to edit are {', '.join(PROFILE_FIELDS)}.",
        )


def _place_to_save(state: LiveState, sae_id: str | None, layer: int | None) -> tuple[str, int]:
    first = place_of(find_attachment(state, sae_id, layer))
    fitting = [each for each in state.attached if sae_id in (None, each.sae_id) and layer in (None, each.layer)]
    steered = [each for each in fitting if state.entry((each.sae_id, each.layer)).values]
    if len(steered) > 1:
        raise InvalidParameter(
            f"A profile holds the values of one SAE, and several are steered: {listed(steered)}.",
            param="sae_id",
            details={"steered": [{"sae_id": each.sae_id, "layer": each.layer} for each in steered]},
            remedy="Name one with 'sae_id' and 'layer'.",
        )
    return (steered[0].sae_id, steered[0].layer) if steered else first


def _changed(record: ProfileRecord) -> Event:
    return ClustersChanged() if record.source_kind is ProfileKind.CLUSTER else ProfilesChanged()


def _circuits(stopped: tuple[CircuitRecord, ...]) -> tuple[Event, ...]:
    return (CircuitsChanged(),) if stopped else ()


def _replaced(stopped: tuple[CircuitRecord, ...], by: ProfileRecord) -> tuple[str, ...]:
    return tuple(f"The circuit '{each.name}' was deactivated: '{by.name}' takes its place." for each in stopped)


def _stopped_with_their_cluster(stopped: tuple[CircuitRecord, ...]) -> tuple[str, ...]:
    return tuple(
        f"The circuit '{each.name}' was deactivated: a slice of it was served by this cluster." for each in stopped
    )

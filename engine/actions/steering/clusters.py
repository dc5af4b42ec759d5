"""Clusters: profiles that came as documents, with a dial of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.actions.lock import SteeringLock
from engine.actions.steering.activation import dial
from engine.actions.steering.cluster_import import prepare_cluster
from engine.actions.steering.lookup import may_rename, require_cluster
from engine.actions.steering.profiles import ProfileActions
from engine.actions.steering.results import (
    ActivatedProfile,
    ClusterList,
    ClusterSummary,
    DeactivatedProfile,
    DeletedProfile,
    DialledCluster,
    ImportItem,
    ImportOutcome,
)
from engine.actions.steering.unit_of_work import SteeringActions
from engine.actions.steering.views import ClusterView
from engine.checked import there
from engine.config import EngineSettings
from engine.documents.cluster import LOCAL_KEYS, BundleItem
from engine.documents.errors import DocumentInvalid, DocumentRefused
from engine.documents.imports import import_clusters
from engine.documents.ranges import cluster_envelope
from engine.documents.verdicts import ImportStatus
from engine.errors import MillmError
from engine.events import ClustersChanged, EventBus
from engine.library.database import Library
from engine.library.records import ProfileKind
from engine.steering.desk import SteeringDesk
from engine.steering.dial import cluster_setting
from engine.steering.errors import NoActiveCluster
from engine.steering.stored import read_stored

_Results = list[ImportItem]


class ClusterActions(SteeringActions):
    """What can be done with clusters. One that is not there raises :class:`ClusterNotFound`."""

    def __init__(
        self,
        settings: EngineSettings,
        library: Library,
        desk: SteeringDesk,
        events: EventBus,
        lock: SteeringLock,
        profiles: ProfileActions,
    ) -> None:
        super().__init__(settings, library, desk, events, lock)
        self._profiles = profiles

    # --- reading ----------------------------------------------------------------------------------------------------

    def list(self) -> ClusterList:
        """Every cluster, by name."""
        return ClusterList.of(self._library.profiles.list(ProfileKind.CLUSTER))

    def get(self, cluster_id: str) -> ClusterSummary:
        """One cluster."""
        return ClusterSummary.of(require_cluster(self._library.profiles, cluster_id))

    def views(self) -> tuple[ClusterView, ...]:
        """Every cluster, by name, held against what is attached now."""
        state, saes = self._desk.state, self._library.saes.list()
        rows = self._library.profiles.list(ProfileKind.CLUSTER)
        return tuple(ClusterView.of(each, state, self._bounds, saes) for each in rows)

    def export(self, cluster_id: str) -> dict[str, Any]:
        """The author's document, every unknown key included. Raises :class:`DocumentInvalid` when it is damaged."""
        record = require_cluster(self._library.profiles, cluster_id)
        try:
            raw = json.loads(record.cluster_meta or "")
        except ValueError as error:
            raise DocumentInvalid(
                f"The stored document of the cluster {record.name!r} is damaged: {error}.",
                details={"profile_id": record.id, "errors": []},
                remedy="Delete the cluster and import its document again.",
            ) from error
        return {key: value for key, value in raw.items() if key not in LOCAL_KEYS}

    # --- import -----------------------------------------------------------------------------------------------------

    def import_document(
        self,
        raw: bytes,
        *,
        on_conflict: str = "rename",
        activate: bool = False,
        hub_ref: Mapping[str, Any] | None = None,
    ) -> ImportOutcome:
        """Store the cluster, or every good definition of the bundle, in ``raw``; one bad definition stops no other.

        ``activate`` puts the first one in force that can be; what is not activated says so in its warnings. Raises
        :class:`DocumentRefused` for a document that is bad as a whole, :class:`InvalidParameter` for ``on_conflict``.
        """
        rename = may_rename(on_conflict)
        items = import_clusters(raw)
        with self._lock:
            results = [self._store(item, rename, hub_ref) for item in items]
            if activate:
                results = self._activate_one_of(results)
        self._publish(ClustersChanged())
        return ImportOutcome.of(results)

    def _store(self, item: BundleItem, rename: bool, hub_ref: Mapping[str, Any] | None) -> ImportItem:
        if item.document is None:
            return _refused(item.name, there(item.error))
        prepared = prepare_cluster(item.document, self._desk.state.attached, self._bounds, hub_ref=hub_ref)
        try:
            record = self._library.profiles.add(prepared.new, rename=rename)
        except MillmError as error:
            return _refused(item.name, error)
        return ImportItem(record.name, prepared.status, record.warnings, record.id)

    def _activate_one_of(self, results: _Results) -> _Results:
        active: str | None = None
        finished = []
        for item in results:
            note: str | None = None
            if item.profile_id is not None and item.status is ImportStatus.IMPORTED_UNBOUND:
                note = "Not activated: it is not bound to an attached SAE."
            elif item.profile_id is not None and active is not None:
                note = f"Not activated: one cluster is active at a time, and it is '{active}'."
            elif item.profile_id is not None:
                try:
                    done = self._profiles.activate(item.profile_id)
                    active = item.name
                    item = replace(item, warnings=(*item.warnings, *done.warnings))
                except MillmError as error:
                    note = f"Not activated: {error.one_line()}"
            finished.append(item if note is None else self._noted(item, note))
        return finished

    def _noted(self, item: ImportItem, note: str) -> ImportItem:
        warnings = (*item.warnings, note)
        if item.profile_id is not None:
            self._library.profiles.update(item.profile_id, warnings=warnings)
        return replace(item, warnings=warnings)

    # --- in force ---------------------------------------------------------------------------------------------------

    def activate(self, cluster_id: str) -> ActivatedProfile:
        """Put a cluster in force, as :meth:`ProfileActions.activate` does; an unbound one is bound by it."""
        with self._lock:
            require_cluster(self._library.profiles, cluster_id)
            return self._profiles.activate(cluster_id)

    def deactivate(self, cluster_id: str) -> DeactivatedProfile:
        """Make a cluster inactive and take its values out."""
        with self._lock:
            require_cluster(self._library.profiles, cluster_id)
            return self._profiles.deactivate(cluster_id)

    def delete(self, cluster_id: str) -> DeletedProfile:
        """Delete a cluster, deactivating it first where it is active."""
        with self._lock:
            require_cluster(self._library.profiles, cluster_id)
            return self._profiles.delete(cluster_id)

    # --- the dial ---------------------------------------------------------------------------------------------------

    def set_active_intensity(self, intensity: object, *, reapply: bool = True) -> DialledCluster:
        """Set the dial of the active cluster. Raises :class:`NoActiveCluster`; else as :meth:`set_intensity`."""
        with self._lock:
            active = self._library.profiles.active()
            if active is None or active.source_kind is not ProfileKind.CLUSTER:
                raise NoActiveCluster(
                    "No cluster is active, so there is no dial to set.",
                    remedy="Activate a cluster, or set the dial of one by its id.",
                )
            return self.set_intensity(active.id, intensity, reapply=reapply)

    def set_intensity(self, cluster_id: str, intensity: object, *, reapply: bool = True) -> DialledCluster:
        """Set a cluster's dial: 0 to the top of its declared or the configured range.

        Where it is active and ``reapply`` is set, its values are scaled anew from what its document says; when that
        cannot be done the dial stays where it was and the reason is raised. Raises :class:`SteeringInvalid` for an
        intensity outside the range.
        """
        with self._change() as change:
            record = require_cluster(change.step.profiles, cluster_id)
            envelope = cluster_envelope(read_stored(record).declared, self._bounds)
            value = cluster_setting(intensity, envelope)
            _, reapplied = dial(change, record, value, reapply=reapply)
        self._publish(ClustersChanged())
        return DialledCluster(cluster_id, value, reapplied)


def _refused(name: str, error: MillmError) -> ImportItem:
    errors = error.details.get("errors", []) if isinstance(error, DocumentRefused) else []
    return ImportItem(name, ImportStatus.ERROR, error=error.one_line(), errors=tuple(errors), code=error.code)

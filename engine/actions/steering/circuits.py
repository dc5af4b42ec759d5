"""Circuits: features on several layers with their evidence, one dial over all, and claims on the layers they hold."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from engine.actions.steering.activation import holds_live_keys, mark_composed, stop_circuit, take_out_of_force
from engine.actions.steering.circuit_results import (
    ActivatedCircuit,
    CircuitList,
    CircuitSummary,
    DeactivatedCircuit,
    DeletedCircuit,
    DialledCircuit,
    ImportedCircuit,
    ReleasedClaims,
)
from engine.actions.steering.cluster_import import document_text
from engine.actions.steering.lookup import may_rename, require_circuit, stored_circuit
from engine.actions.steering.profiles import ProfileActions
from engine.actions.steering.serving import Asked, activate, serve_anew
from engine.actions.steering.unit_of_work import SteeringActions, each_alone
from engine.actions.steering.views import CircuitView
from engine.documents.errors import DocumentInvalid
from engine.documents.evidence import TOP_RUNG
from engine.documents.imports import import_circuit
from engine.documents.verdicts import judge_circuit
from engine.errors import InvalidParameter, MillmError
from engine.events import CircuitsChanged, ClustersChanged, ProfilesChanged
from engine.library.database import Library
from engine.library.records import CircuitRecord, ProfileRecord, ServingMode
from engine.steering import transitions
from engine.steering.claims import Claim
from engine.steering.desk import SteeringDesk
from engine.steering.dial import circuit_setting
from engine.steering.errors import AmbiguousActiveCircuit, NoActiveCircuit
from engine.steering.hazards import require_validated
from engine.wire import made_of, wire

MAX_PAGE = 200


class CircuitActions(SteeringActions):
    """What can be done with circuits. One that is not there raises :class:`CircuitNotFound`."""

    # --- reading ----------------------------------------------------------------------------------------------------

    def list(
        self, *, min_rung: int = 0, serveable: bool | None = None, limit: int = 50, offset: int = 0
    ) -> CircuitList:
        """Circuits of at least ``min_rung``, newest first. Raises :class:`InvalidParameter`."""
        _require_within("min_rung", min_rung, 0, TOP_RUNG)
        _require_within("limit", limit, 1, MAX_PAGE)
        _require_within("offset", offset, 0, None)
        page = self._library.circuits.list(min_rung=min_rung, serveable=serveable, limit=limit, offset=offset)
        active = self._library.circuits.active()
        summaries = tuple(map(CircuitSummary.of, page.circuits))
        return CircuitList(summaries, active[0].id if active else None, page.total)

    def get(self, circuit_id: str) -> CircuitSummary:
        """One circuit, with whether it steers now."""
        return self._summary(require_circuit(self._library.circuits, circuit_id))

    def active(self) -> tuple[CircuitSummary, ...]:
        """The active circuits, by id, each with whether it steers now."""
        return tuple(self._summary(each) for each in self._library.circuits.active())

    def active_single(self) -> CircuitSummary | None:
        """The active circuit, the first by id where there are several, or None."""
        return next(iter(self.active()), None)

    def views(self) -> tuple[CircuitView, ...]:
        """Every circuit, newest first, held against what is attached now and what the library has."""
        found: list[CircuitRecord] = []
        while True:
            page = self._library.circuits.list(limit=MAX_PAGE, offset=len(found))
            found.extend(page.circuits)
            if not page.circuits or len(found) >= page.total:
                break
        saes, claims, state = self._library.saes.list(), self.claims(), self._desk.state
        return tuple(CircuitView.of(self._summary(each), state, self._bounds, saes, claims) for each in found)

    def claims(self) -> tuple[Claim, ...]:
        """Every layer that is held, by layer."""
        return tuple(
            made_of(Claim, each, steering_keys=frozenset(each.steering_keys)) for each in self._library.claims.live()
        )

    def export(self, circuit_id: str) -> dict[str, Any]:
        """The author's document, every unknown key included. Raises :class:`DocumentInvalid` when it is damaged."""
        record = require_circuit(self._library.circuits, circuit_id)
        try:
            raw: dict[str, Any] = json.loads(record.definition)
        except ValueError as error:
            raise DocumentInvalid(
                f"The stored document of the circuit {record.name!r} is damaged: {error}.",
                details={"circuit_id": record.id, "errors": []},
                remedy="Delete the circuit and import its document again.",
            ) from error
        return raw

    # --- import and removal -----------------------------------------------------------------------------------------

    def import_document(self, raw: bytes, *, on_conflict: str = "rename", origin: str = "import") -> ImportedCircuit:
        """Store the circuit document in ``raw``; never activates it. ``origin`` says where it came from.

        Raises :class:`DocumentRefused`, :class:`CircuitAlreadyExists` with ``on_conflict`` ``fail``,
        :class:`InvalidParameter`.
        """
        rename = may_rename(on_conflict)
        document = import_circuit(raw)
        definition = document.definition
        with self._lock:
            verdict = judge_circuit(document, self._desk.state.attached, self._bounds)
            record = self._library.circuits.add(
                CircuitRecord(
                    definition.name,
                    document_text(document.raw),
                    definition.narrative,
                    rung=document.rung,
                    edge_count=len(definition.edges),
                    layers=document.layers,
                    per_sae_warnings=tuple(wire(verdict.layers)),
                    serveable=verdict.serveable,
                    intensity=document.intensity,
                    provenance={"imported_at": datetime.now(UTC).isoformat(), "origin": origin},
                ),
                rename=rename,
            )
        self._publish(CircuitsChanged())
        return ImportedCircuit.of(record, self._steers(record), warnings=verdict.warnings)

    def delete(self, circuit_id: str) -> DeletedCircuit:
        """Delete a circuit, deactivating it first where it is active, and the cluster that was made for its slice.

        That cluster was cut from the circuit and never imported, so it is not left behind.
        """
        with self._change() as change:
            record = require_circuit(change.step.circuits, circuit_id)
            cleared = record.is_active and stop_circuit(change, record)
            change.step.circuits.remove(circuit_id)
            slice_id = record.slice_profile_id
            cluster = None if slice_id is None else change.step.profiles.get(slice_id)
            if cluster is not None:
                cleared = (cluster.is_active and take_out_of_force(change, cluster.id)) or cleared
                change.step.profiles.remove(cluster.id)
            mark_composed(change)
        self._publish(CircuitsChanged(), *([ClustersChanged()] if cluster is not None else []))
        return DeletedCircuit(circuit_id, cleared, None if cluster is None else cluster.id)

    def restore(self, record: CircuitRecord, slice_of_it: ProfileRecord | None = None) -> CircuitSummary:
        """Bring a deleted circuit back as it was, under its id, with its slice's cluster; neither is active.

        Raises :class:`CircuitAlreadyExists` when it is there, :class:`ProfileAlreadyExists` for its cluster.
        """
        with self._change() as change:
            if slice_of_it is not None:
                change.step.profiles.put_back(slice_of_it)
            restored = change.step.circuits.put_back(record)
        self._publish(CircuitsChanged(), *([ClustersChanged()] if slice_of_it is not None else []))
        return self._summary(restored)

    # --- in force ---------------------------------------------------------------------------------------------------

    def activate(
        self,
        circuit_id: str,
        *,
        acknowledge_unvalidated: bool = False,
        allow_layer_overlap: bool = False,
        intensity: object = None,
    ) -> ActivatedCircuit:
        """Serve a circuit at ``intensity``, else at the document's, else at the row's; or refuse and change nothing.

        Raises as :func:`engine.actions.steering.serving.activate` does.
        """
        asked = Asked(acknowledge_unvalidated, allow_layer_overlap, intensity)
        with self._change() as change:
            record = require_circuit(change.step.circuits, circuit_id)
            result = activate(change, record, asked, allow_concurrent=self._settings.CIRCUIT_ALLOW_CONCURRENT)
        self._publish(CircuitsChanged(), ClustersChanged(), ProfilesChanged())
        return result

    def deactivate(self, circuit_id: str) -> DeactivatedCircuit:
        """Stop serving a circuit, with the cluster that serves its slice, and release its layers."""
        with self._change() as change:
            before = require_circuit(change.step.circuits, circuit_id)
            cleared = before.is_active and stop_circuit(change, before)
            record = require_circuit(change.step.circuits, circuit_id)
        if before.is_active:
            self._publish(*_changed(before))
        return DeactivatedCircuit.of(record, self._steers(record), cleared_steering=cleared)

    def set_intensity(
        self,
        intensity: object,
        *,
        reapply: bool = True,
        acknowledge_unvalidated: bool = False,
        circuit_id: str | None = None,
    ) -> DialledCircuit:
        """Set the dial of the one active circuit, a number from 0 to 2 held inside the configured bounds.

        ``circuit_id`` says which, where several are active.

        The evidence gate is asked again. What cannot be applied is stored all the same and said in the warnings.
        Raises :class:`NoActiveCircuit`, :class:`AmbiguousActiveCircuit`, :class:`UnvalidatedCircuit`,
        :class:`SteeringInvalid`.
        """
        reapplied = False
        warnings: tuple[str, ...] = ()
        with self._change() as change:
            if circuit_id is not None:
                require_circuit(change.step.circuits, circuit_id)
            record = _the_active_one(change.step.circuits.active(), circuit_id)
            require_validated(
                record.id,
                record.rung,
                acknowledged=acknowledge_unvalidated,
                only_persistence=record.only_persistence,
            )
            value = circuit_setting(intensity, self._bounds)
            stored_circuit(record)
            record = change.step.circuits.update(record.id, intensity=value)
            if record.serving_mode is ServingMode.SLICE_FALLBACK:
                warnings = ("Not applied: a slice of it is served by a cluster, whose own dial decides.",)
            elif reapply:
                try:
                    warnings, reapplied = serve_anew(change, record, value), True
                except MillmError as error:
                    warnings = (f"Not applied: {error.one_line()}",)
        # By now the draft has the number under which it was put in place.
        superseded = reapplied and self._desk.state.version != change.draft.state.version
        self._publish(CircuitsChanged())
        return DialledCircuit.of(
            record, self._steers(record), reapplied=reapplied, superseded=superseded, warnings=warnings
        )

    def release_claims(self, circuit_id: str) -> ReleasedClaims:
        """Let go of a circuit's layers, so that others may claim them; what it steers stays."""
        with self._change() as change:
            record = require_circuit(change.step.circuits, circuit_id)
            released = change.step.claims.release(circuit_id)
            mark_composed(change)
            if released:
                # Others may steer the same layers now and nobody will be asked, so no evidence is claimed for it.
                change.desk.apply(transitions.mark_composed({circuit_id: True}))
        warnings: tuple[str, ...] = ()
        if released and record.is_active:
            warnings = (f"'{record.name}' goes on steering; another circuit may now claim the same layers.",)
        if released:
            self._publish(CircuitsChanged())
        return ReleasedClaims(circuit_id, released, warnings)

    def release_all(self) -> tuple[str, ...]:
        """No circuit is active any more: the model has left. Returns the parts that failed, which are logged."""

        def desk() -> None:
            with self._desk.changes() as draft:
                for one in draft.state.circuits:
                    self._desk.apply(transitions.stop_circuit(one.circuit_id))

        with self._lock:
            failed = each_alone(
                {
                    "the serving circuits": desk,
                    "the circuits": self._library.circuits.reset_after_restart,
                    "the claims": self._library.claims.reset_after_restart,
                }
            )
        self._publish(CircuitsChanged())
        return failed

    def _summary(self, record: CircuitRecord) -> CircuitSummary:
        return CircuitSummary.of(record, self._steers(record))

    def _steers(self, record: CircuitRecord) -> bool:
        return holds_live_keys(self._desk.state, record)


def _the_active_one(active: list[CircuitRecord], circuit_id: str | None) -> CircuitRecord:
    if circuit_id is not None:
        active = [each for each in active if each.id == circuit_id]
    if not active:
        raise NoActiveCircuit("No circuit is active, so there is no dial to set.", remedy="Activate a circuit first.")
    if len(active) > 1:
        listed = [{"id": each.id, "name": each.name} for each in active]
        names = " and ".join(f"'{each.name}'" for each in active)
        raise AmbiguousActiveCircuit(
            f"Several circuits are active ({names}); one dial cannot be all of theirs.",
            details={"active_circuits": listed},
            remedy="Deactivate all but one.",
        )
    return active[0]


def _changed(record: CircuitRecord) -> tuple[CircuitsChanged | ClustersChanged, ...]:
    if record.serving_mode is ServingMode.SLICE_FALLBACK:
        return (CircuitsChanged(), ClustersChanged())
    return (CircuitsChanged(),)


def _require_within(name: str, value: int, least: int, most: int | None) -> None:
    if isinstance(value, bool) or value < least or (most is not None and value > most):
        wanted = f"from {least} to {most}" if most is not None else f"from {least}"
        raise InvalidParameter(f"Invalid value for '{name}': expected a whole number {wanted}.", param=name)


log = logging.getLogger(__name__)


def end_what_lost_its_place(
    library: Library, desk: SteeringDesk, profiles: ProfileActions, circuits: CircuitActions
) -> None:
    """Deactivate what the desk can only serve in part now. A part of a circuit has not the whole one's evidence."""
    state = desk.state
    if state.profile is not None and state.profile.place is None and state.profile.authored:
        _end(profiles.deactivate, state.profile.profile_id)
    for one in state.circuits:
        record = library.circuits.get(one.circuit_id)
        if record is not None and {layer for _, layer in one.authored} != set(record.layers):
            _end(circuits.deactivate, one.circuit_id)


def _end(deactivate: Callable[[str], object], name: str) -> None:
    try:
        deactivate(name)
    except MillmError:
        # The SAE is gone already; what could not be recorded is put right at the next start.
        log.exception("%s could not be deactivated after its SAE was detached", name)

"""Clusters and circuits as one looks at them: their documents held against what is attached now, and what is missing.

The rows keep the verdict of the last import or activation; these are made anew, since SAEs come and go in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.actions.steering.circuit_results import CircuitSummary
from engine.actions.steering.lookup import stored_circuit
from engine.actions.steering.results import ClusterSummary
from engine.documents.binding import SaeReference
from engine.documents.circuit import Calibration, CircuitDocument
from engine.documents.cluster import ClusterDocument
from engine.documents.fields import as_number
from engine.documents.ranges import DialBounds, Envelope, circuit_envelope, cluster_envelope
from engine.documents.verdicts import CircuitVerdict, ClusterVerdict, judge_circuit, judge_cluster
from engine.library.records import ProfileRecord, SaeRecord
from engine.steering.claims import Claim
from engine.steering.errors import SteeringInvalid
from engine.steering.live import LiveState, profile_steers
from engine.steering.stored import read_stored, stored_document


@dataclass(frozen=True)
class Advice:
    """What an author found on the dial; each is None where nothing is said."""

    onset: float | None = None
    sweet_spot: float | None = None
    cliff: float | None = None
    provisional: bool = False


@dataclass(frozen=True)
class WantedSae:
    """The SAE of one layer: what the document names, and the id of one in the library that would serve, if any.

    ``attached`` is what serves the layer now.
    """

    layer: int
    reference: SaeReference
    available: str | None
    attached: str | None


@dataclass(frozen=True)
class ClusterView:
    """A cluster. ``document`` and ``verdict`` are None where its document can no longer be read.

    ``to_attach`` is (sae_id, layer) of what is in the library and would bind it, None where it is bound or nothing is.
    ``slice_of`` is the id of the circuit it was cut from, None for an imported one.
    """

    summary: ClusterSummary
    document: ClusterDocument | None
    verdict: ClusterVerdict | None
    envelope: Envelope
    advice: Advice
    steers: bool
    to_attach: tuple[str, int] | None = None
    slice_of: str | None = None

    @classmethod
    def of(
        cls, record: ProfileRecord, state: LiveState, bounds: DialBounds, library: Sequence[SaeRecord]
    ) -> ClusterView:
        """A row under ``state``, with the SAEs of the ``library``."""
        document = stored_document(record)
        verdict = None if document is None else judge_cluster(document, state.attached, bounds)
        raw = {} if document is None else document.raw
        provenance = raw.get("provenance")
        parent = provenance.get("parent_circuit_id") if isinstance(provenance, dict) else None
        active = state.profile is not None and state.profile.profile_id == record.id
        return cls(
            ClusterSummary.of(record),
            document,
            verdict,
            cluster_envelope(read_stored(record).declared, bounds),
            _loose_advice(raw.get("calibration")),
            active and profile_steers(state),
            None if verdict is None or verdict.binding.serves else _to_attach(verdict.binding.reference, library),
            parent if isinstance(parent, str) else None,
        )


@dataclass(frozen=True)
class CircuitView:
    """A circuit. ``document`` and ``verdict`` are None where its document can no longer be read; ``problem`` says why.

    ``claims`` are the layers it holds; ``saes`` what each of its layers needs.
    """

    summary: CircuitSummary
    document: CircuitDocument | None
    verdict: CircuitVerdict | None
    envelope: Envelope
    advice: Advice
    saes: tuple[WantedSae, ...]
    claims: tuple[Claim, ...]
    problem: str | None = None

    @classmethod
    def of(
        cls,
        summary: CircuitSummary,
        state: LiveState,
        bounds: DialBounds,
        library: Sequence[SaeRecord],
        claims: Iterable[Claim],
    ) -> CircuitView:
        """A row under ``state``, with the SAEs of the ``library`` and everybody's ``claims``."""
        held = tuple(each for each in claims if each.circuit_id == summary.record.id)
        try:
            document = stored_circuit(summary.record)
        except SteeringInvalid as error:
            return cls(summary, None, None, bounds.circuit, Advice(), (), held, error.one_line())
        verdict = judge_circuit(document, state.attached, bounds)
        return cls(
            summary,
            document,
            verdict,
            circuit_envelope(document.intensity_range, bounds),
            advice_of(document.definition.calibration),
            wanted_saes(document, verdict, library),
            held,
        )

    @property
    def to_attach(self) -> tuple[tuple[str, int], ...]:
        """What is in the library and would give its layer to a layer that has none: (sae_id, layer)."""
        return tuple(
            (each.available, each.layer) for each in self.saes if each.attached is None and each.available is not None
        )

    @property
    def missing(self) -> tuple[WantedSae, ...]:
        """Layers that nothing here can serve."""
        return tuple(each for each in self.saes if each.attached is None and each.available is None)


def advice_of(calibration: Calibration | None) -> Advice:
    """A circuit's calibration as marks on its dial."""
    if calibration is None:
        return Advice()
    return Advice(calibration.onset, calibration.sweet_spot, calibration.cliff, calibration.provisional)


def wanted_saes(
    document: CircuitDocument, verdict: CircuitVerdict, library: Sequence[SaeRecord]
) -> tuple[WantedSae, ...]:
    """What each layer with features needs: the SAE the document names, else the only one of that layer and size."""
    found = []
    for layer in document.layers:
        reference, binding = document.references[layer], verdict.bindings[layer]
        attached = None if binding.sae is None else binding.sae.sae_id
        found.append(WantedSae(layer, reference, _available(reference, library), attached))
    return tuple(found)


def _to_attach(reference: SaeReference, library: Sequence[SaeRecord]) -> tuple[str, int] | None:
    """An SAE of the library at the layer that is named, else at its own."""
    available = _available(reference, library)
    if available is None:
        return None
    trained = next(each.trained_layer for each in library if each.id == available)
    layer = reference.layer if reference.layer is not None else trained
    return None if layer is None else (available, layer)


def _available(reference: SaeReference, library: Sequence[SaeRecord]) -> str | None:
    if any(each.id == reference.sae_id for each in library):
        return reference.sae_id
    fitting = [
        each.id
        for each in library
        if each.trained_layer == reference.layer
        and reference.n_features in (None, each.d_sae)
        and reference.d_model in (None, each.d_in)
    ]
    return fitting[0] if len(fitting) == 1 else None


def _loose_advice(value: object) -> Advice:
    """A calibration that a cluster may carry beside its schema; what is no number is not there."""
    if not isinstance(value, dict):
        return Advice()
    onset, best, cliff = (as_number(value.get(key)) for key in ("onset", "sweet_spot", "cliff"))
    return Advice(onset, best, cliff, value.get("provisional") is True)

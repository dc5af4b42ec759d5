"""Which attached SAE a document or a request runs on: never a guess about the basis of a feature.

In this order: the exact ``sae_id`` at its layer; else the only SAE at the named layer, if its feature count is the
declared one ("substituted"); a layer with nobody there is unbound; with neither layer nor id, the single attached SAE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.counting import so_many
from engine.errors import shortened


@dataclass(frozen=True)
class AttachedSae:
    """An attachment as plain values: ``d_sae`` features read from a residual stream of width ``d_in``."""

    sae_id: str
    layer: int
    d_sae: int
    d_in: int

    def __str__(self) -> str:
        return f"'{self.sae_id}' at layer {self.layer}"


@dataclass(frozen=True)
class SaeReference:
    """What is known of the SAE that is wanted; None where nothing is said."""

    sae_id: str | None = None
    layer: int | None = None
    n_features: int | None = None
    d_model: int | None = None


class Verdict(StrEnum):
    """How a reference fares: the first two serve."""

    BIND = "bind"
    WARN = "warn"
    UNBOUND = "unbound"
    BLOCK = "block"


class Cause(StrEnum):
    """Why."""

    EXACT = "exact"
    ONLY_AT_LAYER = "only_at_layer"
    ONLY_ATTACHED = "only_attached"
    SUBSTITUTED = "substituted"
    NOTHING_ATTACHED = "nothing_attached"
    NOBODY_AT_LAYER = "nobody_at_layer"
    NOT_ATTACHED = "not_attached"
    AMBIGUOUS = "ambiguous"
    FEATURE_COUNT = "feature_count"


@dataclass(frozen=True)
class Binding:
    """The outcome. ``sae`` is set where it serves; ``reason`` is a sentence part for people, None for a plain match."""

    reference: SaeReference
    verdict: Verdict
    cause: Cause
    sae: AttachedSae | None = None
    reason: str | None = None
    candidates: tuple[AttachedSae, ...] = ()

    @property
    def serves(self) -> bool:
        """Whether something can be steered through it."""
        return self.sae is not None


def bind(reference: SaeReference, attached: Sequence[AttachedSae]) -> Binding:
    """The attachment that ``reference`` runs on among ``attached``."""
    if not attached:
        return Binding(reference, Verdict.UNBOUND, Cause.NOTHING_ATTACHED, reason="no SAE is attached")
    here = [sae for sae in attached if reference.layer is None or sae.layer == reference.layer]
    exact = [sae for sae in here if sae.sae_id == reference.sae_id]
    if len(exact) == 1:
        return _matched(reference, exact[0], Cause.EXACT)
    if len(exact) > 1:
        return _ambiguous(reference, exact, f"{shortened(exact[0].sae_id)} is attached at several layers")
    if reference.layer is not None:
        if not here:
            reason = f"no SAE is attached at layer {reference.layer}"
            return Binding(reference, Verdict.UNBOUND, Cause.NOBODY_AT_LAYER, reason=reason)
        if len(here) > 1:
            return _ambiguous(reference, here, f"several SAEs are attached at layer {reference.layer}")
        return _matched(reference, here[0], Cause.SUBSTITUTED if reference.sae_id else Cause.ONLY_AT_LAYER)
    if reference.sae_id is not None:
        reason = f"the SAE {shortened(reference.sae_id)} is not attached"
        return Binding(reference, Verdict.UNBOUND, Cause.NOT_ATTACHED, reason=reason)
    if len(here) > 1:
        return _ambiguous(reference, here, "several SAEs are attached and neither an SAE nor a layer is named")
    return _matched(reference, here[0], Cause.ONLY_ATTACHED)


def _ambiguous(reference: SaeReference, candidates: Sequence[AttachedSae], reason: str) -> Binding:
    return Binding(reference, Verdict.UNBOUND, Cause.AMBIGUOUS, reason=reason, candidates=tuple(candidates))


def _matched(reference: SaeReference, sae: AttachedSae, cause: Cause) -> Binding:
    if reference.n_features is not None and reference.n_features != sae.d_sae:
        reason = f"it was made for an SAE with {so_many(reference.n_features, 'feature')} and {sae} has {sae.d_sae}"
        return Binding(reference, Verdict.BLOCK, Cause.FEATURE_COUNT, reason=reason, candidates=(sae,))
    remarks = []
    if cause is Cause.SUBSTITUTED:
        remarks.append(f"substituted: made with {shortened(reference.sae_id or '')}, runs on {sae}")
    if reference.d_model is not None and reference.d_model != sae.d_in:
        remarks.append(f"made on a model of width {reference.d_model}, runs on one of width {sae.d_in}")
    verdict = Verdict.WARN if remarks else Verdict.BIND
    return Binding(reference, verdict, cause, sae, "; ".join(remarks) or None)

"""The attached SAE a request runs on, or the refusal that says which ones there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.documents.binding import AttachedSae, Cause, SaeReference, bind
from engine.errors import InvalidParameter, SaeNotAttached
from engine.saes.errors import InvalidFeatureIndex

MAX_NAMED = 20
"""Indices spelt out in one refusal."""


def bound_for_request(
    reference: SaeReference, attached: Sequence[AttachedSae], *, what: str, param: str | None
) -> AttachedSae | None:
    """The SAE a request's ``what`` ("the profile 'calm'") runs on; None when nothing at all is attached.

    Raises :class:`SaeNotAttached`, :class:`InvalidParameter` (several would do; all are listed) and
    :class:`InvalidFeatureIndex` (the declared feature count is another one).
    """
    binding = bind(reference, attached)
    if binding.serves or binding.cause is Cause.NOTHING_ATTACHED:
        return binding.sae
    details = {"attached": pairs(attached)}
    message = f"{what[:1].upper()}{what[1:]} cannot run: {binding.reason}. Attached: {listed(attached)}."
    if binding.cause is Cause.AMBIGUOUS:
        raise InvalidParameter(
            message,
            param=param,
            details=details,
            remedy="Name the SAE and its layer, or detach the others.",
        )
    if binding.cause is Cause.FEATURE_COUNT:
        counts = {"n_features": reference.n_features, "d_sae": binding.candidates[0].d_sae}
        raise InvalidFeatureIndex(
            message, param=param, details={**details, **counts}, remedy="Attach the SAE the document was made with."
        )
    raise SaeNotAttached(message, param=param, details=details, remedy="Attach the SAE it was made with.")


def require_indices(indices: Iterable[int], sae: AttachedSae, *, what: str, param: str | None) -> None:
    """Raises :class:`InvalidFeatureIndex` when ``what`` ("the request") names features that ``sae`` does not have.

    Asked before anything is cleared: a refused activation leaves the live steering as it is.
    """
    outside = sorted(index for index in indices if not 0 <= index < sae.d_sae)
    if not outside:
        return
    raise InvalidFeatureIndex(
        f"{sae} has features 0 to {sae.d_sae - 1}; {what} names {', '.join(map(str, outside[:MAX_NAMED]))}.",
        param=param,
        details={
            "feature_idx": outside[0],
            "d_sae": sae.d_sae,
            "attached_d_sae": sae.d_sae,
            "bad_indices": outside[:MAX_NAMED],
        },
        remedy="Name features that this SAE has, or attach the SAE that has them.",
    )


def listed(attached: Sequence[AttachedSae]) -> str:
    """The attachments for a sentence."""
    return ", ".join(str(sae) for sae in attached) if attached else "none"


def pairs(attached: Sequence[AttachedSae]) -> list[dict[str, object]]:
    """The attachments for an error's details."""
    return [{"sae_id": sae.sae_id, "layer": sae.layer} for sae in attached]

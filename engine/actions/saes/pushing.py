"""How hard something would push now: the length of what it adds, beside the stream's own where that is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.actions.saes.context import SaeContext
from engine.actions.saes.measuring import QUALITY
from engine.steering.push import Push, first_strength, pushes
from engine.steering.strengths import SteeredSet


def typical_norm(context: SaeContext, sae_id: str, layer: int) -> float | None:
    """The residual stream's median norm at ``layer``, where this SAE was measured there on the resident model.

    None elsewhere: a norm of another layer or model says nothing. A model's files of other formats are the same model,
    known by their repository: rounding moves a stream's median by far less than anybody hears. Reads rows.
    """
    resident, record = context.shelf.resident, context.library.saes.get(sae_id)
    quality = None if record is None else record.config.get(QUALITY)
    if resident is None or not isinstance(quality, Mapping):
        return None
    named = quality.get("model_name") == resident.record.name
    of_its_repository = resident.record.repo_id is not None and quality.get("repo_id") == resident.record.repo_id
    if quality.get("layer") != layer or not (named or of_its_repository):
        return None
    median = quality.get("median_norm")
    return float(median) if isinstance(median, int | float) and median > 0 else None


def with_first_strengths(
    context: SaeContext, sae_id: str, layer: int, values: Mapping[int, float | None]
) -> dict[int, float]:
    """``values`` with the strength a feature is first tried with where none is given. Reads rows.

    Raises :class:`SaeNotAttached`, and :class:`InvalidFeatureIndex` for one that the SAE has not.
    """
    given = {index: value for index, value in values.items() if value is not None}
    missing = [index for index in values if index not in given]
    if not missing:
        return given
    sae = context.desk.attachment(sae_id, layer).sae
    typical = typical_norm(context, sae_id, layer)
    lengths = sae.decoder_rows(missing).float().norm(dim=1).tolist()
    first = {index: first_strength(length, typical) for index, length in zip(missing, lengths, strict=True)}
    return {index: given.get(index, first.get(index, 0.0)) for index in values}


def pushes_now(context: SaeContext, sets: Sequence[SteeredSet]) -> tuple[Push, ...]:
    """What ``sets`` add through the SAEs that are attached now, by rising layer; nothing while one of them is not.

    Reads rows, and decoder rows of the SAEs.
    """
    attachments = context.desk.state.attachments
    places = {(each.sae_id, each.layer) for each in attachments}
    steering = [each for each in sets if not each.is_empty]
    if any((each.sae_id, each.layer) not in places for each in steering):
        return ()
    layers = {each.layer for each in steering}
    typical: dict[int, float | None] = {}
    for each in attachments:
        if each.layer in layers and typical.get(each.layer) is None:
            typical[each.layer] = typical_norm(context, each.sae_id, each.layer)
    return pushes(steering, attachments, typical)

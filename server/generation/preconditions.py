"""What steering and activations add to the way of a request: what is refused before a load."""

from __future__ import annotations

from engine.errors import SaeNotAttached
from engine.public.generation import GenerationRequest
from engine.public.library import ModelRecord
from engine.public.models import LoadedModel
from engine.public.monitor import FIELD as ACTIVATIONS
from engine.public.monitor import require_one_answer
from engine.public.steering import PARAM as INLINE


def check_saes(generation: GenerationRequest, record: ModelRecord, resident: LoadedModel | None) -> None:
    """Refuse what is sure to fail once ``record`` is resident, while another model may still be: a model that is loaded
    afresh has no SAE, and the one there is to keep its own.

    Raises :class:`SaeNotAttached` and :class:`SaeActivationsRefused`.
    """
    if generation.activations is not None:
        extra = generation.conversations > 1
        require_one_answer(
            choices=generation.choices_written, prompts=1 if extra else generation.inputs, extra_messages=extra
        )
    if resident is not None and resident.record.id == record.id:
        return
    inline = generation.steering.inline
    if inline is not None and not inline.is_unsteered:
        raise _no_sae(record, INLINE)
    if generation.activations is not None:
        raise _no_sae(record, ACTIVATIONS)


def _no_sae(record: ModelRecord, field: str) -> SaeNotAttached:
    return SaeNotAttached(
        f"'{field}' needs an attached SAE, and the model {record.name!r} is not loaded.",
        param=field,
        details={"attached": []},
        remedy="Load the model and attach an SAE first.",
    )

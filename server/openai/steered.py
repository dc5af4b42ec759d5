"""What steering and activations add to the way of a request: what is refused before a load, and their headers."""

from __future__ import annotations

from engine.documents.evidence import rung_header
from engine.errors import SaeNotAttached
from engine.generation.request import GenerationRequest, TextInput
from engine.generation.service import PreparedRequest
from engine.library.records import ModelRecord
from engine.models.shelf import LoadedModel
from engine.monitor.activation_spec import FIELD as ACTIVATIONS
from engine.monitor.activation_spec import require_one_answer
from engine.steering.inline import PARAM as INLINE
from server import headers


def check_saes(
    generation: GenerationRequest, record: ModelRecord, resident: LoadedModel | None, *, extra_messages: bool = False
) -> None:
    """Refuse what is sure to fail once ``record`` is resident, while another model may still be: a model that is loaded
    afresh has no SAE, and the one there is to keep its own. ``extra_messages``: there are further conversations.

    Raises :class:`SaeNotAttached` and :class:`SaeActivationsRefused`.
    """
    if generation.activations is not None:
        prompts = len(generation.input.prompts) if isinstance(generation.input, TextInput) else 1
        require_one_answer(choices=generation.choices_written, prompts=prompts, extra_messages=extra_messages)
    if resident is not None and resident.record.id == record.id:
        return
    inline = generation.steering.inline
    if inline is not None and not inline.is_unsteered:
        raise _no_sae(record, INLINE)
    if generation.activations is not None:
        raise _no_sae(record, ACTIVATIONS)


def steering_headers(prepared: PreparedRequest, rung: int | None) -> dict[str, str]:
    """The dial's value where it changed the plan, and the rung where one may be claimed."""
    out: dict[str, str] = {}
    if prepared.steering.echo is not None:
        out[headers.STEERING_INTENSITY] = prepared.steering.echo
    if rung is not None:
        out[headers.CIRCUIT_RUNG] = rung_header(rung)
    return out


def _no_sae(record: ModelRecord, field: str) -> SaeNotAttached:
    return SaeNotAttached(
        f"'{field}' needs an attached SAE, and the model {record.name!r} is not loaded.",
        param=field,
        details={"attached": []},
        remedy="Load the model and attach an SAE first.",
    )

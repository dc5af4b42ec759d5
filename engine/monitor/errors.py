"""Refusals of this room, and how attached SAEs are named in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.errors import MillmError
from engine.saes.attachment import Attachment


class SaeActivationsRefused(MillmError):
    """``return_sae_activations`` has a wrong shape, names no one place to read, or asks for too much."""

    code = "sae_activations_refused"


def pairs(attachments: Sequence[Attachment]) -> list[dict[str, Any]]:
    """The attachments for an error's details: ``[{"sae_id", "layer"}, …]``."""
    return [{"sae_id": each.sae_id, "layer": each.layer} for each in attachments]


def listed(attachments: Sequence[Attachment]) -> str:
    """The attachments in words: ``'a' at layer 3, 'b' at layer 7``."""
    return ", ".join(f"'{each.sae_id}' at layer {each.layer}" for each in attachments) or "none"

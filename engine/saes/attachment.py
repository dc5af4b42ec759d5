"""An SAE at its place in the resident model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Only named in an annotation: rooms that build at start hold attachments before torch is imported.
    from engine.saes.sae import Sae


@dataclass(frozen=True, eq=False)
class Attachment:
    """One SAE at one layer of the resident model; the pair (``sae_id``, ``layer``) names it.

    Attributes:
        layer: Block whose output it reads and steers, 0-based.
        layer_module_path: Where that block was found in the model (``model.layers.12``).
        memory_bytes: Bytes its weights hold on the model's device.
    """

    sae_id: str
    layer: int
    sae: Sae
    layer_module_path: str
    memory_bytes: int

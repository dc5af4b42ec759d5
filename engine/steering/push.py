"""How hard a set pushes: the length of the vector that is added, layer by layer.

Strengths are not lengths: features of one layer are summed into one vector, and that is as long as the sum of their
strengths only where their decoder rows point the same way. Two rows of unit length at right angles, with strengths 3
and 4, add 5, not 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.saes.attachment import Attachment
from engine.steering.strengths import SteeredSet, clamp

if TYPE_CHECKING:
    import torch
    from torch import Tensor

GENTLE = 0.15
"""Share of the layer's typical norm at which a feature is first tried: enough to notice, mostly fluent."""

WIDEST = 0.6
"""Share of the typical norm at which dials end: by then grammar breaks. More can still be typed."""

UNMEASURED_STRENGTH, UNMEASURED_END = 1.0, 50.0
"""First strength of a feature, and end of its dial, where the layer's typical norm is not known."""


@dataclass(frozen=True)
class Push:
    """What is added at one layer.

    Attributes:
        layer: The block after which it is added.
        length: Euclidean length of the vector that is added, in the residual stream's own units.
        typical_norm: Median length of the residual stream there; None where it was not measured.
    """

    layer: int
    length: float
    typical_norm: float | None = None

    @property
    def share(self) -> float | None:
        """How long the vector is beside the stream it is added to; None where that is not known."""
        return None if self.typical_norm is None else self.length / self.typical_norm


def first_strength(row_norm: float, typical_norm: float | None, share: float = GENTLE) -> float:
    """The strength with which one feature adds ``share`` of the typical norm; the stated one where that is not known.

    ``row_norm``: length of its decoder row. Two decimals, within ±200.
    """
    if typical_norm is None or row_norm <= 0:
        return UNMEASURED_STRENGTH
    return clamp(round(share * typical_norm / row_norm, 2))


def dial_end(row_norm: float | None, typical_norm: float | None) -> float:
    """The largest strength on a feature's dial, above 0 and at most 200."""
    if typical_norm is None or not row_norm:
        return UNMEASURED_END
    return max(0.01, clamp(round(WIDEST * typical_norm / row_norm, 2)))


def told(pushes: Iterable[Push]) -> str:
    """In words: 38.9 at layer 15, 0.23 × typical norm."""
    parts = []
    for each in pushes:
        beside = "" if each.share is None else f", {each.share:.2g} × typical norm"
        parts.append(f"{each.length:.3g} at layer {each.layer}{beside}")
    return "; ".join(parts)


def length_of(vector: Tensor) -> float:
    """Euclidean length of a vector ``[d_model]`` of any format, on any device."""
    return float(vector.detach().to("cpu").double().norm())


def summed(
    sets: Iterable[SteeredSet], attachments: Iterable[Attachment], device: torch.device | str = "cpu"
) -> dict[int, Tensor]:
    """Layer → Σ strength × decoder row over all sets there: float32 ``[d_model]`` on ``device``.

    Raises KeyError for a set whose SAE is not among the attachments, and as :meth:`engine.saes.sae.Sae.delta`.
    """
    places = {(each.sae_id, each.layer): each.sae for each in attachments}
    sums: dict[int, Tensor] = {}
    for each in sorted(sets, key=lambda one: (one.layer, one.sae_id)):
        if not each.is_empty:
            delta = places[each.sae_id, each.layer].delta(each.values).to(device)
            sums[each.layer] = sums[each.layer] + delta if each.layer in sums else delta
    return sums


def pushes(
    sets: Sequence[SteeredSet], attachments: Sequence[Attachment], typical: Mapping[int, float | None]
) -> tuple[Push, ...]:
    """What ``sets`` add, by rising layer; ``typical`` are the layers' median norms.

    Layers without strengths are left out. Raises as :func:`summed`.
    """
    return tuple(
        Push(layer, length_of(vector), typical.get(layer)) for layer, vector in summed(sets, attachments).items()
    )

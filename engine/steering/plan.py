"""A steering plan: what is added to the residual stream, as a value that belongs to whoever runs with it.

Frozen, with its vectors summed and cast once. Nothing is applied and taken back: a pass carries a plan or it does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from engine.saes.attachment import Attachment
from engine.steering.errors import SteeringInvalid
from engine.steering.hashing import plan_digest
from engine.steering.push import length_of, summed
from engine.steering.report import NO_STEERING, SteeringReport
from engine.steering.strengths import SteeredSet

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class ResidualSpec:
    """The residual stream plans are made for: the resident model's.

    Attributes:
        model_name: Whose it is.
        d_model: Its width. n_layers: blocks of the model.
        device, dtype: Where and in which format vectors are added.
        steer_first: Whether the first position of a text is steered too; it is the attention sink, so not by default.
        blocks_path: Dotted path of the blocks in the model.
    """

    model_name: str
    d_model: int
    n_layers: int
    device: torch.device
    dtype: torch.dtype
    steer_first: bool
    blocks_path: str

    @property
    def position_rule(self) -> str:
        """Which positions are steered, as a word for cache keys."""
        return "all" if self.steer_first else "all-but-first"


@dataclass(frozen=True, eq=False)
class SteeringPlan:
    """What one answer, or one token of it, runs with.

    Attributes:
        sets: What is added, one set per steered SAE.
        deltas: Layer → ``[d_model]``, the sum of that layer's sets, in the stream's dtype and device.
        lengths: Layer → Euclidean length of that vector, as it is added.
        digest: Key for caches: equal digests add equal vectors at equal positions. Empty for the empty plan.
        report: What is said about it.
        rung: The evidence rung that may be claimed, None where none may: not the same as 0.
        version: The live plan's number; 0 for a request's own plan.
    """

    sets: tuple[SteeredSet, ...] = ()
    deltas: Mapping[int, Tensor] = field(default_factory=lambda: MappingProxyType({}))
    digest: str = ""
    report: SteeringReport = NO_STEERING
    rung: int | None = None
    version: int = 0
    lengths: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_empty(self) -> bool:
        return not self.deltas

    def uses(self, sae_id: str) -> bool:
        """Whether it adds rows of that SAE."""
        return any(each.sae_id == sae_id for each in self.sets)


EMPTY_PLAN = SteeringPlan()
"""Adds nothing."""


def build_plan(
    sets: Sequence[SteeredSet],
    attachments: Sequence[Attachment],
    stream: ResidualSpec,
    *,
    report: SteeringReport,
    rung: int | None = None,
    version: int = 0,
) -> SteeringPlan:
    """Sum the decoder rows of ``sets`` per layer in float32 and cast once.

    Raises :class:`SteeringInvalid` when a sum does not fit the stream's number format.
    """
    kept = tuple(each for each in sets if not each.is_empty)
    if not kept:
        return SteeringPlan(report=report, rung=rung, version=version)
    import torch

    sums = summed(kept, attachments, stream.device)
    cast = {layer: total.to(stream.dtype) for layer, total in sums.items()}
    # Strengths that cancel out, or are too small for the format, add nothing: that is the empty plan's pass.
    deltas = {layer: delta for layer, delta in cast.items() if bool((delta != 0).any())}
    for layer, delta in deltas.items():
        if not bool(torch.isfinite(delta).all()):
            raise SteeringInvalid(
                f"The vector for layer {layer} does not fit the model's number format "
                f"({str(stream.dtype).removeprefix('torch.')}).",
                remedy="Lower the strengths, or load the model with DTYPE=float32.",
            )
    if not deltas:
        return SteeringPlan(kept, report=report, rung=rung, version=version)
    here = {layer: delta.detach().to("cpu").contiguous() for layer, delta in deltas.items()}
    digest = plan_digest(
        {layer: _raw(delta) for layer, delta in here.items()},
        position_rule=stream.position_rule,
        model_id=stream.model_name,
        dtype=str(stream.dtype),
    )
    lengths = MappingProxyType({layer: length_of(delta) for layer, delta in here.items()})
    return SteeringPlan(kept, MappingProxyType(deltas), digest, report, rung, version, lengths)


def _raw(tensor: Tensor) -> bytes:
    import torch

    return tensor.view(torch.uint8).numpy().tobytes()

"""How much memory a model needs, term by term, before a byte of it is loaded. Sizes are bytes."""

from __future__ import annotations

from dataclasses import dataclass

from engine.counting import MB
from engine.errors import InsufficientMemory

BYTES_PER_VALUE = {"float32": 4, "bfloat16": 2, "float16": 2}
WORKING_SHARE = 0.10
"""Room for activations and the allocator, as a share of the weights."""
MIN_CONTEXT = 4096
"""Tokens of KV that must fit beside the weights (fewer where the model's window is shorter)."""


@dataclass(frozen=True)
class MemoryPlan:
    """The terms of an estimate. ``kv`` is one conversation of ``kv_tokens`` tokens."""

    weights: int
    kv: int
    kv_tokens: int
    working: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.working


@dataclass(frozen=True)
class MemoryEstimate:
    """What a load takes, in bytes, against what is free.

    Attributes:
        available: What is free on ``device``, with what the model in memory gives back; None where nobody can say,
            because the engine spreads the model over several devices itself.
        number_format: Of the weights.
    """

    terms: MemoryPlan
    available: int | None
    device: str
    number_format: str

    @property
    def fits(self) -> bool:
        """Whether a load is let through."""
        return self.available is None or self.terms.total <= self.available

    def check(self, name: str) -> None:
        """Raise :class:`InsufficientMemory` when the model ``name`` does not fit; the message carries both figures."""
        if self.available is None or self.fits:
            return
        terms, mb = self.terms, MB
        raise InsufficientMemory(
            f"{name} needs about {terms.total // mb} MB on {self.device} ({terms.weights // mb} MB weights, "
            f"{terms.kv // mb} MB for {terms.kv_tokens} tokens of context, {terms.working // mb} MB working memory); "
            f"{self.available // mb} MB are available.",
            details={
                "device": self.device,
                "needed_mb": terms.total // mb,
                "available_mb": self.available // mb,
                "before_loading": True,
                "min_context_tokens": terms.kv_tokens,
            },
            remedy="Close other programs, unload what you do not need, or choose a smaller model.",
            retry_after=30,
        )


@dataclass(frozen=True)
class LoadEstimate:
    """What loading a model would take against what is free: the very figures a load is held to.

    Attributes:
        number_format: Of the weights.
        kv_bytes: Of one conversation of ``kv_tokens`` tokens.
        available_bytes: What is free on ``device``, with what the model in memory would give back; None where nobody
            can say, because the engine spreads the model over several devices itself.
        fits: Whether a load is let through.
    """

    model_id: int
    name: str
    device: str
    number_format: str
    weights_bytes: int
    kv_bytes: int
    kv_tokens: int
    working_bytes: int
    needed_bytes: int
    available_bytes: int | None
    fits: bool


def plan(
    params: int,
    dtype: str,
    *,
    n_layers: int,
    kv_width: int,
    context_length: int,
    bytes_per_weight: float | None = None,
) -> MemoryPlan:
    """Estimate for ``params`` parameters in ``dtype``.

    ``kv_width`` is kv_heads × head_dim; a token's KV takes 2 × n_layers × kv_width values. ``bytes_per_weight``: of
    weights that are quantised while loading, where only the KV is in ``dtype``.
    """
    size = BYTES_PER_VALUE.get(dtype, 4)
    weights = int(params * (size if bytes_per_weight is None else bytes_per_weight))
    return plan_of_weights(weights, size, n_layers=n_layers, kv_width=kv_width, context_length=context_length)


def plan_of_weights(
    weights: int, kv_value_bytes: float, *, n_layers: int, kv_width: int, context_length: int
) -> MemoryPlan:
    """Estimate for ``weights`` bytes of weights, such as a GGUF file, and KV of ``kv_value_bytes`` a value."""
    tokens = min(MIN_CONTEXT, context_length)
    kv = int(2 * n_layers * kv_width * kv_value_bytes * tokens)
    return MemoryPlan(weights, kv, tokens, int(weights * WORKING_SHARE))

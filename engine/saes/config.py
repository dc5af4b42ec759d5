"""What an SAE is, apart from its weights: one frozen description for every source format. Knows no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from engine.saes.errors import SaeIncompatible, SaeLoadFailed, SaeNotSteerable


class Architecture(StrEnum):
    """How pre-activations become activations. Batch-top-k SAEs are ``jumprelu``: that is what they are at inference."""

    STANDARD = "standard"
    GATED = "gated"
    JUMPRELU = "jumprelu"
    TOPK = "topk"


class NormalizeActivations(StrEnum):
    """What is done to an input before it is encoded, and undone after decoding.

    ``EXPECTED_AVERAGE_ONLY_IN`` is one constant for all tokens that must already be folded into the weights: nothing
    is left to do at run time.
    """

    NONE = "none"
    EXPECTED_AVERAGE_ONLY_IN = "expected_average_only_in"
    CONSTANT_NORM_RESCALE = "constant_norm_rescale"
    LAYER_NORM = "layer_norm"


class HookKind(StrEnum):
    """Which tensor of the model the SAE reads."""

    RESID_POST = "resid_post"
    RESID_PRE = "resid_pre"
    MLP_OUT = "mlp_out"
    ATTN_Z = "attn_z"
    OTHER = "other"


class SourceFormat(StrEnum):
    """Who wrote the files."""

    SAELENS = "saelens"
    GEMMA_SCOPE = "gemma_scope"
    GEMMA_SCOPE_2 = "gemma_scope_2"
    SPARSIFY = "sparsify"
    DICTIONARY_LEARNING = "dictionary_learning"
    LLAMA_SCOPE = "llama_scope"
    OPENMOSS = "openmoss"
    QWEN_SCOPE = "qwen_scope"
    GOODFIRE = "goodfire"
    OPENAI = "openai"


BYTES_PER_VALUE: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
"""The number formats an SAE may be stored or held in, and the bytes of one value."""

RESIDUAL_KINDS = frozenset({HookKind.RESID_POST, HookKind.RESID_PRE})


@dataclass(frozen=True)
class SaeConfig:
    """Everything known about an SAE besides its weights; raises :class:`SaeLoadFailed` when it contradicts itself.

    Args:
        architecture: How activations are made from pre-activations.
        d_in: Width of the tensor it reads.
        d_sae: Number of features.
        source_format: Who wrote the files.
        dtype: Number format on disk (``float32``, ``float16``, ``bfloat16``, ``float64``).
        k: Features kept per token; top-k only.
        rescale_acts_by_decoder_norm: Top-k only: pre-activations are multiplied by the decoder rows' norms before the
            choice, and decoding divides by them.
        apply_b_dec_to_input: The decoder's bias is subtracted from the (normalised) input.
        normalize_activations: What is done to the input first.
        center_input: The mean over the width is subtracted from each input and added back after decoding: the source
            ran its model with centred writing weights, whose residual stream is this model's less its mean.
        layer: Block whose output is the tensor read (for other hooks: the block it belongs to), 0-based; None where
            the files do not say.
        hook: Which tensor it reads.
        hook_name: The source's own word for it, verbatim.
        reshape_activations: The source's word for a reshaping of its input (``hook_z``), or None.
        model_name: The model it was trained on, verbatim.
        prepend_bos: Whether the training texts began with BOS.
        context_size: Tokens per training text.
        assumed: What the files did not say and was taken for granted, one sentence each.
        source_l0: Mean active features per token as the source states it.
        source_variance_explained: Share of variance explained as the source states it, at most 1.
        metadata: What else the source says, JSON values, kept verbatim.
    """

    architecture: Architecture
    d_in: int
    d_sae: int
    source_format: SourceFormat
    dtype: str = "float32"
    k: int | None = None
    rescale_acts_by_decoder_norm: bool = False
    apply_b_dec_to_input: bool = False
    normalize_activations: NormalizeActivations = NormalizeActivations.NONE
    center_input: bool = False
    layer: int | None = None
    hook: HookKind = HookKind.RESID_POST
    hook_name: str | None = None
    reshape_activations: str | None = None
    model_name: str | None = None
    prepend_bos: bool | None = None
    context_size: int | None = None
    assumed: tuple[str, ...] = ()
    source_l0: float | None = None
    source_variance_explained: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("d_in", "d_sae"):
            value = getattr(self, name)
            if not _is_count(value) or value < 1:
                raise SaeLoadFailed(f"An SAE needs {name} of at least 1, not {value!r}.")
        if self.dtype not in BYTES_PER_VALUE:
            known = ", ".join(BYTES_PER_VALUE)
            raise SaeLoadFailed(f"The SAE's weights are in the format {self.dtype!r}; only {known} can be read.")
        if self.architecture is Architecture.TOPK:
            if not _is_count(self.k) or not 1 <= (self.k or 0) <= self.d_sae:
                raise SaeLoadFailed(
                    f"A top-k SAE of {self.d_sae} features needs k from 1 to {self.d_sae}, not {self.k!r}."
                )
        elif self.k is not None or self.rescale_acts_by_decoder_norm:
            raise SaeLoadFailed(
                f"k and rescale_acts_by_decoder_norm belong to top-k, not to {self.architecture.value}."
            )
        if self.layer is not None and (not _is_count(self.layer) or self.layer < 0):
            raise SaeLoadFailed(f"A layer is a whole number from 0, not {self.layer!r}.")
        for name in ("source_l0", "source_variance_explained"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise SaeLoadFailed(f"{name} is not a finite number.")
        if not isinstance(self.assumed, tuple) or not all(isinstance(line, str) for line in self.assumed):
            raise SaeLoadFailed("assumed is a tuple of sentences.")

    @property
    def steering_refusal(self) -> str | None:
        """Why this SAE can neither steer nor read a block's output, or None when it can."""
        name = self.hook_name or self.hook.value
        if self.reshape_activations == "hook_z" or self.hook is HookKind.ATTN_Z:
            return (
                f"It reads attention heads before they are mixed ({name}, reshape_activations hook_z), "
                "not the residual stream."
            )
        if self.hook is HookKind.MLP_OUT:
            return f"It reads the MLP's output ({name}), not the residual stream."
        if self.hook is HookKind.RESID_PRE and self.layer is None:
            return f"It reads the embeddings ({name}), which no block puts out."
        if self.hook not in RESIDUAL_KINDS:
            return f"It reads {name}, which is not the residual stream after a block."
        return None

    def require_steerable(self) -> None:
        """Raise :class:`SaeNotSteerable` unless the SAE reads a block's output."""
        reason = self.steering_refusal
        if reason is not None:
            raise SaeNotSteerable(
                f"This SAE cannot be attached for steering. {reason}",
                details={"hook": self.hook.value, "hook_name": self.hook_name},
                remedy="Choose an SAE of the residual stream (resid_post or resid_pre).",
            )

    def memory_bytes(self, bytes_per_value: int) -> int:
        """Bytes of both matrices and both biases at ``bytes_per_value`` each; an estimate made before loading."""
        return (2 * self.d_in * self.d_sae + self.d_in + self.d_sae) * bytes_per_value


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True)
class Fit:
    """What speaks against an attachment (``errors``) and what the person should know (``warnings``)."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def require(self, sae_id: str) -> None:
        """Raise :class:`SaeIncompatible` with both lists in its details when there are errors."""
        if self.errors:
            raise SaeIncompatible(
                f"The SAE {sae_id!r} cannot be attached here. {' '.join(self.errors)}",
                details={"errors": list(self.errors), "warnings": list(self.warnings)},
                remedy="Choose an SAE made for this model, or load the model it was made for.",
            )


def judge_fit(config: SaeConfig, *, layer: int, d_model: int, n_layers: int, model_name: str) -> Fit:
    """How ``config`` fits block ``layer`` of a model of width ``d_model`` with ``n_layers`` blocks.

    Errors: what it reads is no block's output, another width, a layer the model has not. Warnings: trained for another
    layer, or for a model whose name neither contains this one's nor is contained in it.
    """
    errors, warnings = [], []
    if config.steering_refusal is not None:
        errors.append(config.steering_refusal)
    if config.d_in != d_model:
        errors.append(f"It reads vectors of width {config.d_in}; this model's are {d_model} wide.")
    if not 0 <= layer < n_layers:
        errors.append(f"There is no layer {layer}: this model has layers 0 to {n_layers - 1}.")
    if config.layer is not None and config.layer != layer:
        warnings.append(f"It was trained for layer {config.layer}, not {layer}.")
    if config.model_name and not _same_model(config.model_name, model_name):
        warnings.append(f"It was trained for {config.model_name}, not {model_name}.")
    return Fit(tuple(errors), tuple(warnings))


def _same_model(trained: str, loaded: str) -> bool:
    first, second = (name.lower().rpartition("/")[2] for name in (trained, loaded))
    return first in second or second in first

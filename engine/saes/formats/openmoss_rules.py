"""What Llama Scope and later OpenMOSS SAEs share: input scaling, thresholds that count the decoder's norm, two hooks.

Their SAEs were trained on x·s with s = √width ÷ (mean norm of the training data). With s folded into ``W_enc``,
x·(s·W_enc) + b_enc gives the activations; decoding divides by s, so ``b_dec`` ÷ s is the bias at the model's scale.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from engine.saes.config import SaeConfig
from engine.saes.errors import SaeLoadFailed
from engine.saes.formats.common import TRANSCODER, refused
from engine.saes.formats.configs import Config


def input_scale(d_in: int, mean_norm: float, file: str) -> float:
    """The factor s by a data set's mean norm. Raises :class:`SaeLoadFailed` when the norm cannot be one."""
    if not math.isfinite(mean_norm) or not 1e-6 <= mean_norm <= 1e9:
        raise SaeLoadFailed(
            f"{file} gives the training data's mean norm as {mean_norm:g}, which cannot be.",
            details={"dataset_average_activation_norm": str(mean_norm)},
            remedy="Download the SAE again; a checkpoint saved before the norm was measured cannot be used.",
        )
    return math.sqrt(d_in) / mean_norm


def refuse_other_kinds(config: Config) -> None:
    """Refuse by name what is no SAE of one tensor."""
    kind = (config.text("sae_type") or "sae").lower()
    if kind != "sae":
        words = {
            "crosscoder": "a crosscoder: it reads several layers at once",
            "clt": "a cross-layer transcoder: each feature writes to several layers",
            "lorsa": "a Lorsa: it replaces attention heads and is no SAE",
            "transcoder": TRANSCODER,
        }
        raise refused(words.get(kind, f"an OpenMOSS {kind}, which is no plain SAE"))
    reads, writes = config.text("hook_point_in"), config.text("hook_point_out")
    if reads is not None and writes is not None and reads != writes:
        raise refused(TRANSCODER)
    if config.flag("use_glu_encoder"):
        raise refused("an SAE with a gated linear (GLU) encoder, which is not supported")


def divide_thresholds_by_norms(tensors: dict[str, Tensor], config: SaeConfig) -> tuple[dict[str, Tensor], SaeConfig]:
    """Thresholds for h where the source compares h·‖W_dec row‖ (``sparsity_include_decoder_norm``)."""
    norms = torch.linalg.vector_norm(tensors["W_dec"], dim=-1, dtype=torch.float32)
    if bool(((norms - 1).abs() < 1e-2).all()):
        return tensors, config
    threshold = tensors["threshold"]
    divided = (threshold.float() / norms.clamp_min(1e-8)).to(threshold.dtype)
    note = "Thresholds were divided by the decoder rows' norms, since the source compares activation × norm with them."
    return {**tensors, "threshold": divided}, replace(config, assumed=(*config.assumed, note))

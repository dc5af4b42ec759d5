"""SAELens: ``cfg.json`` with ``sae_weights.safetensors``, of version 6 and before; also files that borrow its shape.

Version 6 keeps what concerns the model under ``metadata``; before, all keys were flat and some had other names. Other
programs write the same folder with their own tensor names (``encoder.weight``, ``W_e`` …), which are understood too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from engine.saes.architectures import rules_for
from engine.saes.architectures.base import FEATURE_SCALE
from engine.saes.config import Architecture, HookKind, NormalizeActivations, SaeConfig, SourceFormat
from engine.saes.errors import SaeLoadFailed
from engine.saes.formats.common import check_stated, hook_fields, l0_fields, note_leftovers, refused, vector_length
from engine.saes.formats.configs import Config
from engine.saes.formats.draft import FormatMatch, SaeDraft, Source, VectorSource, stored
from engine.saes.formats.orientation import place_matrices
from engine.saes.formats.saelens_rules import (
    architecture_of,
    is_before_version_6,
    normalization_of,
    refuse_two_ended,
    sparsity_l0,
)
from engine.saes.formats.weights import WeightsFile
from engine.saes.hooks import HookPoint, prefer_hf

FORMAT = SourceFormat.SAELENS
LABEL = "SAELens"

W_ENC = ("W_enc", "encoder.weight", "W_e", "w_enc")
W_DEC = ("W_dec", "decoder.weight", "W_d", "w_dec")
B_ENC = ("b_enc", "encoder.bias", "b_e", "bias_enc")
B_DEC = ("b_dec", "decoder.bias", "b_d", "bias_dec")
WIDTHS = ("d_in", "d_model", "input_dim", "activation_dim")
FEATURES = ("d_sae", "d_hidden", "hidden_dim", "dict_size", "num_features")
LAYERS = ("hook_layer", "hook_point_layer", "trained_layer")
SCALING = ("scaling_factor", "finetuning_scaling_factor")


@dataclass(frozen=True)
class _Keys:
    """The names this file uses for the four usual tensors; the encoder's bias is missing in gated SAEs."""

    w_enc: str
    w_dec: str
    b_dec: str
    b_enc: str | None


def sniff(source: Source) -> FormatMatch | None:
    """SAELens's tensor names with its configuration; with less certainty, other names with a similar one."""
    keys = _keys(source.weights)
    if keys is None or source.weights.kind != "safetensors":
        return None
    usual = (keys.w_enc, keys.w_dec, keys.b_dec) == ("W_enc", "W_dec", "b_dec")
    config = source.config
    if config is None:
        return FormatMatch(20, "the tensors W_enc, W_dec and b_dec, without a configuration") if usual else None
    if config.get(*WIDTHS) is None and config.get(*FEATURES) is None:
        return None
    if usual:
        return FormatMatch(90, f"the tensors W_enc, W_dec and b_dec with {config.file}")
    return FormatMatch(50, f"the tensors {keys.w_enc} and {keys.w_dec} with {config.file}")


def describe(source: Source) -> SaeDraft:
    """The SAE by its configuration, the older keys read as their newer names."""
    config, weights = source.require_config(), source.weights
    keys = _keys(weights)
    assert keys is not None
    assumed: list[str] = []
    metadata = config.nested("metadata")
    refuse_two_ended(config, metadata, weights)
    architecture, k = architecture_of(config, weights, assumed)
    first_bias = keys.b_enc if architecture is not Architecture.GATED else "b_gate"
    d_in, d_sae = vector_length(weights, keys.b_dec), vector_length(weights, first_bias or "b_enc")
    check_stated(weights, config.integer(*WIDTHS), d_in, "the width")
    check_stated(weights, config.integer(*FEATURES), d_sae, "the number of features")
    encoder, decoder, notes = place_matrices(
        weights,
        keys.w_enc,
        keys.w_dec,
        d_in=d_in,
        d_sae=d_sae,
        encoder_turned=keys.w_enc == "encoder.weight",
        decoder_turned=keys.w_dec == "decoder.weight",
    )
    assumed += notes
    vectors: dict[str, VectorSource] = {"b_dec": stored(keys.b_dec)}
    for name in rules_for(architecture).tensors:
        key = keys.b_enc if name == "b_enc" and keys.b_enc else name
        vector_length(weights, key)
        vectors[name] = stored(key)
    scale_key = _finetuning_scale(config, weights)
    if scale_key is not None:
        vectors[FEATURE_SCALE] = stored(scale_key)
    used = {keys.w_enc, keys.w_dec, keys.b_dec, keys.b_enc, *rules_for(architecture).tensors, *SCALING}
    note_leftovers(weights, {key for key in used if key}, assumed)
    return SaeDraft(
        SaeConfig(
            architecture=architecture,
            d_in=d_in,
            d_sae=d_sae,
            source_format=FORMAT,
            dtype=weights.tensors[keys.w_dec].dtype,
            k=k,
            rescale_acts_by_decoder_norm=architecture is Architecture.TOPK
            and bool(config.flag("rescale_acts_by_decoder_norm")),
            apply_b_dec_to_input=_applies_b_dec(config, assumed),
            normalize_activations=_normalization(source, config, assumed),
            center_input=_centred(config, metadata),
            **_hook(source, config, metadata, assumed),
            model_name=_text(config, metadata, "model_name"),
            prepend_bos=_prepend_bos(config, metadata),
            context_size=config.integer("context_size") or metadata.integer("context_size"),
            source_l0=l0_fields(source, _stated_l0(source, config, metadata, d_sae, assumed), assumed),
            source_variance_explained=metadata.number("variance_explained") or config.number("variance_explained"),
            metadata=dict(config.values),
            assumed=tuple(assumed),
        ),
        encoder,
        decoder,
        vectors,
    )


def _keys(weights: WeightsFile) -> _Keys | None:
    found = [next((name for name in names if name in weights.tensors), None) for names in (W_ENC, W_DEC, B_DEC, B_ENC)]
    w_enc, w_dec, b_dec, b_enc = found
    return _Keys(w_enc, w_dec, b_dec, b_enc) if w_enc and w_dec and b_dec else None


def _text(config: Config, metadata: Config, *names: str) -> str | None:
    return metadata.text(*names) or config.text(*names)


def _applies_b_dec(config: Config, assumed: list[str]) -> bool:
    stated = config.flag("apply_b_dec_to_input")
    if stated is None:
        assumed.append("Whether b_dec is subtracted from the input is not stated; SAELens's default, yes, was assumed.")
        return True
    return stated


def _normalization(source: Source, config: Config, assumed: list[str]) -> NormalizeActivations:
    return normalization_of(config, source.json("activation_scaler.json"), assumed)


def _centred(config: Config, metadata: Config) -> bool:
    # Of the processing TransformerLens may do to a model, only this changes the residual stream itself.
    for place in (metadata, config):
        if place.nested("model_from_pretrained_kwargs").flag("center_writing_weights"):
            return True
    return False


def _hook(source: Source, config: Config, metadata: Config, assumed: list[str]) -> dict[str, Any]:
    name = _text(config, metadata, "hook_name", "hook_point")
    point = prefer_hf(_text(config, metadata, "hf_hook_name"), name)
    stated = config.integer(*LAYERS)
    stated = metadata.integer(*LAYERS) if stated is None else stated
    if point is None and stated is not None:
        assumed.append(
            f"Only the layer, {stated}, is stated; that the residual stream after the block is read was assumed."
        )
        fields: dict[str, Any] = {"layer": stated, "hook": HookKind.RESID_POST, "hook_name": None}
    else:
        if point is not None and point.layer is None and point.kind is HookKind.OTHER:
            point = HookPoint(point.kind, stated, point.name)
        fields = hook_fields(source, point, assumed)
    if (
        metadata.get("hook_head_index") is not None
        or config.get("hook_head_index", "hook_point_head_index") is not None
    ):
        fields["hook"] = HookKind.OTHER
        fields["hook_name"] = f"{fields['hook_name']}, one attention head of it"
    reshape = config.text("reshape_activations")
    if reshape is None and name is not None and "hook_z" in name:
        reshape = "hook_z"
    if reshape not in {None, "none", "hook_z"}:
        raise refused(f"an SAE that reshapes its input as {reshape!r}, which is not known")
    fields["reshape_activations"] = None if reshape == "none" else reshape
    return fields


def _prepend_bos(config: Config, metadata: Config) -> bool | None:
    stated = metadata.flag("prepend_bos")
    stated = config.flag("prepend_bos") if stated is None else stated
    return True if stated is None and is_before_version_6(config, metadata) else stated


def _stated_l0(source: Source, config: Config, metadata: Config, d_sae: int, assumed: list[str]) -> float | None:
    stated = metadata.number("l0", "average_l0") or config.number("l0", "average_l0")
    return stated if stated is not None else sparsity_l0(source.folder / "sparsity.safetensors", d_sae, assumed)


def _finetuning_scale(config: Config, weights: WeightsFile) -> str | None:
    """The key of a factor per feature that decoding applies, or None.

    For a while SAELens saved such a tensor of ones with every SAE; that one means nothing.
    """
    key = next((name for name in SCALING if name in weights.tensors), None)
    if key is None:
        return None
    values = weights.floats(key).float()
    if torch.allclose(values, torch.ones_like(values)):
        return None
    if not config.flag("finetuning_scaling_factor"):
        raise SaeLoadFailed(
            f"{weights.path.name} holds a {key} that is not all ones, and {config.file} does not say "
            "finetuning_scaling_factor: true.",
            details={"tensor": key, "file": str(weights.path)},
            remedy="Ask whoever published the SAE which of the two is right.",
        )
    vector_length(weights, key)
    return key

"""Llama Scope: ``hyperparams.json`` with ``checkpoints/final.safetensors``; JumpReLU with one threshold for all.

``W_enc`` and the threshold are multiplied by √width ÷ ``dataset_average_activation_norm.in``; decoding divides by it.
Decoder rows stay as stored.
"""

from __future__ import annotations

from engine.saes.architectures.base import FEATURE_SCALE
from engine.saes.config import Architecture, SaeConfig, SourceFormat
from engine.saes.errors import SaeLoadFailed
from engine.saes.formats.common import (
    check_stated,
    hook_fields,
    l0_fields,
    near_path,
    note_leftovers,
    refused,
    vector_length,
)
from engine.saes.formats.draft import FormatMatch, SaeDraft, Source, filled, scaled, stored
from engine.saes.formats.openmoss_rules import divide_thresholds_by_norms, input_scale, refuse_other_kinds
from engine.saes.formats.orientation import place_matrices
from engine.saes.hooks import parse_hook

FORMAT = SourceFormat.LLAMA_SCOPE
LABEL = "Llama Scope"

SETTINGS = "hyperparams.json"
_KEYS = ("encoder.weight", "encoder.bias", "decoder.weight", "decoder.bias")


def sniff(source: Source) -> FormatMatch | None:
    """Two linear layers with Llama Scope's settings."""
    if source.weights.kind != "safetensors" or not source.weights.has(*_KEYS):
        return None
    settings = source.json(SETTINGS)
    if settings is None or "jump_relu_threshold" not in settings:
        return None
    return FormatMatch(96, f"encoder.weight and decoder.weight with jump_relu_threshold in {SETTINGS}")


def describe(source: Source) -> SaeDraft:
    """The SAE by its settings."""
    weights, settings = source.weights, source.json(SETTINGS)
    assert settings is not None
    refuse_other_kinds(settings)
    activation = (settings.text("act_fn") or "jumprelu").lower()
    if activation not in {"jumprelu", "topk"}:
        raise refused(f"a Llama Scope SAE with the activation function {activation!r}, which is not supported")
    assumed: list[str] = []
    d_in, d_sae = vector_length(weights, "decoder.bias"), vector_length(weights, "encoder.bias")
    check_stated(weights, settings.integer("d_model"), d_in, "the width")
    check_stated(weights, settings.integer("d_sae"), d_sae, "the number of features")
    threshold = settings.number("jump_relu_threshold")
    mean_norm = settings.nested("dataset_average_activation_norm").number("in")
    if threshold is None or mean_norm is None:
        raise SaeLoadFailed(
            f"{settings.file} says neither how inputs were scaled nor, perhaps, the threshold: "
            "dataset_average_activation_norm.in and jump_relu_threshold are needed.",
            details={"file": settings.file, "key": "dataset_average_activation_norm.in"},
            remedy="Download the settings again.",
        )
    factor = input_scale(d_in, mean_norm, settings.file)
    if activation == "topk":
        assumed.append("It was trained with top-k; for inference its threshold is used, as OpenMOSS does.")
    encoder, decoder, notes = place_matrices(
        weights,
        "encoder.weight",
        "decoder.weight",
        d_in=d_in,
        d_sae=d_sae,
        encoder_turned=True,
        decoder_turned=True,
    )
    assumed += notes
    note_leftovers(weights, _KEYS, assumed)
    hook = settings.text("hook_point_in")
    return SaeDraft(
        SaeConfig(
            architecture=Architecture.JUMPRELU,
            d_in=d_in,
            d_sae=d_sae,
            source_format=FORMAT,
            dtype=weights.tensors["decoder.weight"].dtype,
            apply_b_dec_to_input=bool(settings.flag("apply_decoder_bias_to_pre_encoder")),
            **hook_fields(source, parse_hook(hook) if hook else None, assumed),
            model_name=_model(source, assumed),
            prepend_bos=True,
            context_size=1024,
            source_l0=l0_fields(source, settings.number("top_k"), assumed),
            metadata={**settings.values, "norm_scaling_factor": factor},
            assumed=tuple(assumed),
        ),
        encoder,
        decoder,
        {
            "b_enc": stored("encoder.bias"),
            "b_dec": scaled("decoder.bias", 1 / factor),
            "threshold": filled(threshold * factor, d_sae),
            FEATURE_SCALE: filled(1 / factor, d_sae),
        },
        encoder_scale=factor,
        finish=divide_thresholds_by_norms if settings.flag("sparsity_include_decoder_norm") else None,
    )


def _model(source: Source, assumed: list[str]) -> str | None:
    if "Llama3_1-8B" not in near_path(source).as_posix():
        return None
    assumed.append("The model meta-llama/Llama-3.1-8B was taken from the path.")
    return "meta-llama/Llama-3.1-8B"

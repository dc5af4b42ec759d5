"""OpenMOSS (Llama Scope R1 and later): ``config.json`` with ``sae_weights.safetensors``.

The weight file has SAELens's name and other tensors: ``encoder.*``, ``decoder.*`` (later ``W_E``, ``W_D``, ``b_E``,
``b_D``) and ``log_jumprelu_threshold``. The input scaling is a tensor of its own,
``dataset_average_activation_norm.*``.
"""

from __future__ import annotations

from engine.saes.architectures.base import FEATURE_SCALE
from engine.saes.config import Architecture, NormalizeActivations, SaeConfig, SourceFormat
from engine.saes.errors import SaeLoadFailed
from engine.saes.formats.common import (
    check_stated,
    hook_fields,
    l0_fields,
    note_leftovers,
    refused,
    single_number,
    vector_length,
)
from engine.saes.formats.configs import Config
from engine.saes.formats.draft import FormatMatch, SaeDraft, Source, VectorSource, exponential, filled, scaled, stored
from engine.saes.formats.openmoss_rules import divide_thresholds_by_norms, input_scale, refuse_other_kinds
from engine.saes.formats.orientation import place_matrices
from engine.saes.formats.weights import WeightsFile
from engine.saes.hooks import parse_hook

FORMAT = SourceFormat.OPENMOSS
LABEL = "OpenMOSS"

_LINEAR = ("encoder.weight", "encoder.bias", "decoder.weight", "decoder.bias")
_PLAIN = ("W_E", "b_E", "W_D", "b_D")
_NORM = "dataset_average_activation_norm."


def sniff(source: Source) -> FormatMatch | None:
    """OpenMOSS's tensor names with its configuration."""
    weights = source.weights
    if weights.kind != "safetensors" or not (weights.has(*_LINEAR[:3]) or weights.has(*_PLAIN[:3])):
        return None
    threshold = _threshold_key(weights)
    config = source.config
    if config is not None and "hook_point_in" in config and "d_model" in config:
        return FormatMatch(95, f"encoder and decoder with hook_point_in in {config.file}")
    return FormatMatch(40, f"encoder and decoder with {threshold}") if threshold else None


def describe(source: Source) -> SaeDraft:
    """The SAE by its configuration."""
    weights, config = source.weights, source.require_config()
    refuse_other_kinds(config)
    assumed: list[str] = []
    linear = weights.has(*_LINEAR[:3])
    w_enc, b_enc, w_dec, b_dec = _LINEAR if linear else _PLAIN
    d_sae = vector_length(weights, b_enc)
    d_in = config.integer("d_model", minimum=1) or 0
    if b_dec in weights.tensors:
        check_stated(weights, d_in, vector_length(weights, b_dec), "the width")
    elif config.flag("use_decoder_bias") is not False:
        weights.shape(b_dec)
    check_stated(weights, (config.integer("expansion_factor") or 0) * d_in or None, d_sae, "the number of features")
    encoder, decoder, notes = place_matrices(
        weights, w_enc, w_dec, d_in=d_in, d_sae=d_sae, encoder_turned=linear, decoder_turned=linear
    )
    assumed += notes
    architecture, k, vectors = _activation(config, weights, d_sae, assumed)
    mode, factor = _scaling(config, weights, d_in)
    vectors["b_enc"] = stored(b_enc)
    vectors["b_dec"] = scaled(b_dec, 1 / factor) if b_dec in weights.tensors else filled(0.0, d_in)
    if factor != 1.0:
        vectors[FEATURE_SCALE] = filled(1 / factor, d_sae)
    norms_count = config.flag("sparsity_include_decoder_norm")
    hook = config.text("hook_point_in")
    norms = {name for name in weights.tensors if name.startswith(_NORM)}
    note_leftovers(weights, {w_enc, b_enc, w_dec, b_dec, _threshold_key(weights) or "", *norms}, assumed)
    return SaeDraft(
        SaeConfig(
            architecture=architecture,
            d_in=d_in,
            d_sae=d_sae,
            source_format=FORMAT,
            dtype=weights.tensors[w_dec].dtype,
            k=k,
            rescale_acts_by_decoder_norm=architecture is Architecture.TOPK and norms_count is not False,
            apply_b_dec_to_input=bool(config.flag("apply_decoder_bias_to_pre_encoder")),
            normalize_activations=mode,
            **hook_fields(source, parse_hook(hook) if hook else None, assumed),
            model_name=config.text("model_name"),
            source_l0=l0_fields(source, None, assumed),
            metadata={**config.values, "norm_scaling_factor": factor},
            assumed=tuple(assumed),
        ),
        encoder,
        decoder,
        vectors,
        encoder_scale=factor,
        finish=divide_thresholds_by_norms if norms_count and architecture is Architecture.JUMPRELU else None,
    )


def _activation(
    config: Config, weights: WeightsFile, d_sae: int, assumed: list[str]
) -> tuple[Architecture, int | None, dict[str, VectorSource]]:
    name = (config.text("act_fn") or "relu").lower()
    if name == "jumprelu":
        key = _threshold_key(weights)
        if key is None:
            raise SaeLoadFailed(f"{weights.path.name} is a JumpReLU SAE without log_jumprelu_threshold.")
        vector_length(weights, key)
        return Architecture.JUMPRELU, None, {"threshold": exponential(key)}
    if name in {"topk", "batchtopk"}:
        threshold = config.number("jump_relu_threshold")
        if threshold is not None and threshold > 0:
            assumed.append(f"It was trained with {name}; for inference its threshold is used, as OpenMOSS does.")
            return Architecture.JUMPRELU, None, {"threshold": filled(threshold, d_sae)}
        if name == "topk":
            return Architecture.TOPK, config.integer("top_k", minimum=1), {}
        raise refused("a batch-top-k SAE without a threshold: it can only be used on whole batches")
    if name == "relu":
        return Architecture.STANDARD, None, {}
    raise refused(f"an OpenMOSS SAE with the activation function {name!r}, which is not supported")


def _scaling(config: Config, weights: WeightsFile, d_in: int) -> tuple[NormalizeActivations, float]:
    """What is done to inputs at run time, and the factor to fold into the weights now."""
    mode = config.text("norm_activation") or "dataset-wise"
    if mode == "inference":
        return NormalizeActivations.NONE, 1.0
    if mode == "token-wise":
        return NormalizeActivations.CONSTANT_NORM_RESCALE, 1.0
    if mode != "dataset-wise":
        raise refused(f"an OpenMOSS SAE with the normalisation {mode!r}, which is not supported")
    key = f"{_NORM}{config.text('hook_point_in')}"
    if key not in weights.tensors:
        raise refused(
            "an SAE whose input scaling is unknown: it was trained on inputs scaled by the data set's mean norm, and "
            f"{weights.path.name} does not hold that norm ({key})",
            remedy="Use a checkpoint that holds it, or one saved for inference (norm_activation: inference).",
        )
    if weights.shape(key) not in {(), (1,)}:
        raise SaeLoadFailed(
            f"{weights.path.name}: {key} has shape {list(weights.shape(key))}; one number belongs there."
        )
    return NormalizeActivations.NONE, input_scale(d_in, single_number(weights, key), weights.path.name)


def _threshold_key(weights: WeightsFile) -> str | None:
    return next((name for name in weights.tensors if name.endswith("log_jumprelu_threshold")), None)

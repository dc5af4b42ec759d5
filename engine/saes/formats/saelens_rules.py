"""Rules of SAELens configurations that need more than a look-up: architecture, normalisation, versions, sparsity."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from engine.saes.config import Architecture, NormalizeActivations
from engine.saes.errors import SaeFormatUnknown, SaeLoadFailed
from engine.saes.formats.common import TRANSCODER, refused
from engine.saes.formats.configs import Config, shown
from engine.saes.formats.weights import WeightsFile, open_weights

_KNOWN = {
    "standard": Architecture.STANDARD,
    "gated": Architecture.GATED,
    "jumprelu": Architecture.JUMPRELU,
    "jump_relu": Architecture.JUMPRELU,
    "topk": Architecture.TOPK,
}

_REFUSED = {
    "temporal": "a temporal SAE: it encodes a token with attention to the tokens before it",
    "matching_pursuit": "a matching-pursuit SAE: it finds features by a search, not in one pass",
    "abstopk": "an abs-top-k SAE: its activations may be negative, which nothing here expects",
    "crosscoder": "a crosscoder: it reads several layers at once",
    "clt": "a cross-layer transcoder: each feature writes to several layers",
    "cross_layer_transcoder": "a cross-layer transcoder: each feature writes to several layers",
    "skip": "a skip autoencoder: part of its output goes past the features",
}

_TRAINING_STATES = {"batchtopk", "matryoshka_batchtopk"}

_VERSION = re.compile(r"[0-9]{1,6}")


def architecture_of(config: Config, weights: WeightsFile, assumed: list[str]) -> tuple[Architecture, int | None]:
    """Architecture and k. ``activation_fn: topk`` means top-k whatever ``architecture`` says: that is how versions
    before 6 wrote it.
    """
    activation = config.text("activation_fn_str", "activation_fn")
    named = config.text("architecture")
    name = (named or "").lower()
    if name in _REFUSED:
        raise refused(_REFUSED[name])
    if name in _TRAINING_STATES:
        raise refused(
            f"the training state of a {name} SAE: its threshold is not folded in yet",
            remedy="Export it with SAELens's save_inference_model, which writes a jumprelu SAE.",
        )
    if activation == "topk" or name == "topk":
        k = config.nested("activation_fn_kwargs").integer("k", minimum=1) or config.integer("k", minimum=1)
        if k is None:
            raise SaeLoadFailed(
                f"{config.file} describes a top-k SAE and does not say k.",
                details={"file": config.file, "key": "k"},
                remedy='Add "k" with the number of features kept per token.',
            )
        return Architecture.TOPK, k
    if activation not in {None, "relu", "jumprelu"}:
        raise refused(f"an SAE with the activation function {activation!r}, which is not known")
    if named is None:
        found = _by_tensors(weights)
        assumed.append(f"The architecture is not stated; {found.value} was assumed from the tensors.")
        return found, None
    if name not in _KNOWN:
        raise SaeFormatUnknown(
            f"{config.file} names the architecture {named!r}, which is not known.",
            details={"architecture": named, "known": sorted(_KNOWN)},
            remedy=f"Known are {', '.join(sorted({known.value for known in _KNOWN.values()}))}.",
        )
    architecture = _KNOWN[name]
    if architecture is Architecture.STANDARD and (activation == "jumprelu" or "threshold" in weights.tensors):
        raise SaeLoadFailed(
            f"{config.file} says the SAE is standard, but "
            + ("its activation function is jumprelu." if activation == "jumprelu" else "the weights hold thresholds."),
            details={"file": config.file, "architecture": named, "activation_fn": activation},
            remedy='If it is a JumpReLU SAE, its configuration must say "architecture": "jumprelu".',
        )
    return architecture, None


def normalization_of(config: Config, scaler: Config | None, assumed: list[str]) -> NormalizeActivations:
    """The mode, older truth values included. Refuses by name what cannot be honoured."""
    value = config.get("normalize_activations")
    if value is True:
        value = NormalizeActivations.EXPECTED_AVERAGE_ONLY_IN.value
    if value in (None, False, "none"):  # no set: what a file says may have no hash
        return NormalizeActivations.NONE
    if not isinstance(value, str) or value not in {mode.value for mode in NormalizeActivations}:
        what = (
            "unfolded covariance_whitening" if value == "covariance_whitening" else f"the normalisation {shown(value)}"
        )
        raise refused(
            f"an SAE with {what}, which is not supported",
            remedy="Export it with its normalisation folded into the weights (SAELens does so on its final save).",
        )
    mode = NormalizeActivations(value)
    if mode is NormalizeActivations.EXPECTED_AVERAGE_ONLY_IN:
        factor = scaler.number("scaling_factor") if scaler is not None else None
        if factor is not None and abs(factor - 1.0) > 1e-6:
            raise refused(
                f"a training checkpoint whose input scaling of {factor:g} is not folded into the weights",
                remedy="Use the final SAE of that training, or fold the factor with SAELens before exporting.",
            )
        assumed.append(
            "Scaling unknown: it was trained on inputs scaled by one constant (expected_average_only_in), which was "
            "assumed to be folded into the weights already."
        )
    return mode


def refuse_two_ended(config: Config, metadata: Config, weights: WeightsFile) -> None:
    """Refuse what writes elsewhere than it reads: transcoders, with and without a skip connection."""
    name = (config.text("architecture") or "").lower()
    if "W_skip" in weights.tensors or ("transcoder" in name and "skip" in name):
        raise refused("a skip transcoder: it writes another tensor than it reads, part of it past the features")
    reads = metadata.get("hook_name") or config.get("hook_name", "hook_point")
    writes = metadata.get("hook_name_out") or config.get("hook_name_out")
    if "transcoder" in name and "cross" not in name:
        raise refused(TRANSCODER)
    if config.get("d_out") is not None or (writes is not None and writes != reads):
        raise refused(TRANSCODER)


def is_before_version_6(config: Config, metadata: Config) -> bool:
    """Whether the file was written before SAELens 6, which also wrote no version at all for long."""
    version = config.text("sae_lens_version") or metadata.text("sae_lens_version")
    first = version.split(".")[0] if version else ""
    return not _VERSION.fullmatch(first) or int(first) < 6


def sparsity_l0(path: Path, d_sae: int, assumed: list[str]) -> float | None:
    """The mean number of active features by SAELens's optional table of log10 firing frequencies, or None."""
    if not path.is_file():
        return None
    try:
        table = open_weights(path)
        if "sparsity" not in table.tensors or table.shape("sparsity") != (d_sae,):
            raise SaeLoadFailed(f"{path.name} holds no table of {d_sae} firing frequencies.")
        frequencies = torch.pow(10.0, table.floats("sparsity").double())
    except SaeLoadFailed as error:
        # The table only gives a figure to compare with; the SAE is whole without it.
        assumed.append(f"The optional {path.name} was left out: {error.message}")
        return None
    total = float(frequencies.sum())
    if not 0 <= total <= d_sae:
        assumed.append(f"The optional {path.name} was left out: its values are no log10 frequencies.")
        return None
    return total


def _by_tensors(weights: WeightsFile) -> Architecture:
    if "threshold" in weights.tensors:
        return Architecture.JUMPRELU
    if weights.has("b_gate", "b_mag", "r_mag"):
        return Architecture.GATED
    return Architecture.STANDARD

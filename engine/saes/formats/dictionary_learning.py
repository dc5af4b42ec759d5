"""dictionary_learning: ``ae.pt`` with ``config.json``, whose ``trainer.dict_class`` says which class it is.

A final ``ae.pt`` has its input scaling folded into the biases; a backup made during training is nested as
``{"ae": …}`` and has not, so it is refused. Batch-top-k classes are JumpReLU at inference, with one threshold for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from engine.saes.config import Architecture, HookKind, SaeConfig, SourceFormat
from engine.saes.errors import SaeLoadFailed
from engine.saes.formats.common import (
    check_stated,
    hook_fields,
    l0_fields,
    near_path,
    note_leftovers,
    refused,
    single_number,
    vector_length,
)
from engine.saes.formats.configs import Config
from engine.saes.formats.draft import FormatMatch, SaeDraft, Source, VectorSource, filled, stored
from engine.saes.formats.orientation import place_matrices
from engine.saes.formats.weights import WeightsFile, damaged
from engine.saes.hooks import HookPoint, parse_hook, resid_post_name

FORMAT = SourceFormat.DICTIONARY_LEARNING
LABEL = "dictionary_learning"


@dataclass(frozen=True)
class _Class:
    """How one dictionary class stores itself. ``vectors``: canonical name → key. ``linear``: matrices of linear layers,
    the other way round. ``one_threshold``: a single threshold for all features.
    """

    architecture: Architecture
    vectors: Mapping[str, str]
    linear: bool
    subtracts_b_dec: bool
    one_threshold: bool = False


_LINEAR_BIAS = MappingProxyType({"b_enc": "encoder.bias", "b_dec": "b_dec"})
_PLAIN_BIAS = MappingProxyType({"b_enc": "b_enc", "b_dec": "b_dec"})

CLASSES: Mapping[str, _Class] = {
    "AutoEncoder": _Class(Architecture.STANDARD, {"b_enc": "encoder.bias", "b_dec": "bias"}, True, True),
    "AutoEncoderNew": _Class(Architecture.STANDARD, {"b_enc": "encoder.bias", "b_dec": "decoder.bias"}, True, False),
    "GatedAutoEncoder": _Class(
        Architecture.GATED,
        {"b_gate": "gate_bias", "b_mag": "mag_bias", "r_mag": "r_mag", "b_dec": "decoder_bias"},
        True,
        True,
    ),
    "AutoEncoderTopK": _Class(Architecture.TOPK, _LINEAR_BIAS, True, True),
    "BatchTopKSAE": _Class(Architecture.JUMPRELU, _LINEAR_BIAS, True, True, one_threshold=True),
    "JumpReluAutoEncoder": _Class(Architecture.JUMPRELU, {**_PLAIN_BIAS, "threshold": "threshold"}, False, False),
    "MatryoshkaBatchTopKSAE": _Class(Architecture.JUMPRELU, _PLAIN_BIAS, False, True, one_threshold=True),
}


def sniff(source: Source) -> FormatMatch | None:
    """A torch file with the tensor names of one of the classes, best with ``trainer`` in the configuration."""
    weights = source.weights
    if weights.kind != "torch":
        return None
    trainer = source.config is not None and isinstance(source.config.get("trainer"), dict)
    if isinstance(weights.extras.get("ae"), dict):
        return FormatMatch(90, "a dict with the SAE under the key ae")
    if not (weights.has("encoder.weight", "decoder.weight") or weights.has("W_enc", "W_dec")):
        return None
    if trainer:
        return FormatMatch(95, "a torch file with trainer settings beside it")
    own = {"bias", "decoder_bias", "threshold", "group_sizes"} & set(weights.tensors)
    return FormatMatch(40, "a torch file with tensors of an SAE") if own else None


def describe(source: Source) -> SaeDraft:
    """The SAE by its class."""
    weights = source.weights
    if "ae" in weights.extras:
        raise refused(
            "a backup of a training run: its biases still belong to scaled inputs (norm_factor is not folded in)",
            remedy="Use the final ae.pt of that training.",
        )
    config = source.require_config()
    trainer = config.nested("trainer")
    name = trainer.text("dict_class")
    if name is None or name not in CLASSES:
        raise refused(
            f"a dictionary of the class {name!r}, which is not supported",
            remedy=f"Supported are {', '.join(CLASSES)}.",
        )
    kind = CLASSES[name]
    assumed: list[str] = []
    first = kind.vectors.get("b_enc", kind.vectors.get("b_gate", ""))
    d_in, d_sae = vector_length(weights, kind.vectors["b_dec"]), vector_length(weights, first)
    check_stated(weights, trainer.integer("activation_dim"), d_in, "the width")
    check_stated(weights, trainer.integer("dict_size"), d_sae, "the number of features")
    matrices = ("encoder.weight", "decoder.weight") if kind.linear else ("W_enc", "W_dec")
    encoder, decoder, notes = place_matrices(
        weights, *matrices, d_in=d_in, d_sae=d_sae, encoder_turned=kind.linear, decoder_turned=kind.linear
    )
    assumed += notes
    vectors: dict[str, VectorSource] = {}
    for canonical, key in kind.vectors.items():
        vector_length(weights, key)
        vectors[canonical] = stored(key)
    if kind.one_threshold:
        vectors["threshold"] = filled(_threshold(weights, name), d_sae)
    used = {*matrices, *kind.vectors.values(), "k", "threshold", "group_sizes"}
    note_leftovers(weights, used, assumed)
    return SaeDraft(
        SaeConfig(
            architecture=kind.architecture,
            d_in=d_in,
            d_sae=d_sae,
            source_format=FORMAT,
            dtype=weights.tensors[decoder.key].dtype,
            k=_k(weights, trainer, assumed) if kind.architecture is Architecture.TOPK else None,
            apply_b_dec_to_input=kind.subtracts_b_dec,
            **hook_fields(source, _hook(source, trainer, assumed), assumed),
            model_name=trainer.text("lm_name"),
            context_size=config.nested("buffer").integer("ctx_len"),
            source_l0=l0_fields(source, None, assumed),
            metadata=dict(config.values),
            assumed=tuple(assumed),
        ),
        encoder,
        decoder,
        vectors,
    )


def _threshold(weights: WeightsFile, name: str) -> float:
    """The one threshold of a batch-top-k SAE; −1 means it was never set."""
    shape = weights.shape("threshold")
    if shape not in {(), (1,)}:
        raise SaeLoadFailed(f"{weights.path.name}: threshold has shape {list(shape)}; {name} has a single one.")
    value = single_number(weights, "threshold")
    if not value >= 0:
        raise SaeLoadFailed(
            f"{weights.path.name} is a {name} whose threshold is {value:g}: training never got as far as setting it, "
            "and without it the SAE can only be used on whole batches.",
            details={"threshold": value, "file": str(weights.path)},
            remedy="Use a later checkpoint of that training.",
        )
    return value


def _k(weights: WeightsFile, trainer: Config, assumed: list[str]) -> int | None:
    """The weights' own k; the settings' where they hold none."""
    stated = trainer.integer("k", minimum=1)
    if "k" not in weights.tensors:
        return stated
    number = single_number(weights, "k")
    if not number.is_integer():
        raise damaged(weights.path, f"says that k is {number:g}, where a whole number belongs")
    own = int(number)
    if stated is not None and stated != own:
        assumed.append(f"k is {own} in the weights and {stated} in the configuration; the weights' was taken.")
    return own


def _hook(source: Source, trainer: Config, assumed: list[str]) -> HookPoint | None:
    layer = trainer.integer("layer")
    named = trainer.text("submodule_name")
    if named is not None:
        point = parse_hook(named)
        return point if point.layer is not None else HookPoint(point.kind, layer, named)
    for part in reversed(near_path(source).parts):
        point = parse_hook(part.removesuffix("_checkpoints"))
        if "_layer_" in part and point.kind is not HookKind.OTHER and layer in {None, point.layer}:
            assumed.append(f"That it reads {point.name} was taken from the path.")
            return point
    if layer is None:
        return None
    assumed.append("Only the layer is stated; that the residual stream after the block is read was assumed.")
    return HookPoint(HookKind.RESID_POST, layer, resid_post_name(layer))

"""Gemma Scope 2 (Gemma 3): ``params.safetensors`` with lower-case names, and a ``config.json`` that may be missing.

JumpReLU, b_dec not subtracted, trained with BOS. Transcoders and cross-layer transcoders of the same release have an
affine skip connection, another output hook or a decoder of three dimensions, and are refused.
"""

from __future__ import annotations

from engine.saes.config import Architecture, HookKind, SaeConfig, SourceFormat
from engine.saes.errors import SaeFormatUnknown
from engine.saes.formats.common import (
    TRANSCODER,
    check_stated,
    hook_fields,
    l0_fields,
    near_path,
    note_leftovers,
    refused,
    vector_length,
)
from engine.saes.formats.configs import Config
from engine.saes.formats.draft import FormatMatch, SaeDraft, Source, stored
from engine.saes.formats.orientation import place_matrices
from engine.saes.hooks import HookPoint, parse_hook
from engine.saes.path_facts import gemma_3_from_path, layer_from_path

FORMAT = SourceFormat.GEMMA_SCOPE_2
LABEL = "Gemma Scope 2"

_SITES = {
    "resid_post": (HookKind.RESID_POST, "model.layers.{}.output"),
    "mlp_out": (HookKind.MLP_OUT, "model.layers.{}.post_feedforward_layernorm.output"),
    "attn_out": (HookKind.ATTN_Z, "model.layers.{}.self_attn.o_proj.input"),
}


def sniff(source: Source) -> FormatMatch | None:
    """A safetensors file with the five lower-case names."""
    weights = source.weights
    if weights.kind != "safetensors" or not weights.has("w_enc", "w_dec", "b_enc", "b_dec", "threshold"):
        return None
    return FormatMatch(95, "the tensors w_enc, w_dec, b_enc, b_dec and threshold")


def describe(source: Source) -> SaeDraft:
    """The SAE by its configuration, completed from the path."""
    weights, path = source.weights, near_path(source).as_posix()
    config = source.config or Config("config.json", {})
    assumed: list[str] = []
    if len(weights.shape("w_dec")) == 3 or "/clt" in path:
        raise refused("a cross-layer transcoder: each feature writes to several layers")
    if "affine_skip_connection" in weights.tensors or config.flag("affine_connection"):
        raise refused("a skip transcoder: it writes another tensor than it reads, part of it past the features")
    reads, writes = config.text("hf_hook_point_in"), config.text("hf_hook_point_out")
    if (writes is not None and writes != reads) or "transcoder" in path:
        raise refused(TRANSCODER)
    named = config.text("architecture")
    if named not in {None, "jump_relu", "jumprelu"}:
        raise SaeFormatUnknown(
            f"{config.file} names the architecture {named!r}; Gemma Scope 2 SAEs are jump_relu.",
            details={"architecture": named},
        )
    d_in, d_sae = vector_length(weights, "b_dec"), vector_length(weights, "b_enc")
    vector_length(weights, "threshold")
    check_stated(weights, config.integer("width", "d_sae"), d_sae, "the number of features")
    encoder, decoder, notes = place_matrices(
        weights, "w_enc", "w_dec", d_in=d_in, d_sae=d_sae, encoder_turned=False, decoder_turned=False
    )
    assumed += notes
    model = config.text("model_name")
    if model is None and (model := gemma_3_from_path(path)) is not None:
        assumed.append(f"The model {model} was taken from the path.")
    point = parse_hook(reads) if reads is not None else _site_from_path(source, assumed)
    assumed.append("b_dec is not subtracted from the input, as in Gemma Scope 2; the files do not say.")
    note_leftovers(weights, {"w_enc", "w_dec", "b_enc", "b_dec", "threshold"}, assumed)
    return SaeDraft(
        SaeConfig(
            architecture=Architecture.JUMPRELU,
            d_in=d_in,
            d_sae=d_sae,
            source_format=FORMAT,
            dtype=weights.tensors["w_dec"].dtype,
            **hook_fields(source, point, assumed),
            model_name=model,
            prepend_bos=True,
            context_size=1024,
            source_l0=l0_fields(source, config.number("l0"), assumed),
            metadata=dict(config.values),
            assumed=tuple(assumed),
        ),
        encoder,
        decoder,
        {name: stored(name) for name in ("b_dec", "b_enc", "threshold")},
    )


def _site_from_path(source: Source, assumed: list[str]) -> HookPoint | None:
    path = near_path(source)
    layer = layer_from_path(path)
    for word, (kind, name) in _SITES.items():
        if word in path.as_posix() and layer is not None:
            assumed.append(f"That it reads {name.format(layer)} was taken from the path.")
            return HookPoint(kind, layer, name.format(layer))
    return None

"""Gemma Scope (Gemma 2): ``params.npz`` alone. Layer, width, L0 and model stand only in the path, so all are assumed.

JumpReLU, b_dec not subtracted, trained with BOS. Other npz files with the same four tensors and no threshold are plain
ReLU SAEs in the same layout.
"""

from __future__ import annotations

from engine.saes.config import Architecture, HookKind, SaeConfig, SourceFormat
from engine.saes.formats.common import (
    TRANSCODER,
    hook_fields,
    l0_fields,
    near_path,
    note_leftovers,
    refused,
    vector_length,
)
from engine.saes.formats.draft import FormatMatch, SaeDraft, Source, VectorSource, stored
from engine.saes.formats.orientation import place_matrices
from engine.saes.formats.weights import WeightsFile
from engine.saes.hooks import HookPoint
from engine.saes.path_facts import gemma_2_from_path, layer_from_path, width_from_path

FORMAT = SourceFormat.GEMMA_SCOPE
LABEL = "Gemma Scope"


def sniff(source: Source) -> FormatMatch | None:
    """An npz with the four tensors, and nearly always a threshold."""
    weights = source.weights
    if weights.kind != "npz" or not weights.has(_encoder(weights), _decoder(weights), "b_enc", "b_dec"):
        return None
    if "threshold" in weights.tensors:
        return FormatMatch(95, "an npz with W_enc, W_dec, b_enc, b_dec and threshold")
    return FormatMatch(60, "an npz with W_enc, W_dec, b_enc and b_dec")


def describe(source: Source) -> SaeDraft:
    """The SAE by its tensors and its path."""
    weights, path = source.weights, near_path(source)
    assumed: list[str] = []
    gemma = gemma_2_from_path(path)
    model, site = gemma if gemma is not None else (None, None)
    if site == "transcoder" or "transcoder" in path.as_posix().lower():
        raise refused(TRANSCODER)
    if "embedding" in path.as_posix().lower():
        raise refused("an SAE of the embeddings: it reads them before the first block, where nothing is steered")
    d_in, d_sae = vector_length(weights, "b_dec"), vector_length(weights, "b_enc")
    encoder, decoder, notes = place_matrices(
        weights,
        _encoder(weights),
        _decoder(weights),
        d_in=d_in,
        d_sae=d_sae,
        encoder_turned=False,
        decoder_turned=False,
    )
    assumed += notes
    vectors: dict[str, VectorSource] = {"b_dec": stored("b_dec"), "b_enc": stored("b_enc")}
    architecture = Architecture.STANDARD
    if "threshold" in weights.tensors:
        vector_length(weights, "threshold")
        vectors["threshold"] = stored("threshold")
        architecture = Architecture.JUMPRELU
    else:
        assumed.append("There is no threshold; a plain ReLU was assumed.")
    if model is not None:
        assumed.append(f"The model {model} was taken from the path.")
    assumed.append("b_dec is not subtracted from the input, as in Gemma Scope; the file itself does not say.")
    note_leftovers(weights, {encoder.key, decoder.key, "b_enc", "b_dec", "threshold"}, assumed)
    return SaeDraft(
        SaeConfig(
            architecture=architecture,
            d_in=d_in,
            d_sae=d_sae,
            source_format=FORMAT,
            dtype=weights.tensors[decoder.key].dtype,
            **hook_fields(source, _site(source, site), assumed),
            model_name=model,
            prepend_bos=True if model is not None else None,
            context_size=1024 if model is not None else None,
            source_l0=l0_fields(source, None, assumed),
            metadata={"width": width} if (width := width_from_path(path)) else {},
            assumed=tuple(assumed),
        ),
        encoder,
        decoder,
        vectors,
    )


def _encoder(weights: WeightsFile) -> str:
    return "W_enc" if "W_enc" in weights.tensors else "w_enc"


def _decoder(weights: WeightsFile) -> str:
    return "W_dec" if "W_dec" in weights.tensors else "w_dec"


def _site(source: Source, site: str | None) -> HookPoint | None:
    """The tensor by the repository's ending: residual stream, MLP output, or the heads before they are mixed."""
    kinds = {"res": HookKind.RESID_POST, "mlp": HookKind.MLP_OUT, "att": HookKind.ATTN_Z}
    layer = layer_from_path(near_path(source))
    if site is None or layer is None:
        return None
    names = {"res": "hook_resid_post", "mlp": "hook_mlp_out", "att": "attn.hook_z"}
    return HookPoint(kinds[site], layer, f"blocks.{layer}.{names[site]}")

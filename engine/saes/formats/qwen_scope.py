"""Qwen Scope: ``layerN.sae.pt`` alone, both matrices the other way round; k stands only in the repository's name."""

from __future__ import annotations

import re

from engine.saes.config import Architecture, HookKind, SaeConfig, SourceFormat
from engine.saes.errors import SaeFormatUnknown
from engine.saes.formats.common import hook_fields, near_path, note_leftovers, vector_length
from engine.saes.formats.draft import FormatMatch, SaeDraft, Source, stored
from engine.saes.formats.orientation import place_matrices
from engine.saes.hooks import HookPoint
from engine.saes.path_facts import layer_from_path

FORMAT = SourceFormat.QWEN_SCOPE
LABEL = "Qwen Scope"

_REPO = re.compile(r"SAE-Res-(?P<model>.+?)-W\d+[KM]-L0_(?P<k>\d+)")
_TENSORS = ("W_enc", "W_dec", "b_enc", "b_dec")


def sniff(source: Source) -> FormatMatch | None:
    """A torch file with exactly the four tensors and no configuration beside it."""
    weights = source.weights
    if weights.kind != "torch" or set(weights.tensors) != set(_TENSORS) or source.config is not None:
        return None
    named = _REPO.search(near_path(source).as_posix()) is not None
    return FormatMatch(90 if named else 50, "a torch file with just W_enc, W_dec, b_enc and b_dec")


def describe(source: Source) -> SaeDraft:
    """The SAE by its tensors and its path."""
    weights, path = source.weights, near_path(source)
    named = _REPO.search(path.as_posix())
    if named is None:
        raise SaeFormatUnknown(
            f"{weights.path.name} looks like a Qwen Scope SAE, but how many features it keeps per token stands only in "
            "its repository's name, which the path does not show.",
            details={"file": str(weights.path)},
            remedy="Keep the file in a folder named like its repository, for example SAE-Res-Qwen3-8B-Base-W64K-L0_50.",
        )
    assumed: list[str] = []
    k, model = int(named["k"]), f"Qwen/{named['model']}"
    assumed.append(f"k = {k} and the model {model} were taken from the path.")
    d_in, d_sae = vector_length(weights, "b_dec"), vector_length(weights, "b_enc")
    encoder, decoder, notes = place_matrices(
        weights, "W_enc", "W_dec", d_in=d_in, d_sae=d_sae, encoder_turned=True, decoder_turned=True
    )
    assumed += notes
    assumed.append("b_dec is not subtracted from the input, as in Qwen Scope; the file does not say.")
    note_leftovers(weights, _TENSORS, assumed)
    layer = layer_from_path(path)
    point = HookPoint(HookKind.RESID_POST, layer, f"model.layers.{layer}") if layer is not None else None
    return SaeDraft(
        SaeConfig(
            architecture=Architecture.TOPK,
            d_in=d_in,
            d_sae=d_sae,
            source_format=FORMAT,
            dtype=weights.tensors["W_dec"].dtype,
            k=k,
            **hook_fields(source, point, assumed),
            model_name=model,
            source_l0=float(k),
            assumed=tuple(assumed),
        ),
        encoder,
        decoder,
        {"b_dec": stored("b_dec"), "b_enc": stored("b_enc")},
    )

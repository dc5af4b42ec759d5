"""Goodfire: one torch file of two linear layers; ReLU, b_dec not subtracted; layer and model by its name."""

from __future__ import annotations

import re

from engine.saes.config import Architecture, SaeConfig, SourceFormat
from engine.saes.formats.common import hook_fields, note_leftovers, vector_length
from engine.saes.formats.draft import FormatMatch, SaeDraft, Source, stored
from engine.saes.formats.orientation import place_matrices

FORMAT = SourceFormat.GOODFIRE
LABEL = "Goodfire"

_TENSORS = ("encoder_linear.weight", "encoder_linear.bias", "decoder_linear.weight", "decoder_linear.bias")
_NAME = re.compile(r"(?P<model>.+)-SAE-l\d+")


def sniff(source: Source) -> FormatMatch | None:
    """The four tensors of ``encoder_linear`` and ``decoder_linear``."""
    return (
        FormatMatch(95, "the tensors encoder_linear.* and decoder_linear.*") if source.weights.has(*_TENSORS) else None
    )


def describe(source: Source) -> SaeDraft:
    """The SAE by its tensors and its file's name."""
    weights = source.weights
    assumed = ["ReLU without subtracting b_dec, as in Goodfire's SAEs; the file does not say."]
    named = _NAME.match(weights.path.stem)
    model = f"meta-llama/{named['model']}" if named and named["model"].startswith("Llama") else None
    if model is not None:
        assumed.append(f"The model {model} was taken from the file's name.")
    d_in, d_sae = vector_length(weights, _TENSORS[3]), vector_length(weights, _TENSORS[1])
    encoder, decoder, notes = place_matrices(
        weights, _TENSORS[0], _TENSORS[2], d_in=d_in, d_sae=d_sae, encoder_turned=True, decoder_turned=True
    )
    assumed += notes
    note_leftovers(weights, _TENSORS, assumed)
    return SaeDraft(
        SaeConfig(
            architecture=Architecture.STANDARD,
            d_in=d_in,
            d_sae=d_sae,
            source_format=FORMAT,
            dtype=weights.tensors[_TENSORS[2]].dtype,
            **hook_fields(source, None, assumed),
            model_name=model,
            assumed=tuple(assumed),
        ),
        encoder,
        decoder,
        {"b_dec": stored(_TENSORS[3]), "b_enc": stored(_TENSORS[1])},
    )

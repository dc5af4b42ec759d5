"""OpenAI's GPT-2 SAEs: one torch file with ``pre_bias``, ``latent_bias`` and the name of the activation.

Their loader takes top-k to mean that inputs are layer-normalised (by its own comment a makeshift), and so does
this one.
"""

from __future__ import annotations

from typing import Any

from engine.saes.config import Architecture, NormalizeActivations, SaeConfig, SourceFormat
from engine.saes.errors import SaeLoadFailed
from engine.saes.formats.common import hook_fields, note_leftovers, refused, vector_length
from engine.saes.formats.configs import shown
from engine.saes.formats.draft import FormatMatch, SaeDraft, Source, stored
from engine.saes.formats.orientation import place_matrices

FORMAT = SourceFormat.OPENAI
LABEL = "OpenAI"

_TENSORS = ("pre_bias", "latent_bias", "encoder.weight", "decoder.weight")


def sniff(source: Source) -> FormatMatch | None:
    """The four tensors, in a torch file."""
    if source.weights.kind != "torch" or not source.weights.has(*_TENSORS):
        return None
    return FormatMatch(95, "the tensors pre_bias, latent_bias, encoder.weight and decoder.weight")


def describe(source: Source) -> SaeDraft:
    """The SAE by the activation it names."""
    weights = source.weights
    architecture, k = _activation(weights.extras)
    assumed: list[str] = []
    normalization = NormalizeActivations.NONE
    if architecture is Architecture.TOPK:
        normalization = NormalizeActivations.LAYER_NORM
        assumed.append("Inputs are layer-normalised because the activation is top-k, as OpenAI's own loader concludes.")
    d_in, d_sae = vector_length(weights, "pre_bias"), vector_length(weights, "latent_bias")
    encoder, decoder, notes = place_matrices(
        weights, "encoder.weight", "decoder.weight", d_in=d_in, d_sae=d_sae, encoder_turned=True, decoder_turned=True
    )
    assumed += notes
    note_leftovers(weights, {*_TENSORS, "stats_last_nonzero"}, assumed)
    return SaeDraft(
        SaeConfig(
            architecture=architecture,
            d_in=d_in,
            d_sae=d_sae,
            source_format=FORMAT,
            dtype=weights.tensors["decoder.weight"].dtype,
            k=k,
            apply_b_dec_to_input=True,
            normalize_activations=normalization,
            **hook_fields(source, None, assumed),
            assumed=tuple(assumed),
        ),
        encoder,
        decoder,
        {"b_dec": stored("pre_bias"), "b_enc": stored("latent_bias")},
    )


def _activation(extras: Any) -> tuple[Architecture, int | None]:
    name = extras.get("activation")
    if name == "ReLU":
        return Architecture.STANDARD, None
    if name != "TopK":
        raise refused(f"an OpenAI SAE with the activation {shown(name)}; only ReLU and TopK are supported")
    state = extras.get("activation_state_dict")
    state = state if isinstance(state, dict) else {}
    if state.get("postact_fn", "ReLU") != "ReLU":
        raise refused(f"an OpenAI SAE with {shown(state['postact_fn'])} after top-k, which is not supported")
    k = state.get("k")
    if not isinstance(k, int) or isinstance(k, bool):
        raise SaeLoadFailed("The file says TopK and does not say k.", details={"key": "activation_state_dict.k"})
    return Architecture.TOPK, k

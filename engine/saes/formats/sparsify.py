"""EleutherAI sparsify: ``<hookpoint>/cfg.json`` with ``sae.safetensors``. The folder's name is the module path.

Top-k; b_dec is subtracted from the input unless it transcodes. ``W_dec`` is [features, width] already, while
``encoder.weight``, a linear layer's, is [features, width] too and so lies the other way round.
"""

from __future__ import annotations

from engine.saes.config import Architecture, SaeConfig, SourceFormat
from engine.saes.formats.common import (
    TRANSCODER,
    check_stated,
    hook_fields,
    l0_fields,
    note_leftovers,
    refused,
    vector_length,
)
from engine.saes.formats.configs import Config
from engine.saes.formats.draft import FormatMatch, SaeDraft, Source, stored
from engine.saes.formats.orientation import place_matrices
from engine.saes.hooks import HookPoint, parse_hook

FORMAT = SourceFormat.SPARSIFY
LABEL = "EleutherAI sparsify"


def sniff(source: Source) -> FormatMatch | None:
    """A linear encoder beside a bare ``W_dec``, with sparsify's configuration."""
    weights = source.weights
    if weights.kind != "safetensors" or not weights.has("encoder.weight", "encoder.bias", "W_dec", "b_dec"):
        return None
    config = source.config
    if config is not None and "k" in config and ("expansion_factor" in config or "num_latents" in config):
        return FormatMatch(95, f"encoder.weight and W_dec with k in {config.file}")
    return FormatMatch(40, "the tensors encoder.weight, encoder.bias, W_dec and b_dec")


def describe(source: Source) -> SaeDraft:
    """The SAE by its configuration and its folder's name."""
    weights, config = source.weights, source.require_config()
    assumed: list[str] = []
    _refuse_what_is_no_sae(source, config)
    d_in, d_sae = vector_length(weights, "b_dec"), vector_length(weights, "encoder.bias")
    check_stated(weights, config.integer("d_in"), d_in, "the width")
    stated = config.integer("num_latents") or (config.integer("expansion_factor") or 0) * d_in
    check_stated(weights, stated or None, d_sae, "the number of features")
    encoder, decoder, notes = place_matrices(
        weights, "encoder.weight", "W_dec", d_in=d_in, d_sae=d_sae, encoder_turned=True, decoder_turned=False
    )
    assumed += notes
    run = source.json("../config.json") or Config("config.json", {})
    assumed.append("b_dec is subtracted from the input, as in sparsify; the files do not say.")
    note_leftovers(weights, {"encoder.weight", "encoder.bias", "W_dec", "b_dec"}, assumed)
    return SaeDraft(
        SaeConfig(
            architecture=Architecture.TOPK,
            d_in=d_in,
            d_sae=d_sae,
            source_format=FORMAT,
            dtype=weights.tensors["W_dec"].dtype,
            k=config.integer("k", minimum=1),
            apply_b_dec_to_input=True,
            **hook_fields(source, _hook_of_folder(source), assumed),
            model_name=run.text("model"),
            context_size=run.integer("ctx_len"),
            source_l0=l0_fields(source, None, assumed),
            metadata=dict(config.values),
            assumed=tuple(assumed),
        ),
        encoder,
        decoder,
        {"b_dec": stored("b_dec"), "b_enc": stored("encoder.bias")},
    )


def _refuse_what_is_no_sae(source: Source, config: Config) -> None:
    if "W_skip" in source.weights.tensors or config.flag("skip_connection"):
        raise refused("a skip transcoder: it writes another tensor than it reads, part of it past the features")
    if config.flag("transcode"):
        raise refused(TRANSCODER)
    activation = config.text("activation") or "topk"
    if activation != "topk":
        raise refused(f"a sparsify SAE with the activation {activation!r}; only topk is supported")
    for name in ("signed", "embed_skip", "gram_lookup"):
        if config.flag(name):
            raise refused(f"a sparsify SAE with {name}, which is not supported")


def _hook_of_folder(source: Source) -> HookPoint | None:
    point = parse_hook(source.folder.name)
    return point if point.layer is not None or source.folder.name == "embed_tokens" else None

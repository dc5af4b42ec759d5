"""Files that are recognised only to say what they are: transcoder sets, cross-layer transcoders, temporal SAEs."""

from __future__ import annotations

import re

from engine.saes.errors import SaeNotSteerable
from engine.saes.formats.common import TRANSCODER, has_sibling, refused
from engine.saes.formats.draft import Source

_NUMBERED = re.compile(r"W_(enc|dec)_\d+")
_SETS = ("wandb-config.yaml", "wanb-config.yaml", "config.yaml")
"""What lies beside the layers of circuit-tracer's transcoder sets (one of them is spelt so in the wild)."""


def refusal(source: Source) -> SaeNotSteerable | None:
    """The error to raise for files that no format reads but that are known, or None."""
    weights = source.weights
    names = set(weights.tensors)
    if any(_NUMBERED.fullmatch(name) for name in names):
        return refused("a cross-layer transcoder: each feature writes to several layers")
    if any(len(stored.shape) == 3 and _is_matrix(name) for name, stored in weights.tensors.items()):
        return refused("a crosscoder or cross-layer transcoder: its matrices span several layers")
    if {"D", "b"} <= names and any(name.startswith("attn_layers.") for name in names):
        return refused("a temporal SAE: it encodes a token with attention to the tokens before it")
    if {"W_enc", "W_dec"} <= names and "W_skip" in names:
        return refused("a skip transcoder: it writes another tensor than it reads, part of it past the features")
    if {"W_enc", "W_dec", "b_enc", "b_dec"} <= names and source.config is None and has_sibling(source.folder, *_SETS):
        return refused(TRANSCODER)
    return None


def _is_matrix(name: str) -> bool:
    return name.lower().startswith(("w_", "encoder.weight", "decoder.weight"))

"""Names of hook points, as the sources write them, and which tensor of the model each one means.

TransformerLens (``blocks.12.hook_resid_post``), Hugging Face module paths (``model.layers.12``, with or without
``.output`` / ``.input``), Neuronpedia (``blocks.12.resid-post``), OpenMOSS (``L12R``) and dictionary_learning
(``resid_post_layer_12``) all occur. Knows no torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.saes.config import HookKind


@dataclass(frozen=True)
class HookPoint:
    """A tensor of the model.

    ``layer`` is the block whose *output* the tensor is: for ``resid_pre`` of block N that is N − 1, and None for block
    0, which reads the embeddings. For tensors inside a block it is that block. None where the name has no number.
    ``name`` is the source's own word.
    """

    kind: HookKind
    layer: int | None
    name: str


# A number of more digits is no layer of any model, and Python refuses to read very long ones.
_LENS = re.compile(r"blocks\.(\d{1,6})\.(.+)")
_MODULE = re.compile(r"(?:.+\.)?(?:layers|h|blocks|layer)\.(\d{1,6})(?:\.(.+))?|layers?[_.-]?(\d{1,6})")
_MOSS = re.compile(r"L(\d{1,6})(R|M|A|TC)")
_SUBMODULE = re.compile(r"(.+?)_layer_(\d{1,6})")

_INSIDE_LENS = {
    "hook_resid_post": HookKind.RESID_POST,
    "resid-post": HookKind.RESID_POST,
    "resid_post": HookKind.RESID_POST,
    "hook_out": HookKind.RESID_POST,
    "hook_resid_pre": HookKind.RESID_PRE,
    "resid-pre": HookKind.RESID_PRE,
    "resid_pre": HookKind.RESID_PRE,
    "hook_in": HookKind.RESID_PRE,
    "hook_mlp_out": HookKind.MLP_OUT,
    "mlp-out": HookKind.MLP_OUT,
    "attn.hook_z": HookKind.ATTN_Z,
}

# Gemma adds to the residual what this norm puts out, not what the MLP does.
_INSIDE_MODULE = {
    "": HookKind.RESID_POST,
    "output": HookKind.RESID_POST,
    "input": HookKind.RESID_PRE,
    "mlp": HookKind.MLP_OUT,
    "mlp.output": HookKind.MLP_OUT,
    "post_feedforward_layernorm": HookKind.MLP_OUT,
    "post_feedforward_layernorm.output": HookKind.MLP_OUT,
    "self_attn.o_proj.input": HookKind.ATTN_Z,
}

_SUBMODULES = {
    "resid_post": HookKind.RESID_POST,
    "resid_pre": HookKind.RESID_PRE,
    "mlp_out": HookKind.MLP_OUT,
}

_MOSS_KINDS = {"R": HookKind.RESID_POST, "M": HookKind.MLP_OUT, "A": HookKind.OTHER, "TC": HookKind.OTHER}


def parse_hook(name: str) -> HookPoint:
    """The tensor ``name`` means. A name of no known shape is :attr:`HookKind.OTHER` with no layer; never raises."""
    text = name.strip()
    if found := _LENS.fullmatch(text):
        kind = _INSIDE_LENS.get(found[2], _INSIDE_MODULE.get(found[2], HookKind.OTHER))
        return _point(kind, int(found[1]), name)
    if found := _MODULE.fullmatch(text):
        number, inside = found[1] or found[3], found[2] or ""
        kind = _INSIDE_MODULE.get(inside, _INSIDE_LENS.get(inside, HookKind.OTHER))
        return _point(kind, int(number), name)
    if found := _MOSS.fullmatch(text):
        return _point(_MOSS_KINDS[found[2]], int(found[1]), name)
    if found := _SUBMODULE.fullmatch(text):
        return _point(_SUBMODULES.get(found[1], HookKind.OTHER), int(found[2]), name)
    return HookPoint(HookKind.OTHER, None, name)


def prefer_hf(hf_name: str | None, name: str | None) -> HookPoint | None:
    """The hook of ``hf_name`` where it can be read, else of ``name``; None when neither is given.

    The Hugging Face name says which tensor of *our* model it is; the other must be translated. Where only the other
    can be understood it wins.
    """
    parsed = [parse_hook(text) for text in (hf_name, name) if text]
    for point in parsed:
        if point.kind is not HookKind.OTHER:
            return point
    return parsed[0] if parsed else None


def resid_post_name(layer: int) -> str:
    """The name this program shows for the output of block ``layer``."""
    return f"blocks.{layer}.hook_resid_post"


def _point(kind: HookKind, block: int, name: str) -> HookPoint:
    if kind is HookKind.RESID_PRE:
        return HookPoint(kind, block - 1 if block > 0 else None, name)
    return HookPoint(kind, block, name)

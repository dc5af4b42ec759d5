"""Architectures: one file each, found by name. A new one is a file here, an enum value and a line in ``RULES``.

May import: ``engine.saes.config``. Pre-activations come in, activations go out; no state.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.saes.architectures.base import ArchitectureRules
from engine.saes.architectures.gated import Gated
from engine.saes.architectures.jumprelu import JumpRelu
from engine.saes.architectures.standard import Standard
from engine.saes.architectures.topk import TopK
from engine.saes.config import Architecture

RULES: Mapping[Architecture, ArchitectureRules] = {
    rules.architecture: rules for rules in (Standard(), Gated(), JumpRelu(), TopK())
}


def rules_for(architecture: Architecture) -> ArchitectureRules:
    """The rules of one architecture."""
    return RULES[architecture]

"""Two digests that must not be confused: the published hash of a steered set, and the cache key of a plan.

The published hash names a set of strengths for people. KV caches are keyed by :func:`plan_digest`, which covers the
vectors really added: the same set on a changed SAE, at another position rule or number format gives other activations.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping

from engine.steering.errors import SteeringInvalid
from engine.steering.strengths import applied


def steering_set_hash(sae_id: str, strengths: Mapping[int, float]) -> str:
    """The published hash of ``strengths`` on ``sae_id``: clamped, zeros dropped, by rising index.

    Hashed are UTF-8 lines, each ended by one LF: ``millm.steering-set/v1``, ``sae=<id>``, then ``<index>:<16 hex digits
    of the big-endian IEEE-754 double>``. Raises :class:`SteeringInvalid` for non-finite strengths and for an id with a
    line break.
    """
    if "\r" in sae_id or "\n" in sae_id:
        raise SteeringInvalid("The id of an SAE may not contain line breaks.")
    lines = ["millm.steering-set/v1", f"sae={sae_id}"]
    lines += [f"{index}:{struct.pack('>d', value).hex()}" for index, value in applied(strengths).strengths]
    text = "".join(f"{line}\n" for line in lines)
    return "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def plan_digest(deltas: Mapping[int, bytes], *, position_rule: str, model_id: str, dtype: str) -> str:
    """The cache key of what is added to a residual stream, as 64 hex digits.

    ``deltas`` are the bytes of each layer's vector as added, in ``dtype``; ``position_rule`` says which positions get
    them. Every part is hashed with its length before it, so that no two different plans run together.
    """
    digest = hashlib.sha256()
    for part in (b"millm.plan/v1", model_id.encode(), dtype.encode(), position_rule.encode()):
        digest.update(struct.pack(">Q", len(part)) + part)
    for layer in sorted(deltas):
        digest.update(struct.pack(">QQ", layer, len(deltas[layer])) + deltas[layer])
    return digest.hexdigest()

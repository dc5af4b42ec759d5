"""A decode pass made row by row, after one over all rows has failed: it finds out whose fault it was.

A failed pass has added nothing to its rows that counts: their lengths from before say what is theirs. So each row goes
on from a copy of that, in a pass of its own, and those that can are put together again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.generation.interventions import PassComposer
from engine.generation.lane import Lane

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.backends.backend import Backend, KVStore

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Apart:
    """What came of it.

    Attributes:
        batch: The rows that went well, in the order of ``logits``.
        logits: float32 ``[vocab]`` of each of them.
        errors: Why the others did not.
    """

    batch: KVStore
    logits: dict[Lane, Tensor] = field(default_factory=dict)
    errors: dict[Lane, Exception] = field(default_factory=dict)


def decode_apart(
    backend: Backend,
    batch: KVStore,
    lanes: Sequence[Lane],
    lengths: Sequence[int],
    passes: PassComposer,
    error: Exception,
) -> Apart:
    """Feed each lane's next token to a copy of its row of ``batch``, the first ``lengths[row]`` tokens of it.

    ``error`` is how the pass over all of them ended; a row that cannot be copied ends so too.
    """
    log.warning("a pass over %d rows failed; it is made again row by row", len(lanes), exc_info=error)
    found = Apart(backend.new_batch())
    for row, lane in enumerate(lanes):
        try:
            store = backend.fork(batch, row, lengths[row])
            if store is None:
                raise error
            alone = backend.new_batch()
            backend.join(alone, store)
            (logits,) = backend.decode(alone, [lane.next_token], passes.batch([lane]))
            backend.join(found.batch, alone)
            found.logits[lane] = logits
        except Exception as its_own:
            found.errors[lane] = its_own
    return found

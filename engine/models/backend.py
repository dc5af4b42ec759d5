"""What a backend is: a loaded model that turns token ids into logits, and says what it can do.

The scheduler talks to this interface alone. A *store* holds the keys and values (KV) of one or several rows; a row is
one conversation's past. Only the engine thread may call a backend or touch a store.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from engine.models.residual import PassWork
    from engine.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class ModelInfo:
    """Facts about a loaded model, for people and for the API. ``memory_bytes`` counts the weights as loaded.

    ``blocks_path`` is where the decoder blocks are in the model (``model.layers``). ``backend_word`` is how the API
    calls the way it decodes: ``cbm`` (rows batched together) or ``serial``.
    """

    architecture: str
    n_layers: int
    d_model: int
    vocab_size: int
    context_length: int
    num_parameters: int
    memory_bytes: int
    device: str
    dtype: str
    has_chat_template: bool
    backend_word: str
    blocks_path: str


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do with this model.

    Attributes:
        batching: Rows of different lengths decode in one forward. False: each lane has a pass of its own.
        reason: Why not, in words, where ``batching`` is False.
    """

    batching: bool
    reason: str | None = None


class KVStore(Protocol):
    """The pasts of some rows. ``lengths[r]`` is the number of tokens row r holds."""

    lengths: list[int]

    @property
    def nbytes(self) -> int:
        """Bytes held by keys and values, spare capacity included."""
        ...


class Backend(Protocol):
    """A loaded model. All methods run on the engine thread."""

    info: ModelInfo
    device: torch.device
    dtype: torch.dtype
    capabilities: Capabilities
    tokenizer: Tokenizer

    def new_store(self) -> KVStore:
        """An empty store of one row, for a lane's prefill and for solo decoding."""
        ...

    def new_batch(self) -> KVStore:
        """An empty store of no rows, for lanes decoded together. Needs ``capabilities.batching``."""
        ...

    def extend(self, store: KVStore, token_ids: Sequence[int], work: PassWork | None = None) -> Tensor:
        """Feed ``token_ids`` to the one row of ``store``; returns float32 logits ``[vocab]`` after the last of them.

        ``work``: what this pass adds to the residual stream and who watches it; None is a plain pass.
        """
        ...

    def hidden(self, store: KVStore, token_ids: Sequence[int]) -> Tensor:
        """Feed ``token_ids`` to the one row of ``store``; returns their last hidden states, after the final norm, as
        float32 ``[tokens, d_model]``. Always a plain pass.
        """
        ...

    def decode(self, batch: KVStore, token_ids: Sequence[int], work: PassWork | None = None) -> Tensor:
        """Feed one token to each row of ``batch``; returns float32 logits ``[rows, vocab]``. ``work`` as above."""
        ...

    def join(self, batch: KVStore, store: KVStore) -> int:
        """Copy the one row of ``store`` to the end of ``batch``; returns its row number. ``store`` stays as it is."""
        ...

    def leave(self, batch: KVStore, row: int) -> None:
        """Remove ``row``. The last row takes its number, so the rows stay 0…n−1 without a gap."""
        ...

    def watch_layers(self, layers: Collection[int]) -> None:
        """Make ready for work on exactly ``layers``; work on others still happens, and costs more."""
        ...

    def passes_steered(self, layer: int) -> int:
        """How many passes added something at ``layer`` since the model was loaded: proof that the hook fires."""
        ...

    def close(self) -> None:
        """Free the weights. The backend cannot be used afterwards."""
        ...

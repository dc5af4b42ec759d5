"""What a backend is: a loaded model that turns token ids into logits, and says what it can do.

The scheduler talks to this interface alone. A *store* holds the keys and values (KV) of one or several rows; a row is
one conversation's past. Only the engine thread may call a backend or touch a store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from engine.errors import EngineUnsupported, MillmError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from engine.models.backends.residual import Intervention
    from engine.models.inspection.fill_marks import FillMarks

LLAMACPP_WORD = "llamacpp"
"""What the API calls the way llama.cpp decodes, alone or together."""


@dataclass(frozen=True)
class ModelInfo:
    """Facts about a loaded model, for people and for the API. ``memory_bytes`` counts the weights as loaded.

    ``blocks_path`` is where the decoder blocks are in the model (``model.layers``). ``backend_word`` is how the API
    calls the way it decodes: ``cbm`` (rows batched together), ``serial`` or ``llamacpp``. ``vocab_size`` is the width
    of the logits: ids below it can be written; those below ``readable_ids``, which is no less, can be read.
    """

    architecture: str
    n_layers: int
    d_model: int
    vocab_size: int
    readable_ids: int
    context_length: int
    num_parameters: int
    memory_bytes: int
    device: str
    dtype: str
    has_chat_template: bool
    backend_word: str
    blocks_path: str

    def word(self, *, solo: bool) -> str:
        """What the API calls the way a pass runs; ``solo``: it shares no pass with others."""
        return "serial" if solo and self.backend_word != LLAMACPP_WORD else self.backend_word


@dataclass(frozen=True)
class Steering:
    """What can be done to the residual stream.

    Attributes:
        reads: Every layer's output can be read.
        rows: Each row of a pass can have vectors of its own, at every layer.
        control: Where ``rows`` is False: llama.cpp's control vector moves the model, from layer 1 on.
        reason: Why not everything, in words.
    """

    reads: bool = True
    rows: bool = True
    control: bool = False
    reason: str | None = None

    def check_layer(self, layer: int) -> None:
        """Raise :class:`EngineUnsupported` where an SAE could do nothing at ``layer``."""
        if self.reads or self.rows or (self.control and layer > 0):
            return
        why = f": {self.reason}" if self.reason else ""
        raise EngineUnsupported(
            f"SAEs cannot be used at layer {layer} of this model{why}.",
            param="layer",
            remedy="Use another layer or another file of this model, or set DEVICE to cpu.",
        )


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do with this model.

    Attributes:
        batching: Rows of different lengths decode in one forward. False: each lane has a pass of its own.
        reason: Why not, in words, where ``batching`` is False.
        reads_together: Several whole prompts are read in one forward (:meth:`Backend.read_together`).
        reads_alike: So that each gives the bits it gives alone (:meth:`Backend.logits_at_ends`).
        steering: What can be done to the residual stream.
        chunks: A text can be read in parts. False: whole, and from then on token by token.
        all_logits: One pass gives the logits after each of its tokens (:meth:`Backend.extend_all`).
        copies_lone: A store that was made with ``alone`` can be copied (:meth:`Backend.fork`).
        cuts_lone: Elsewhere: it can be cut (:meth:`Backend.cut`), and gives from there on the bits it gave before.
    """

    batching: bool
    reason: str | None = None
    reads_together: bool = False
    reads_alike: bool = False
    steering: Steering = Steering()
    chunks: bool = True
    all_logits: bool = False
    copies_lone: bool = False
    cuts_lone: bool = False


@dataclass(frozen=True)
class KvNeed:
    """The most keys and values that one lane or one reading will come to hold.

    Attributes:
        tokens: Prompt and cap together.
        batched: In a row of the shared batch; False: in a store of its own.
        alone: That store is made with ``alone`` (:meth:`Backend.new_store`).
        copied: A prompt's, of which lanes take a copy (:meth:`Backend.join`): beside what those lanes need.
    """

    tokens: int
    batched: bool = False
    alone: bool = False
    copied: bool = False


class RowsRefused(Exception):
    """A decode pass was not run because of some of its rows; nothing has changed, and the other rows can go on.

    ``rows`` says which, and what their owners are told.
    """

    def __init__(self, rows: Mapping[int, MillmError]) -> None:
        super().__init__(f"rows {sorted(rows)} cannot go on")
        self.rows = dict(rows)


class Tokenizer(Protocol):
    """Text to token ids and back, and the model's chat template. All methods may be called from any thread.

    ``engine.models.backends.tokenizer`` has the one of transformers' checkpoints and says what each attribute is.
    """

    vocab_size: int
    bos_id: int | None
    bos_text: str
    eos_ids: frozenset[int]
    special_ids: frozenset[int]
    hidden_ids: frozenset[int]
    exact_bytes: bool
    prepended_ids: tuple[int, ...]
    appended_ids: tuple[int, ...]
    template_note: str | None
    """What there is to say about the choice of the chat template."""
    takes_variables: bool
    """Whether a request may set variables of the chat template; where not, they are left out and reported."""
    fill_marks: FillMarks | None
    """The marks by which a gap in a text is shown to the model, where its vocabulary has them."""
    chat_template: str | None
    """The chat template's text."""

    @property
    def has_chat_template(self) -> bool:
        """Whether the model came with a chat template."""
        ...

    def encode(self, text: str, add_special_tokens: bool, most: int | None = None) -> list[int]:
        """The token ids of ``text``. Raises ValueError for text that is not Unicode, ``TextTooLong`` for certainly more
        than ``most``.
        """
        ...

    def at_least(self, text: str) -> int:
        """How many tokens ``text`` has at least, told by its length; 0 where that cannot be told."""
        ...

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str: ...

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of one token."""
        ...

    def token_text(self, token_id: int) -> str: ...

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        continue_final: bool,
        kwargs: Mapping[str, object],
    ) -> str:
        """The conversation as the model's template writes it. Raises ``TemplateRaised``."""
        ...

    def template_fault(self) -> str | None:
        """Why the chat template can write no conversation at all; None where it can, or there is none."""
        ...

    def template_variables(self) -> frozenset[str] | None:
        """Names the chat template reads from outside; None where that cannot be told."""
        ...

    def template_levels(self, name: str) -> frozenset[str]:
        """Words the chat template holds the variable ``name`` against; none where that cannot be told."""
        ...

    def constraint_vocabulary(self) -> tuple[Any, int]:
        """The vocabulary as llguidance takes it, and the one end token it knows. Raises whatever the library does."""
        ...


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
    kv_bytes_per_token: int
    """Keys and values of one token in all layers."""
    kv_cells: int | None
    """Tokens for which there is room in the place all answers share; None where that grows as memory allows."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    def kv_tokens(self, needs: Sequence[KvNeed]) -> int:
        """Tokens for which room is taken when all of ``needs`` are met at once, spare room included."""
        ...

    def new_store(self, *, alone: bool = False, tokens: int = 0) -> KVStore:
        """An empty store of one row, for a lane's prefill and for solo decoding.

        ``alone``: its passes give the same bytes again whatever other rows there are; it never holds more than
        ``tokens`` tokens then.
        """
        ...

    def new_batch(self, *, shared: bool = False) -> KVStore:
        """An empty store of no rows, for lanes decoded together. Needs ``capabilities.batching``.

        ``shared``: it never stands alone, whatever joins it first.
        """
        ...

    def extend(self, store: KVStore, token_ids: Sequence[int], work: Intervention | None = None) -> Tensor:
        """Feed ``token_ids`` to the one row of ``store``; returns float32 logits ``[vocab]`` after the last of them.

        ``work``: what this pass adds to the residual stream and who watches it; None is a plain pass.
        """
        ...

    def extend_all(self, store: KVStore, token_ids: Sequence[int], work: Intervention | None = None) -> Tensor:
        """As :meth:`extend`, with float32 logits ``[tokens, vocab]`` after each token.

        Needs ``capabilities.all_logits``; elsewhere tokens are fed one by one by :meth:`extend`.
        """
        ...

    def read_together(
        self, prompts: Sequence[Sequence[int]], work: Intervention | None = None
    ) -> tuple[list[KVStore], Tensor]:
        """Read several prompts from their first tokens on, in one forward.

        Returns a one-row store for each and float32 logits ``[prompts, vocab]`` after the last token of each. ``work``
        is without observers; its ``unsteered`` counts for every row. Needs ``capabilities.reads_together``.
        """
        ...

    def logits_at_ends(self, prompts: Sequence[Sequence[int]], work: Intervention | None = None) -> Tensor:
        """Read several prompts whole and keep nothing of them: float32 logits ``[prompts, vocab]`` after the last token
        of each, which are the same bits whichever prompts are read together.

        ``work`` is for one prompt alone. Needs ``capabilities.reads_alike``; elsewhere prompts are read one by one by
        :meth:`extend`.
        """
        ...

    def hidden(self, store: KVStore, token_ids: Sequence[int]) -> Tensor:
        """Feed ``token_ids`` to the one row of ``store``; returns their last hidden states, after the final norm, as
        float32 ``[tokens, d_model]``. Always a plain pass.
        """
        ...

    def decode(self, batch: KVStore, token_ids: Sequence[int], work: Intervention | None = None) -> Tensor:
        """Feed one token to each row of ``batch``; returns float32 logits ``[rows, vocab]``. ``work`` as above.

        Raises :class:`RowsRefused` when some rows keep it from running.
        """
        ...

    def join(self, batch: KVStore, store: KVStore) -> int:
        """Copy the one row of ``store`` to the end of ``batch``; returns its row number. ``store`` stays as it is."""
        ...

    def fork(self, store: KVStore, row: int, length: int) -> KVStore | None:
        """A one-row store of its own with the first ``length`` tokens of ``row``; ``store`` stays as it is.

        None where the model's state cannot be cut at a length, or there is no room for a copy: then it is read anew.
        """
        ...

    def cut(self, store: KVStore, length: int) -> None:
        """Forget all but the first ``length`` tokens of the one row of ``store``. Needs ``capabilities.cuts_lone``."""
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

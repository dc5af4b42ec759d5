"""Embeddings: one vector for each text, pooled from the last hidden states (after the final norm).

Every token counts, special ones too. On a decoder that begins each text with the same token, ``cls`` is therefore the
same for all texts. Embeddings are never steered and never monitored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from engine.counting import so_many
from engine.errors import ContextLengthExceeded, InvalidParameter
from engine.generation.errors import EmbeddingVectorInvalid
from engine.generation.prefill_job import PrefillJob, ReadingFigures
from engine.generation.prompts import check_readable
from engine.generation.request import Usage
from engine.models.backends.lengths import TextTooLong

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from engine.models.backends.backend import Backend, KVStore, Tokenizer
    from engine.models.registry import LoadedModel

MAX_LISTED = 16
"""Texts that are too long, named in one refusal."""


class Pooling(StrEnum):
    """How a text's hidden states become one vector."""

    MEAN = "mean"
    LAST = "last"
    CLS = "cls"


@dataclass(frozen=True)
class EmbeddingRequest:
    """What to embed.

    Attributes:
        model: Library name of the model, exactly as asked.
        inputs: The texts, or their token ids; none empty.
        single: The request gave one text, not a list: errors then name ``input`` without a number.
        normalize: Scale each vector to length 1.
    """

    model: str
    inputs: tuple[str | tuple[int, ...], ...]
    single: bool = False
    pooling: Pooling = Pooling.MEAN
    normalize: bool = False

    def __post_init__(self) -> None:
        if not self.inputs:
            raise InvalidParameter("'input' is an empty list; expected at least one text.", param="input")
        for place, text in enumerate(self.inputs):
            if not text:
                raise _empty(self, place)

    def check_count(self, limit: int) -> None:
        """Raise :class:`InvalidParameter` when there are more than ``limit`` texts (``EMBEDDINGS_MAX_INPUTS``)."""
        if len(self.inputs) > limit:
            raise InvalidParameter(
                f"'input' holds {so_many(len(self.inputs), 'text')}; at most {limit} are accepted.",
                param="input",
                details={"inputs": len(self.inputs), "max_inputs": limit},
                remedy=f"Send at most {so_many(limit, 'text')} at once, or raise EMBEDDINGS_MAX_INPUTS.",
            )

    def name(self, place: int) -> str:
        """What text number ``place`` is called on the wire."""
        return "input" if self.single else f"input[{place}]"


@dataclass(frozen=True)
class PreparedEmbeddings:
    """An embeddings request as tokens of a resident model, every text within its window."""

    request: EmbeddingRequest
    loaded: LoadedModel
    token_ids: tuple[tuple[int, ...], ...]

    @property
    def model_name(self) -> str:
        """The resident model's library name."""
        return self.loaded.record.name


@dataclass(frozen=True, eq=False)
class Embedded:
    """The result: ``vectors`` is float32 ``[texts, d_model]``, in the order of the texts. Nothing was written, so
    ``usage.completion_tokens`` is 0.
    """

    vectors: np.ndarray
    usage: Usage
    figures: ReadingFigures


class Embedding(PrefillJob[Embedded]):
    """One embeddings request on its way through the engine."""

    def __init__(self, prepared: PreparedEmbeddings) -> None:
        super().__init__(prepared.loaded, prepared.token_ids)
        self._prepared = prepared
        self._pooled: Tensor | None = None
        self._vectors: list[Tensor] = []

    def _read(
        self, backend: Backend, store: KVStore, chunk: tuple[int, ...], text: int, position: int, *, last: bool
    ) -> None:
        import torch

        with torch.inference_mode():
            states = backend.hidden(store, chunk)
            match self._prepared.request.pooling:
                case Pooling.MEAN:
                    total = states.sum(dim=0)
                    self._pooled = total if self._pooled is None else self._pooled + total
                case Pooling.LAST:
                    self._pooled = states[-1]
                case Pooling.CLS:
                    self._pooled = states[0] if self._pooled is None else self._pooled
            if last:
                self._vectors.append(self._finished(self._pooled, text).cpu())
                self._pooled = None

    def _finished(self, pooled: Tensor, text: int) -> Tensor:
        request = self._prepared.request
        vector = pooled
        if request.pooling is Pooling.MEAN:
            vector = pooled / len(self._prepared.token_ids[text])
        # In double precision, where the squares of no float32 overflow.
        norm = float(vector.cpu().double().norm())
        if not math.isfinite(norm) or norm == 0.0:
            name = request.name(text)
            what = "no length" if norm == 0.0 else "values that are not finite"
            raise EmbeddingVectorInvalid(
                f"The embedding of '{name}' has {what}.", param=name, remedy="Load the model with DTYPE=float32."
            )
        return vector / norm if request.normalize else vector.clone()

    def _result(self, figures: ReadingFigures) -> Embedded:
        import torch

        read = sum(len(ids) for ids in self._prepared.token_ids)
        return Embedded(torch.stack(self._vectors).numpy(), Usage(read, 0), figures)

    def _release(self) -> None:
        self._pooled = None


def tokenize(
    tokenizer: Tokenizer, request: EmbeddingRequest, readable: int, window: int, model_name: str
) -> tuple[tuple[int, ...], ...]:
    """The token ids of every text, whole, special tokens included; ids that were sent are taken as they are.

    Raises :class:`InvalidParameter` for text that is not Unicode, text without a token, and unreadable ids;
    :class:`ContextLengthExceeded` naming up to 16 texts that are longer than ``window`` tokens.
    """
    found: list[tuple[int, ...]] = []
    over: list[tuple[str, int, str]] = []
    for place, text in enumerate(request.inputs):
        name = request.name(place)
        if isinstance(text, str):
            try:
                ids = tuple(tokenizer.encode(text, True, window))
            except TextTooLong as error:
                over.append((name, error.tokens, "at least "))
                continue
            except ValueError as error:
                raise InvalidParameter(
                    f"'{name}' is not Unicode text: half of a surrogate pair.", param=name
                ) from error
            if not ids:
                raise _empty(request, place)
            check_readable(tokenizer, ids, readable, name)
        else:
            ids = text
            outside = next((token for token in ids if not 0 <= token < readable), None)
            if outside is not None:
                raise InvalidParameter(
                    f"'{name}' holds token {outside}, which is outside the model's vocabulary "
                    f"of {so_many(readable, 'token')}.",
                    param=name,
                )
        if len(ids) > window:
            over.append((name, len(ids), ""))
        found.append(ids)
    if over:
        raise _too_long(over, window, model_name)
    return tuple(found)


def _too_long(over: Sequence[tuple[str, int, str]], window: int, model_name: str) -> ContextLengthExceeded:
    listed = ", ".join(f"'{name}' has {about}{so_many(length, 'token')}" for name, length, about in over[:MAX_LISTED])
    more = f", and {len(over) - MAX_LISTED} more are too long" if len(over) > MAX_LISTED else ""
    return ContextLengthExceeded(
        f"The context window of {model_name!r} is {so_many(window, 'token')}; {listed}{more}.",
        param=over[0][0],
        details={
            "context_length": window,
            "inputs": [{"input": name, "tokens": length} for name, length, _ in over[:MAX_LISTED]],
            "inputs_total": len(over),
        },
        remedy="Shorten the text, or send it in parts.",
    )


def _empty(request: EmbeddingRequest, place: int) -> InvalidParameter:
    return InvalidParameter(
        f"'{request.name(place)}' is empty: there is nothing to embed.",
        param="input",
        remedy="Send at least one character.",
    )

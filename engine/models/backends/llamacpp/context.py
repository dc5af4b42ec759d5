"""One ``llama_context``: the cells that hold keys and values, the sequences in them, and passes over tokens.

Sequences share one pool of cells, so that copying one to another costs nothing: both own the same cells. A call of
``llama_decode`` computes all its tokens together, whichever sequences they belong to.
"""

from __future__ import annotations

import ctypes
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.counting import so_many
from engine.errors import GenerationFailed, InsufficientMemory, ModelLoadFailed
from engine.models.backends.llamacpp.binding import complaints, forget_complaints, library
from engine.models.backends.llamacpp.eval_callback import Tap
from engine.models.backends.llamacpp.model import LlamaModel

CELL_STEP = 256
"""Cells are counted in such steps: attention runs over whole ones, so a longer context changes no number."""

KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}
"""Formats of the keys and values, by ggml's enumeration."""

_NO_CELLS = 1
_AUTO, _DISABLED = -1, 0


@dataclass(frozen=True)
class ContextOptions:
    """What all contexts of one model have in common.

    Attributes:
        batch: Most tokens of one call.
        kv_type: Format of the keys and values, one of :data:`KV_TYPES`.
        offloaded: Whether keys and values, and what computes them, go to a GPU.
    """

    batch: int
    threads: int
    kv_type: str
    flash_attention: bool
    offloaded: bool


class NoCells(Exception):
    """There is no free cell for the tokens of a call; nothing has changed."""


class LlamaContext:
    """A context with ``cells`` cells for ``sequences`` sequences. Engine thread only.

    Args:
        tap: Watches and edits the passes; None: a context whose passes nobody looks into, which are a little quicker.
    """

    def __init__(
        self, model: LlamaModel, options: ContextOptions, *, cells: int, sequences: int, tap: Tap | None = None
    ) -> None:
        llama = library()
        self.tap = tap
        self.cells = cells
        self._vocab_size = model.vocab_size
        self._d_output = model.d_output
        self._batch = _Batch(options.batch)
        self.batch_size = options.batch
        params = llama.llama_context_default_params()
        params.n_ctx = cells
        params.n_batch = params.n_ubatch = options.batch
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = options.threads
        params.type_k = params.type_v = KV_TYPES[options.kv_type]
        params.flash_attn_type = _AUTO if options.flash_attention else _DISABLED
        params.pooling_type = llama.LLAMA_POOLING_TYPE_NONE
        params.offload_kqv = params.op_offload = options.offloaded
        params.kv_unified = True
        # A window narrower than the context would keep only the cells inside it, and no past could be shared.
        params.swa_full = True
        params.no_perf = True
        if tap is not None:
            params.cb_eval = tap.callback
        forget_complaints()
        with model.held() as pointer:
            self._pointer = llama.llama_init_from_model(pointer, params)
        if not self._pointer:
            raise ModelLoadFailed(
                f"llama.cpp could not make a context of {cells} tokens.{complaints()}",
                remedy="Set GGUF_CONTEXT_LENGTH to a smaller number, or close other programs.",
            )
        self._memory = llama.llama_get_memory(self._pointer)
        if not self._memory:
            self.close()
            raise ModelLoadFailed("This model keeps no past, so it cannot write.", remedy="Use a decoder-only model.")
        self._free = list(range(sequences))
        self._count = sequences

    # --- sequences --------------------------------------------------------------------------------------------------

    @property
    def pointer(self) -> Any:
        """llama.cpp's own; None when it has been freed."""
        return self._pointer

    @property
    def closed(self) -> bool:
        return self._pointer is None

    @property
    def in_use(self) -> int:
        """Sequences that hold something."""
        return self._count - len(self._free)

    def take(self) -> int | None:
        """An empty sequence, or None when all are in use."""
        return heapq.heappop(self._free) if self._free else None

    def give_back(self, sequence: int) -> None:
        """Empty a sequence; its cells are free at once, but for those that others own too."""
        if self._pointer is None:
            return
        library().llama_memory_seq_rm(self._memory, sequence, -1, -1)
        heapq.heappush(self._free, sequence)

    def share(self, source: int, target: int, length: int | None = None) -> None:
        """Let ``target``, which is empty, own the cells of ``source``: all, or those of its first ``length`` tokens."""
        if length == 0:
            # To the library an end of 0 is no end: it would share everything.
            return
        library().llama_memory_seq_cp(self._memory, source, target, 0, -1 if length is None else length)

    def cut(self, sequence: int, length: int) -> None:
        """Forget all but the first ``length`` tokens of a sequence."""
        library().llama_memory_seq_rm(self._memory, sequence, length, -1)

    def copy_from(self, other: LlamaContext, source: int, target: int) -> bool:
        """Copy a sequence of another context of the same model into ``target``; False when there is no room."""
        llama = library()
        size = int(llama.llama_state_seq_get_size(other._pointer, source))
        buffer = (ctypes.c_uint8 * size)()
        written = int(llama.llama_state_seq_get_data(other._pointer, buffer, size, source))
        if not written:
            return False
        return bool(llama.llama_state_seq_set_data(self._pointer, buffer, written, target))

    def length(self, sequence: int) -> int:
        """Tokens a sequence holds."""
        return int(library().llama_memory_seq_pos_max(self._memory, sequence)) + 1

    # --- passes -----------------------------------------------------------------------------------------------------

    def decode(
        self, token_ids: Sequence[int], positions: Sequence[int], sequences: Sequence[int], asked: Sequence[int]
    ) -> None:
        """Compute the tokens, which are no more than ``batch_size``. ``asked``: places whose outputs are wanted.

        Raises :class:`NoCells`, and :class:`GenerationFailed` when llama.cpp gives up.
        """
        self._batch.fill(token_ids, positions, sequences, asked)
        forget_complaints()
        code = int(library().llama_decode(self._pointer, self._batch.struct))
        if self.tap is not None:
            self.tap.check()
        if code == _NO_CELLS:
            raise NoCells
        if code:
            raise GenerationFailed(
                f"llama.cpp gave up on a pass of {so_many(len(token_ids), 'token')} (code {code}).{complaints()}",
                remedy="Send the request again; load the model anew if it happens once more.",
            )

    def logits(self, rows: int) -> Tensor:
        """Logits of the last call: float32 ``[rows, vocab]``, a row for each place that was asked for, in order."""
        return self._outputs(library().llama_get_logits(self._pointer), rows, self._vocab_size)

    def last_logits(self) -> Tensor:
        """Logits ``[vocab]`` of the last place that was asked for."""
        return self._outputs(library().llama_get_logits_ith(self._pointer, -1), 1, self._vocab_size)[0]

    def states(self, rows: int) -> Tensor:
        """States after the final norm: float32 ``[rows, width]``. Needs :meth:`give_states`."""
        return self._outputs(library().llama_get_embeddings(self._pointer), rows, self._d_output)

    def give_states(self, wanted: bool) -> None:
        """Whether calls give the states after the final norm from now on."""
        library().llama_set_embeddings(self._pointer, wanted)

    @staticmethod
    def _outputs(pointer: Any, rows: int, width: int) -> Tensor:
        if not pointer:
            raise GenerationFailed("llama.cpp gave no result for a pass.", remedy="Load the model anew.")
        # A copy: the next call writes over this memory.
        return torch.from_numpy(np.ctypeslib.as_array(pointer, (rows, width)).copy())

    def clear(self) -> None:
        """Empty it, as if it were new. No sequence may be in use."""
        library().llama_memory_clear(self._memory, False)

    def close(self) -> None:
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            library().llama_free(pointer)


class _Batch:
    """The arrays of a ``llama_batch``, filled anew for each call; every token belongs to one sequence."""

    def __init__(self, size: int) -> None:
        llama = library()
        self._tokens = np.zeros(size, dtype=np.int32)
        self._positions = np.zeros(size, dtype=np.int32)
        self._counts = np.ones(size, dtype=np.int32)
        self._sequences = np.zeros(size, dtype=np.int32)
        self._asked = np.zeros(size, dtype=np.int8)
        # One pointer for each token, to its place in the array of sequences.
        self._pointers = (self._sequences.ctypes.data + 4 * np.arange(size, dtype=np.uintp)).astype(np.uintp)
        self.struct = llama.llama_batch()
        kinds = dict(llama.llama_batch._fields_)
        for name, array in (
            ("token", self._tokens),
            ("pos", self._positions),
            ("n_seq_id", self._counts),
            ("seq_id", self._pointers),
            ("logits", self._asked),
        ):
            setattr(self.struct, name, ctypes.cast(array.ctypes.data, kinds[name]))

    def fill(
        self, token_ids: Sequence[int], positions: Sequence[int], sequences: Sequence[int], asked: Sequence[int]
    ) -> None:
        count = len(token_ids)
        self.struct.n_tokens = count
        self._tokens[:count] = token_ids
        self._positions[:count] = positions
        self._sequences[:count] = sequences
        self._asked[:count] = 0
        self._asked[list(asked)] = 1


def cells_for(tokens: int) -> int:
    """Cells of a context that holds ``tokens`` tokens."""
    return max(1, -(-tokens // CELL_STEP)) * CELL_STEP


def no_room(tokens: int, cells: int) -> InsufficientMemory:
    """The error of an answer that finds no free cell."""
    return InsufficientMemory(
        f"The model's context of {cells} tokens, which all running answers share, is full: there is no room for "
        f"{tokens} more.",
        details={"phase": "generation", "device": "llama.cpp", "tokens": tokens, "cells": cells},
        remedy="Send the request again when others have finished, or send fewer at once.",
        retry_after=30,
    )

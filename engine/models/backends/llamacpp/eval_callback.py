"""Reading and adding to the residual stream inside a llama.cpp pass, through its evaluation callback.

llama.cpp asks about every node of its graph whether somebody wants to see it, and shows those it is told of when they
are computed, before anything reads them. The node ``l_out-L`` is the output of block L (0-based), the same tensor as
transformers' ``model.layers[L]``. On the CPU its memory is edited where it lies; on another device it is copied over
and back.

At the last layer a graph may have dropped the tokens whose logits nobody asked for; then the tensor has a row for each
of the others, in their order.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.checked import there
from engine.models.backends.llamacpp.binding import Tensors, library
from engine.models.backends.residual import Intervention

_NODE = b"l_out-"


@dataclass(frozen=True, eq=False)
class Shape:
    """How the tokens of one ``llama_decode`` belong to the rows of its pass.

    Attributes:
        rows: The row of each token.
        unsteered: Places of tokens that are left alone.
        asked: Places of the tokens whose logits are asked for.
    """

    rows: Sequence[int]
    unsteered: Collection[int]
    asked: Sequence[int]

    @classmethod
    def one_row(cls, tokens: int, unsteered: int, asked: Sequence[int]) -> Shape:
        """All tokens belong to one row; the first ``unsteered`` are left alone."""
        return cls([0] * tokens, range(min(tokens, unsteered)), asked)

    @classmethod
    def step(cls, rows: int, unsteered: int = 0) -> Shape:
        """Each token is a row of its own."""
        return cls(range(rows), range(rows) if unsteered else (), range(rows))

    def steered(self, count: int) -> tuple[Tensor, Tensor]:
        """Of a node with ``count`` rows: those that are steered, and the row of the pass each stands for."""
        if count == len(self.rows):
            places: Sequence[int] = range(count)
        elif count == len(self.asked):
            places = self.asked
        else:
            raise RuntimeError(f"a layer has {count} rows in a pass of {len(self.rows)} tokens")
        kept = [(at, self.rows[token]) for at, token in enumerate(places) if token not in self.unsteered]
        return torch.tensor([at for at, _ in kept], dtype=torch.long), torch.tensor([row for _, row in kept])


class Tap:
    """The callback of one context. Does what the pass under way asks and nothing otherwise. Engine thread only.

    Args:
        d_model: Width of the stream.
        direct: Whether its memory can be reached by address, which holds on the CPU.
    """

    def __init__(self, d_model: int, *, direct: bool) -> None:
        self._d_model = d_model
        self._direct = direct
        self._tensors = Tensors()
        self._work: Intervention | None = None
        self._shape: Shape | None = None
        self._seen: dict[int, list[tuple[Tensor, Tensor]]] = {}
        self._touched: set[int] = set()
        self._error: BaseException | None = None
        self.passes_steered: Counter[int] = Counter()
        """Layer → passes in which something was added there."""
        # Kept here: the library holds only the address.
        self.callback = library().llama_cpp.ggml_backend_sched_eval_callback(self._called)

    def begin(self, work: Intervention) -> None:
        """A pass with ``work`` begins; it may take several calls of ``llama_decode``."""
        self._work = work
        self._seen.clear()
        self._touched.clear()
        self._error = None

    def expect(self, shape: Shape) -> None:
        """The next call has this shape."""
        self._shape = shape

    def check(self) -> None:
        """Raise what went wrong inside the callback: an error cannot pass through the library."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def finish(self) -> None:
        """The pass is complete: count what was steered and tell the observers, layer by layer."""
        work, seen = self._work, dict(self._seen)
        missed = set() if work is None else {layer for layer in work.layers if layer not in self._touched}
        self.passes_steered.update(layer for layer in self._touched if work is not None and layer in work.deltas)
        self.drop()
        if work is None:
            return
        if missed:
            raise RuntimeError(f"llama.cpp did not show the output of the layers {sorted(missed)}")
        shape = there(self._shape)
        # A pass is one row of many tokens, or rows of one token each.
        axis = 0 if max(shape.rows) == 0 else 1
        for layer in sorted(work.observers):
            before, after = (torch.cat(parts).unsqueeze(axis) for parts in zip(*seen[layer], strict=True))
            for observer in work.observers[layer]:
                observer.observe(layer, before, after)

    def drop(self) -> None:
        """The pass is over, or was broken off."""
        self._work = None
        self._seen.clear()
        self._touched.clear()

    # --- inside the library -----------------------------------------------------------------------------------------

    def _called(self, tensor: int, ask: bool, user_data: object) -> bool:
        """Whether node ``tensor`` is wanted (``ask``), or: here it is, go on?"""
        work = self._work
        if work is None:
            # Nobody wants anything: False to a question means "compute on".
            return not ask
        try:
            layer = self._layer_of(tensor)
            if ask:
                return layer is not None and layer in work.layers
            if layer is not None:
                self._handle(work, layer, tensor)
        except BaseException as error:
            self._error = error
            return False
        return True

    def _layer_of(self, tensor: int) -> int | None:
        name = self._tensors.name(tensor)
        if not name.startswith(_NODE):
            return None
        number = name[len(_NODE) :]
        return int(number) if number.isdigit() else None

    def _handle(self, work: Intervention, layer: int, tensor: int) -> None:
        shape = there(self._shape)
        hidden, buffer = self._open(tensor)
        delta = work.deltas.get(layer)
        observed = layer in work.observers
        before = hidden.clone() if observed else hidden
        self._touched.add(layer)
        if delta is not None:
            at, rows = shape.steered(hidden.shape[0])
            if len(at) == hidden.shape[0]:
                hidden += delta[rows]
            elif len(at):
                hidden[at] += delta[rows]
            if buffer is not None:
                self._tensors.write(tensor, buffer, hidden.nbytes)
        if observed:
            self._seen.setdefault(layer, []).append((before, hidden.clone() if delta is not None else before))

    def _open(self, tensor: int) -> tuple[Tensor, int | None]:
        """The node's values as ``[rows, d_model]``, and the address of the copy where they are one."""
        size = self._tensors.nbytes(tensor)
        width = 4 * self._d_model
        if not self._tensors.is_plain_float32(tensor) or size % width:
            raise RuntimeError("the output of a layer is not a plain float32 matrix as wide as the model")
        if self._direct:
            address = self._tensors.address(tensor)
            buffer: Any = (ctypes.c_float * (size // 4)).from_address(address)
            return torch.frombuffer(buffer, dtype=torch.float32).view(-1, self._d_model), None
        copy = torch.empty(size // width, self._d_model)
        self._tensors.read(tensor, copy.data_ptr(), size)
        return copy, copy.data_ptr()

"""Linear layers whose weights are arranged once, when the model is loaded, as oneDNN multiplies them on a CPU.

torch arranges a bfloat16 weight anew for every product, and MKL reads a float32 one slowly for few rows. Arranged
beforehand, products of four to sixteen rows take about half as long, and prompts a little less. The plain weight is
freed, so the model takes no more memory; where the head shares the embedding's weight, the embedding reads its rows out
of the arranged one. Layers that multiply the same input (queries, keys and values; gate and up) share one product.

A row's result does not depend on how many rows are in the product. oneDNN takes another way for one row, slower and
with other bits in some shapes, so fewer than ``FEWEST_ROWS`` are filled up with zeros.

The operators are private to torch (its compiler uses them). So they are tried on every shape before anything is
replaced: without them, or where they give something else, a layer stays as it is.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Embedding, Linear, Module, Parameter
from torch.nn import functional as F

from engine.counting import MB
from engine.models.hardware.devices import release_cached_memory

log = logging.getLogger(__name__)

FEWEST_ROWS = 4
"""Rows from which on oneDNN multiplies all alike."""

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers of one module that are given the same input."""

_TRIED_ROWS = 5
_DISAGREEMENT = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
"""Largest difference from the plain product, relative to the spread of its results, that rounding explains."""

_HUGE_PAGE = 2**21
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25

_BLOCKS = (64, 48, 32, 24, 16, 8)
"""Rows that lie together in an arranged weight; which of them it is depends on the processor."""


class PackedWeight:
    """A weight ``[outputs, inputs]`` as oneDNN wants it."""

    def __init__(self, weight: Tensor) -> None:
        self.outputs, self.inputs = int(weight.shape[0]), int(weight.shape[1])
        self.dtype = weight.dtype
        # Eight rows are what it is arranged for; other numbers work as well.
        self._arranged: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), 8)
        self._multiply: Any = torch.ops.mkldnn._linear_pointwise.default
        zeros = torch.zeros(FEWEST_ROWS - 1, self.inputs, dtype=weight.dtype)
        self._filling = [zeros[count:] for count in range(FEWEST_ROWS - 1)]

    @property
    def address(self) -> int:
        return int(torch.ops.mkldnn.data_ptr(self._arranged))

    @property
    def nbytes(self) -> int:
        """Bytes it takes; sides that are no multiple of a block are filled up."""
        return int(torch.ops.mkldnn._nbytes(self._arranged))

    def plain(self) -> Tensor:
        """A new plain copy, the same bits."""
        return self._arranged.to_dense()

    def product(self, states: Tensor, bias: Tensor | None) -> Tensor:
        """``states`` ``[…, inputs]`` · weightᵀ + ``bias``: ``[…, outputs]``."""
        count = states.numel() // self.inputs
        if count >= FEWEST_ROWS:
            return cast(Tensor, self._multiply(states.contiguous(), self._arranged, bias, "none", [], ""))
        rows = torch.cat((states.reshape(count, self.inputs), self._filling[count - 1]))
        result = self._multiply(rows, self._arranged, bias, "none", [], "")
        return cast(Tensor, result[:count].view(*states.shape[:-1], self.outputs))

    def readable(self) -> Tensor | None:
        """The memory it lies in as ``[blocks, inputs, rows of a block, values side by side]``; None where that is not
        how it lies. No copy: it is good as long as this object lives.
        """
        memory = torch.frombuffer((ctypes.c_char * self.nbytes).from_address(self.address), dtype=self.dtype)
        together = 4 // self.dtype.itemsize
        plain = self.plain()
        for block in _BLOCKS:
            blocks = -(-self.outputs // block)
            if memory.numel() % (blocks * block * together):
                continue
            found = memory.view(blocks, -1, block, together)
            if found.shape[1] * together >= self.inputs and _reads(found, plain):
                return found
        return None


class SharedProduct:
    """One product for all layers that are given the same input: the first of them makes it, the last forgets it."""

    def __init__(self, packed: PackedWeight, bias: Tensor | None, readers: int) -> None:
        self.packed = packed
        self._bias = bias
        self._readers = readers
        self._left = 0
        self._states: Tensor | None = None
        self._result: Tensor | None = None

    def of(self, states: Tensor) -> Tensor:
        """The product of ``states``, whole."""
        if self._readers == 1:
            return self.packed.product(states, self._bias)
        if self._result is None or self._states is not states:
            self._states, self._left = states, self._readers
            self._result = self.packed.product(states, self._bias)
        result = self._result
        self._left -= 1
        if self._left == 0:
            self._states = self._result = None
        return result


class PackedLinear(Module):
    """A linear layer whose results are columns ``first`` to ``last`` of a product.

    ``weight`` and ``bias`` still give the plain ones; the weight is made anew for who asks.
    """

    def __init__(self, product: SharedProduct, first: int, last: int, bias: Parameter | None) -> None:
        super().__init__()
        self._product = product
        self._columns = slice(first, last)
        self._whole = last - first == product.packed.outputs
        self.in_features, self.out_features = product.packed.inputs, last - first
        self.bias = bias

    @property
    def weight(self) -> Tensor:
        """The plain weight ``[outputs, inputs]``: a copy."""
        return self._product.packed.plain()[self._columns]

    def forward(self, states: Tensor) -> Tensor:
        """``states`` ``[…, inputs]`` to ``[…, outputs]``."""
        result = self._product.of(states)
        return result if self._whole else result[..., self._columns]


class PackedEmbedding(Module):
    """The embedding that a packed head shares its weight with: its rows are read from there.

    The library's own module makes of them what it does (some families scale them): it is given the rows asked for as
    its whole table.
    """

    def __init__(self, embedding: Embedding, packed: PackedWeight, memory: Tensor) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = packed.outputs, packed.inputs
        self._packed = packed
        self._memory = memory
        embedding.padding_idx = None  # an index into the whole table; it matters in training only
        embedding.weight = Parameter(embedding.weight[:0].clone(), requires_grad=False)
        self._library = embedding

    @property
    def weight(self) -> Tensor:
        """The plain weight ``[tokens, width]``: a copy."""
        return self._packed.plain()

    def forward(self, ids: Tensor) -> Tensor:
        """``ids`` ``[…]`` to ``[…, width]``."""
        wanted = ids.reshape(-1)
        if wanted.numel() and int(wanted.max()) >= self.num_embeddings:
            # An arranged weight is filled up with rows that are nobody's.
            raise IndexError(f"token {int(wanted.max())} of an embedding of {self.num_embeddings} rows")
        rows = _lines(self._memory, wanted, self.embedding_dim)
        self._library.weight = Parameter(rows, requires_grad=False)
        try:
            return cast(Tensor, self._library(torch.arange(wanted.numel()).view(ids.shape)))
        finally:
            self._library.weight = Parameter(rows[:0].clone(), requires_grad=False)


@dataclass(frozen=True)
class Packing:
    """What :func:`pack` did: the products that are made by arranged weights, and the bytes of these."""

    products: int = 0
    nbytes: int = 0


@dataclass(frozen=True)
class _Place:
    """Where a module hangs."""

    parent: Module
    name: str
    module: Any

    def put(self, module: Module) -> None:
        setattr(self.parent, self.name, module)


def pack(model: Module, device: torch.device, dtype: torch.dtype) -> Packing:
    """Replace the plain linear layers of ``model`` by packed ones, one after another, freeing as it goes.

    Layers of other kinds (quantised, a mixture's experts, GPT-2's) stay, and so does a layer that would grow by more
    than an eighth. Nothing happens on other devices, in other formats, or where torch cannot do it.
    """
    if device.type != "cpu" or not _supported(dtype):
        return Packing()
    packer = _Packer(dtype)
    for places in _together(model, dtype):
        packer.replace(places)
    done = Packing(len(packer.packed), sum(packed.nbytes for packed in packer.packed))
    left = list(model.parameters())
    if sum(parameter.nbytes for parameter in left) <= done.nbytes:
        # It may lie in a map of the checkpoint's file, which would keep all of the file mapped.
        for parameter in left:
            parameter.data = parameter.data.clone()
    _tidy_memory(packer.packed)
    log.info("%d products by arranged weights (%d MB)", done.products, done.nbytes // MB)
    return done


def _supported(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype is torch.float32


def _together(model: Module, dtype: torch.dtype) -> list[list[_Place]]:
    """The places that one product serves: those that share a weight, and siblings."""
    sharing: dict[int, list[_Place]] = {}
    for parent in model.modules():
        for name, module in parent.named_children():
            if isinstance(module, Linear | Embedding) and module.weight.dtype is dtype:
                sharing.setdefault(id(module.weight), []).append(_Place(parent, name, module))
    found = []
    for parent in list(model.modules()):
        for names in SIBLINGS:
            layers = [getattr(parent, name, None) for name in names]
            groups = [sharing.get(id(layer.weight)) for layer in layers if type(layer) is Linear]
            if len(groups) < len(names) or any(group is None or len(group) > 1 for group in groups):
                continue
            if len({(layer.in_features, layer.bias is None) for layer in layers if layer is not None}) == 1:
                found.append([sharing.pop(id(layer.weight))[0] for layer in layers if layer is not None])
    return found + [
        places
        for places in sharing.values()
        if any(type(place.module) is Linear for place in places)
        and all(type(place.module) is Linear or isinstance(place.module, Embedding) for place in places)
    ]


class _Packer:
    """Replaces modules, having tried each shape of weight once."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.packed: list[PackedWeight] = []
        self._tried: dict[tuple[int, int], bool] = {}

    def replace(self, places: Sequence[_Place]) -> None:
        """Put packed modules in all ``places``, or leave all as they are."""
        weights = list({id(place.module.weight): place.module.weight for place in places}.values())
        packed = self._packed(torch.cat(weights) if len(weights) > 1 else weights[0])
        if packed is not None and _exchange(places, packed, len(weights)):
            self.packed.append(packed)

    def _packed(self, weight: Tensor) -> PackedWeight | None:
        shape = (int(weight.shape[0]), int(weight.shape[1]))
        if self._tried.get(shape) is False:
            return None
        try:
            packed = PackedWeight(weight)
            if shape not in self._tried:
                self._tried[shape] = _fits(packed, weight) and _agrees(packed, weight)
        except Exception as error:
            log.warning("weights of %s cannot be arranged by this torch: %s", shape, error)
            self._tried[shape] = False
        return packed if self._tried[shape] else None


def _exchange(places: Sequence[_Place], packed: PackedWeight, weights: int) -> bool:
    memory = None
    if any(isinstance(place.module, Embedding) for place in places):
        memory = packed.readable()
        if memory is None or any(getattr(place.module, "max_norm", None) is not None for place in places):
            log.info("the head stays as it is: the embedding's rows cannot be read out of an arranged weight")
            return False
    if weights == 1:
        for place in places:
            if isinstance(place.module, Embedding) and memory is not None:
                place.put(PackedEmbedding(place.module, packed, memory))
            else:
                bias = place.module.bias
                place.put(PackedLinear(SharedProduct(packed, bias, 1), 0, packed.outputs, bias))
        return True
    biases = [place.module.bias for place in places]
    product = SharedProduct(packed, None if biases[0] is None else torch.cat(biases), weights)
    first = 0
    for place, bias in zip(places, biases, strict=True):
        place.put(PackedLinear(product, first, first + place.module.out_features, bias))
        first += place.module.out_features
    return True


def _fits(packed: PackedWeight, weight: Tensor) -> bool:
    return packed.nbytes - weight.nbytes <= max(weight.nbytes // 8, 2**16)


def _agrees(packed: PackedWeight, weight: Tensor) -> bool:
    """Whether a product by ``packed`` is the plain one, and one row of it the same bits alone as among others."""
    rows = torch.randn(_TRIED_ROWS, packed.inputs, generator=torch.Generator().manual_seed(0)).to(weight.dtype)
    expected, found = F.linear(rows, weight).float(), packed.product(rows, None)
    drift = float((found.float() - expected).abs().max()) / (float(expected.std()) + 1e-12)
    if drift <= _DISAGREEMENT[weight.dtype] and torch.equal(packed.product(rows[:1], None), found[:1]):
        return True
    log.warning("arranged weights of %s multiply differently (%.2g): left as they are", list(weight.shape), drift)
    return False


def _tidy_memory(weights: Sequence[PackedWeight]) -> None:
    """Give back what the plain weights took, and have Linux put the arranged ones on pages of 2 MB.

    A step reads all of them, and finding its way through pages of 4 KB costs a tenth to a quarter of it. Both are only
    advice: nothing depends on whether it is taken.
    """
    if sys.platform != "linux" or not weights:
        return
    release_cached_memory(torch.device("cpu"))
    advise: Any = ctypes.CDLL(None, use_errno=True).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    refused = 0
    for start, end in _pages(weights):
        advise(start, end - start, _MADV_HUGEPAGE)
        refused += advise(start, end - start, _MADV_COLLAPSE) != 0
    log.debug("huge pages for the weights: %d pieces refused", refused)


def _pages(weights: Sequence[PackedWeight]) -> list[tuple[int, int]]:
    """Whole huge pages that the weights lie on, as runs of addresses. What else lies there moves along unharmed."""
    runs: list[tuple[int, int]] = []
    for packed in sorted(weights, key=lambda packed: packed.address):
        start = packed.address // _HUGE_PAGE * _HUGE_PAGE
        end = -(-(packed.address + packed.nbytes) // _HUGE_PAGE) * _HUGE_PAGE
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    # Page by page: the first and last one of a run may lie partly outside of what is mapped, which refuses it alone.
    return [(page, page + _HUGE_PAGE) for start, end in runs for page in range(start, end, _HUGE_PAGE)]


def _lines(memory: Tensor, wanted: Tensor, width: int) -> Tensor:
    """Rows of a readable weight, copied: ``[wanted, width]``."""
    block = memory.shape[2]
    found = memory[wanted // block, :, wanted % block]
    return found.reshape(wanted.numel(), -1)[:, :width]


def _reads(memory: Tensor, plain: Tensor) -> bool:
    """Whether all rows read out of ``memory`` are those of the plain weight."""
    step = 8192
    return all(
        torch.equal(
            _lines(memory, torch.arange(start, min(start + step, plain.shape[0])), plain.shape[1]),
            plain[start : start + step],
        )
        for start in range(0, plain.shape[0], step)
    )

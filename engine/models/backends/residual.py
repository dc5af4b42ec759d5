"""Reading and adding to the residual stream: forward hooks on the outputs of decoder blocks.

The tensor meant everywhere is the output hidden state of block L (0-based): the residual stream after the block,
``resid_post`` in the interpretability literature, ``[rows, width, d_model]``. A pass carries its work with it; a pass
without any goes through untouched, so there is nothing to restore.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor
from torch.nn import Module, ModuleList

from engine.errors import EngineUnsupported

_PATHS = ("model.layers", "transformer.h", "model.decoder.layers", "layers", "encoder.layer", "decoder.layer")
"""Where families keep their blocks, in the order of search, below the model and below its language part."""


class ResidualObserver(Protocol):
    """Sees a layer's residual stream during a pass."""

    def observe(self, layer: int, before: Tensor, after: Tensor) -> None:
        """``before`` and ``after`` this layer's own delta, ``[rows, width, d_model]``; equal where it has none."""
        ...


@dataclass(frozen=True)
class Intervention:
    """What one pass adds to the stream and who watches it.

    Attributes:
        deltas: Layer → ``[rows, d_model]`` in the model's dtype and device; added to every position of the row.
        unsteered: Leading positions of this pass that are left alone (the first token of a text is the attention sink).
        observers: Layer → who sees it.
    """

    deltas: Mapping[int, Tensor] = field(default_factory=dict)
    unsteered: int = 0
    observers: Mapping[int, tuple[ResidualObserver, ...]] = field(default_factory=dict)

    @property
    def layers(self) -> frozenset[int]:
        """Layers at which the pass does anything."""
        return frozenset(self.deltas) | frozenset(self.observers)


class ResidualHooks:
    """The hooks of one model: installed on the layers in use, doing what the pass under way asks."""

    def __init__(self, model: Module, n_layers: int) -> None:
        self.path, self._blocks = find_blocks(model, n_layers)
        self._handles: dict[int, Any] = {}
        self._work: Intervention | None = None
        self.passes_steered: Counter[int] = Counter()
        """Layer → passes in which something was added there."""

    def install(self, layers: Collection[int]) -> None:
        """Have hooks on exactly ``layers``. Raises ValueError for a layer that is not there."""
        for layer in layers:
            if not 0 <= layer < len(self._blocks):
                raise ValueError(f"layer {layer} is not one of 0…{len(self._blocks) - 1}")
        for layer in set(self._handles) - set(layers):
            self._handles.pop(layer).remove()
        for layer in set(layers) - set(self._handles):
            self._handles[layer] = self._blocks[layer].register_forward_hook(self._hook(layer))

    def release(self) -> None:
        """Take every hook away and let go of the model's blocks."""
        self.install(())
        self._blocks = ModuleList()

    @property
    def layers(self) -> frozenset[int]:
        return frozenset(self._handles)

    @contextmanager
    def working(self, work: Intervention | None) -> Iterator[None]:
        """Do ``work`` in the pass made inside the block; installs hooks that are missing."""
        if work is not None and not work.layers <= self.layers:
            self.install(self.layers | work.layers)
        self._work = work
        try:
            yield
        finally:
            self._work = None

    def _hook(self, layer: int) -> Any:
        def hook(module: Module, inputs: tuple[Any, ...], output: Any) -> Any:
            work = self._work
            if work is None:
                return None
            hidden: Tensor = output[0] if isinstance(output, tuple) else output
            delta = work.deltas.get(layer)
            after = hidden
            if delta is not None:
                after = _added(hidden, delta, work.unsteered)
                self.passes_steered[layer] += 1
            for observer in work.observers.get(layer, ()):
                observer.observe(layer, hidden, after)
            if after is hidden:
                return None
            return (after, *output[1:]) if isinstance(output, tuple) else after

        return hook


def _added(hidden: Tensor, delta: Tensor, unsteered: int) -> Tensor:
    """``hidden`` plus each row's delta, but for the first ``unsteered`` positions. Never in place: the block may
    share it.
    """
    after = hidden + delta[:, None, :]
    if unsteered:
        after[:, :unsteered] = hidden[:, :unsteered]
    return after


def find_blocks(model: Module, n_layers: int) -> tuple[str, ModuleList]:
    """The dotted path and list of a decoder's ``n_layers`` blocks. Raises :class:`EngineUnsupported`."""
    for root in ("", "model.", "language_model.", "model.language_model."):
        for path in _PATHS:
            found = _at(model, root + path)
            if isinstance(found, ModuleList) and len(found) == n_layers:
                return root + path, found
    for name, module in model.named_modules():
        leaf = name.rpartition(".")[2]
        if (
            isinstance(module, ModuleList)
            and len(module) == n_layers
            and ("layer" in leaf or "block" in leaf or leaf == "h")
        ):
            return name, module
    raise EngineUnsupported(
        f"No list of {n_layers} decoder blocks was found in {type(model).__name__}, so its residual stream is out of "
        "reach.",
        remedy="Use a model of a decoder-only family.",
    )


def _at(model: Module, path: str) -> Any:
    found: Any = model
    for part in path.split("."):
        found = getattr(found, part, None)
        if found is None:
            return None
    return found

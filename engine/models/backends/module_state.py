"""What a model keeps in its modules between two passes, and a store of one row on the library's own cache.

Most families put all of a text's past into the cache they are given. Some keep a part of it in their modules as plain
attributes (RecurrentGemma: the states of its recurrent layers), where the next pass finds it, whosever pass that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn import Module
from transformers.cache_utils import DynamicCache

Values = Mapping[tuple[Module, str], Tensor | None]


class ModuleState:
    """Plain attributes of modules that hold a tensor, or may come to: parameters and buffers are none."""

    def __init__(self, model: Module) -> None:
        self._model = model
        self._at_first = self._now()

    def _now(self) -> dict[tuple[Module, str], Tensor | None]:
        return {
            (module, name): value
            for module in self._model.modules()
            for name, value in vars(module).items()
            if value is None or isinstance(value, Tensor)
        }

    def release(self) -> None:
        """Let go of the modules: the model is leaving memory."""
        self._model = Module()
        self._at_first = {}

    @contextmanager
    def of(self, store: LibraryStore) -> Iterator[None]:
        """In the block modules hold what ``store`` left in them; afterwards what they held when the model was loaded.

        What a failed pass has left is forgotten.
        """
        self._put(store.in_modules)
        try:
            yield
            now = self._now()
            store.in_modules = {
                place: value for place, value in now.items() if value is not self._at_first.get(place, value)
            }
        finally:
            self._put(self._at_first)

    def _put(self, values: Values) -> None:
        for (module, name), value in values.items():
            setattr(module, name, value)


class LibraryStore:
    """One row on the library's own cache, for models whose layers the slab cannot hold."""

    def __init__(self, config: Any) -> None:
        self.cache = DynamicCache(config=config)
        self.lengths = [0]
        self.in_modules: Values = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the attention layers' keys and values."""
        total = 0
        for layer in self.cache.layers:
            for name in ("keys", "values"):
                tensor = getattr(layer, name, None)
                if isinstance(tensor, Tensor):
                    total += tensor.nbytes
        return total

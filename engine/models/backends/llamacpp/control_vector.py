"""Steering by llama.cpp's control vector, where its graph cannot be edited in place.

One vector per layer for a whole context, added by the graph itself on whatever device it runs. Row L−1 of the buffer is
added to the output of block L; block 0 cannot be reached.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np
from torch import Tensor

from engine.errors import EngineUnsupported, GenerationFailed
from engine.models.backends.llamacpp.binding import library
from engine.models.backends.llamacpp.context import LlamaContext
from engine.models.backends.llamacpp.model import LlamaModel


class ControlVector:
    """The control vector of one model's contexts. Engine thread only."""

    def __init__(self, model: LlamaModel) -> None:
        self._width = model.d_model
        self._layers = model.n_layers
        self._set_on: tuple[LlamaContext, bytes] | None = None

    def set(self, context: LlamaContext, deltas: Mapping[int, Tensor]) -> None:
        """Add ``deltas`` (layer → ``[d_model]``) in the passes of ``context`` from now on; empty: nothing.

        Raises :class:`EngineUnsupported` for layer 0.
        """
        if 0 in deltas:
            raise EngineUnsupported(
                "Layer 0 of this model cannot be steered: llama.cpp's control vector begins at layer 1.",
                remedy="Steer a later layer, or set DEVICE to cpu, where every layer can be steered.",
            )
        buffer = np.zeros((self._layers - 1, self._width), dtype=np.float32)
        for layer, delta in deltas.items():
            buffer[layer - 1] = delta.numpy()
        wanted = (context, buffer.tobytes())
        if self._set_on == wanted or (self._set_on is None and not deltas):
            return
        pointer = buffer.ctypes.data_as(ctypes.POINTER(ctypes.c_float)) if deltas else None
        code = library().llama_set_adapter_cvec(
            context.pointer, pointer, buffer.size if deltas else 0, self._width, 1, self._layers - 1
        )
        if code:
            raise GenerationFailed("llama.cpp refused the control vector.", remedy="Steer without it.")
        self._set_on = wanted if deltas else None


def grouped(deltas: Mapping[int, Tensor], rows: int) -> list[tuple[list[int], dict[int, Tensor]]]:
    """The rows of a pass that have equal vectors, and those vectors; rows without any have none."""
    groups: dict[bytes, tuple[list[int], dict[int, Tensor]]] = {}
    for row in range(rows):
        own = {layer: delta[row] for layer, delta in sorted(deltas.items()) if bool(delta[row].any())}
        key = b"".join(bytes([0]) + str(layer).encode() + delta.numpy().tobytes() for layer, delta in own.items())
        groups.setdefault(key, ([], own))[0].append(row)
    return list(groups.values())

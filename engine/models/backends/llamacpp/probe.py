"""What steering and reading llama.cpp allows with this model, on this build and device: tried out at load, not assumed.

About thirty of llama.cpp's families ignore control vectors, others name their nodes differently, and what a GPU lets
through nobody can tell beforehand. So a few tokens are read with everything in use, and what moved is what is offered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from engine.checked import there
from engine.errors import MillmError
from engine.models.backends.backend import Steering
from engine.models.backends.llamacpp.context import LlamaContext
from engine.models.backends.llamacpp.control_vector import ControlVector
from engine.models.backends.llamacpp.eval_callback import Shape, Tap
from engine.models.backends.llamacpp.model import LlamaModel
from engine.models.backends.residual import Intervention

log = logging.getLogger(__name__)

CELLS, SEQUENCES = 256, 2
_SAME = 1e-3
"""How far logits may drift by rounding, relative to their spread."""


class _Seen:
    def __init__(self) -> None:
        self.layers: dict[int, Tensor] = {}

    def observe(self, layer: int, before: Tensor, after: Tensor) -> None:
        self.layers[layer] = after


def probe(model: LlamaModel, make: Callable[[int, int, bool], LlamaContext]) -> Steering:
    """What is possible, with the reason where it is not everything. ``make`` makes a context of (cells, sequences,
    tapped).
    """
    try:
        reason = _try_tap(model, make)
    except (MillmError, RuntimeError) as error:
        reason = str(error)
    if reason is None:
        return Steering(reads=True, rows=True)
    log.info("the layers of this model cannot be edited in place: %s", reason)
    try:
        moves = _try_control(model, make)
    except (MillmError, RuntimeError) as error:
        log.info("nor can a control vector be set: %s", error)
        moves = False
    return Steering(reads=False, rows=False, control=moves, reason=reason)


def _try_tap(model: LlamaModel, make: Callable[[int, int, bool], LlamaContext]) -> str | None:
    """None when every layer can be read and edited for one row alone; else what is missing."""
    last = model.n_layers - 1
    context = make(CELLS, SEQUENCES, True)
    try:
        tap = there(context.tap)
        ids = [1 % model.vocab_size, 2 % model.vocab_size]
        seen = _Seen()
        plain = _pass(context, tap, ids, 0, Intervention(observers=dict.fromkeys(range(model.n_layers), (seen,))))
        found = [n for n in range(model.n_layers) if n in seen.layers and seen.layers[n].shape == (2, 1, model.d_model)]
        if len(found) < model.n_layers or not all(bool(seen.layers[n].isfinite().all()) for n in found):
            return f"{len(found)} of {model.n_layers} layers can be read"
        spread = float(plain.std()) + 1e-6
        for layer in sorted({0, last}):
            delta = torch.zeros(2, model.d_model)
            # A direction of no special meaning, as long as what it is added to.
            delta[1, ::2] = float(seen.layers[layer].norm(dim=-1).mean())
            steered = _pass(context, tap, ids, 0, Intervention({layer: delta}))
            if float((steered[0] - plain[0]).abs().max()) > _SAME * spread:
                return f"editing layer {layer} of one row moves another"
            if float((steered[1] - plain[1]).abs().max()) < 10 * _SAME * spread:
                return f"editing layer {layer} moves nothing"
        return None
    finally:
        context.close()


def _pass(context: LlamaContext, tap: Tap, ids: list[int], position: int, work: Intervention) -> Tensor:
    """Logits of two rows of one token each, on empty sequences."""
    sequences = [context.take(), context.take()]
    held = [sequence for sequence in sequences if sequence is not None]
    try:
        tap.begin(work)
        tap.expect(Shape.step(2))
        context.decode(ids, [position, position], held, (0, 1))
        logits = context.logits(2)
        tap.finish()
        return logits
    finally:
        tap.drop()
        for sequence in held:
            context.give_back(sequence)


def _try_control(model: LlamaModel, make: Callable[[int, int, bool], LlamaContext]) -> bool:
    """Whether a control vector moves the logits."""
    if model.n_layers < 2:
        return False
    context = make(CELLS, 1, False)
    try:
        control = ControlVector(model)
        sequence = there(context.take())
        context.decode([1 % model.vocab_size], [0], [sequence], (0,))
        plain = context.last_logits()
        context.give_back(sequence)
        sequence = there(context.take())
        control.set(context, {1: torch.full((model.d_model,), 10.0)})
        context.decode([1 % model.vocab_size], [0], [sequence], (0,))
        return float((context.last_logits() - plain).abs().max()) > _SAME * (float(plain.std()) + 1e-6)
    finally:
        context.close()

"""How whole prompts are laid out so that each gives the same bits, however many are read in one pass.

Three things make a row's result depend on its company on a CPU, measured on SmolLM2-135M in float32 and bfloat16 with
one and two threads: a matrix product of one row takes another kernel than one of many (4.6e-5 in a log-probability,
all of it from the head); with two threads so does one below eight rows; and attention sums over a length that is no
multiple of its vector in another order (4e-5). So a prompt is always read at a width that is a multiple of
:data:`STEP`, alone or not, and the head always gets at least as many rows. Padding comes after a prompt's tokens, and
no token looks ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.backends.residual import Intervention, ResidualObserver

STEP = 16
"""Widths are multiples of this: the vector of the widest registers, in float32, and above where kernels change."""


def padded_width(tokens: int) -> int:
    """At what width a prompt of so many tokens is read."""
    return -(-tokens // STEP) * STEP


@dataclass(frozen=True)
class Layout:
    """A pass over several whole prompts.

    Attributes:
        ids: ``[prompts, width]``; a prompt's last token is repeated to its right.
        kept: Positions whose logits are computed, rising; of every row.
        ends: Where in ``kept`` each prompt's last token is.
    """

    ids: list[list[int]]
    kept: list[int]
    ends: list[int]

    @property
    def width(self) -> int:
        """Positions of a row."""
        return len(self.ids[0])


def pad(prompts: Sequence[Sequence[int]], width: int) -> list[list[int]]:
    """``prompts`` at one width: their last tokens repeated to the right."""
    return [[*prompt, *([prompt[-1]] * (width - len(prompt)))] for prompt in prompts]


def lay_out(prompts: Sequence[Sequence[int]]) -> Layout:
    """The pass that reads ``prompts``, none of them empty; the head sees at least :data:`STEP` rows."""
    width = padded_width(max(map(len, prompts)))
    kept = {len(prompt) - 1 for prompt in prompts}
    for place in range(width):
        if len(kept) * len(prompts) >= STEP:
            break
        kept.add(place)
    places = sorted(kept)
    return Layout(
        ids=pad(prompts, width),
        kept=places,
        ends=[places.index(len(prompt) - 1) for prompt in prompts],
    )


def without_padding(work: Intervention | None, tokens: int) -> Intervention | None:
    """``work`` of a pass of one prompt, whose observers see its own ``tokens`` and no padding."""
    if work is None or not work.observers:
        return work
    from engine.models.backends.residual import Intervention

    observers = {
        layer: tuple(_Prompt(observer, tokens) for observer in those) for layer, those in work.observers.items()
    }
    return Intervention(work.deltas, work.unsteered, observers)


class _Prompt:
    """An observer that is shown the first ``tokens`` positions."""

    def __init__(self, observer: ResidualObserver, tokens: int) -> None:
        self._observer = observer
        self._tokens = tokens

    def observe(self, layer: int, before: Tensor, after: Tensor) -> None:
        self._observer.observe(layer, before[:, : self._tokens], after[:, : self._tokens])

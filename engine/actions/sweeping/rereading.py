"""Reading a finished answer again without steering: how likely the plain model finds it, and what fires in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.actions.saes.context import SaeContext
from engine.actions.saes.reading import ReadPlace, SaeReading
from engine.generation.prefill_job import ReadingFigures
from engine.models.registry import LoadedModel

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.backends.backend import Backend, KVStore
    from engine.models.backends.residual import Intervention


@dataclass(frozen=True)
class Steered:
    """The features of one SAE a sweep steers, with their authored strengths."""

    place: ReadPlace
    strengths: Mapping[int, float]


@dataclass(frozen=True)
class Reread:
    """What was found. ``loss`` is the mean over the answer's tokens; both None for an answer without tokens."""

    loss: float | None
    features: float | None


class Rereading(SaeReading[Reread]):
    """Reads prompt and answer once, plainly.

    Args:
        ids: Prompt and all that was written.
        answer: Places in ``ids`` of the answer's tokens, rising and at least 1; others, as those of its reasoning, are
            read and not measured.
        steered: Whose features are read.
    """

    def __init__(
        self,
        context: SaeContext,
        loaded: LoadedModel,
        ids: tuple[int, ...],
        answer: Sequence[int],
        steered: Sequence[Steered],
    ) -> None:
        super().__init__(context, loaded, [ids], [each.place for each in steered])
        self._ids = ids
        self._start = answer[0] if answer else len(ids)
        self._answer = frozenset(answer)
        self._steered = steered
        self._loss = 0.0
        self._sums = [0.0] * len(steered)

    def _forward(self, backend: Backend, store: KVStore, chunk: tuple[int, ...], work: Intervention) -> None:
        position = store.lengths[0]
        # The logits after position p are about token p + 1.
        first = max(self._start - 1 - position, 0)
        about = self._ids[position + first + 1 : position + len(chunk) + 1]
        counted = [place for place in range(len(about)) if position + first + place + 1 in self._answer]
        if not counted:
            backend.extend(store, chunk, work)
            return
        if backend.capabilities.all_logits:
            logits = backend.extend_all(store, chunk, work)[first : first + len(about)]
            self._loss += _loss(logits[counted], [about[place] for place in counted])
            return
        if first:
            backend.extend(store, chunk[:first], work)
        for place, token in enumerate(chunk[first:]):
            logits = backend.extend(store, [token], work)
            if place in counted:
                self._loss += _loss(logits[None], about[place : place + 1])

    def _take(self, residuals: dict[int, Tensor], chunk: tuple[int, ...], text: int, position: int) -> None:
        import torch

        counted = [place for place in range(len(chunk)) if position + place in self._answer]
        if not counted:
            return
        for number, each in enumerate(self._steered):
            if not each.strengths:
                continue
            sae, indices = each.place.sae, list(each.strengths)
            values = torch.nan_to_num(sae.encode_features(residuals[each.place.layer][counted], indices), nan=0.0)
            signs = torch.tensor([1.0 if each.strengths[index] > 0 else -1.0 for index in indices])
            self._sums[number] += float((values.float().sum(dim=0).cpu() * signs).sum())

    def _result(self, figures: ReadingFigures) -> Reread:
        written = len(self._answer)
        if not written:
            return Reread(None, None)
        return Reread(self._loss / written, sum(self._sums) / written if self._steered else None)


def _loss(logits: Tensor, about: Sequence[int]) -> float:
    """Sum of −log p of the tokens ``about`` under ``logits`` ``[tokens, vocab]``, natural logarithm."""
    import torch

    with torch.inference_mode():
        wanted = torch.tensor(list(about), device=logits.device)
        return float(torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="sum"))

"""Running figures of every feature of one SAE, kept as tensors where the SAE is. Reads are rounded, sums are not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from engine.monitor.records import Metric


@dataclass(frozen=True)
class ColumnFigures:
    """The figures of one column, not rounded; see :class:`engine.monitor.records.FeatureStatistics`."""

    count: int
    mean: float
    std: float
    min: float
    max: float
    active_count: int


class RunningStatistics:
    """Welford's recurrence for all columns at once, merged pass by pass.

    Sums are float64 where the device has it. Source: Chan, Golub and LeVeque, 1979, for merging a group of rows.

    Args:
        columns: Number of features.
        device: Where activations arrive.
    """

    def __init__(self, columns: int, device: torch.device) -> None:
        # MPS has no float64.
        self._dtype = torch.float32 if device.type == "mps" else torch.float64
        self.count = 0
        self._mean = torch.zeros(columns, dtype=self._dtype, device=device)
        self._squares = torch.zeros_like(self._mean)
        self._min = torch.full_like(self._mean, math.inf)
        self._max = torch.full_like(self._mean, -math.inf)
        self._active = torch.zeros_like(self._mean)

    def add(self, activations: Tensor) -> None:
        """Take in the activations [rows, columns] of one pass; finite values."""
        rows = activations.shape[0]
        if not rows:
            return
        values = activations.to(self._dtype)
        total = self.count + rows
        if rows == 1:
            low = high = row = values[0]
            delta = row - self._mean
            self._mean.add_(delta, alpha=1 / total)
            self._squares.addcmul_(delta, row - self._mean)
            self._active.add_(row > 0)
        else:
            # Not var_mean: on a CPU it takes twenty times as long over this dimension.
            mean = values.mean(dim=0)
            apart = values - mean
            delta = mean - self._mean
            self._mean.add_(delta, alpha=rows / total)
            self._squares.add_((apart * apart).sum(dim=0)).addcmul_(delta, delta, value=self.count * rows / total)
            low, high = values.amin(dim=0), values.amax(dim=0)
            self._active.add_((values > 0).to(self._dtype).sum(dim=0))
        torch.minimum(self._min, low, out=self._min)
        torch.maximum(self._max, high, out=self._max)
        self.count = total

    def copy(self) -> StatisticsCopy:
        """The figures now, still on the device: quick, so that a lock need not be held for the reading."""
        figures = torch.stack([self._mean, self._squares, self._min, self._max, self._active])
        return StatisticsCopy(self.count, figures)


class StatisticsCopy:
    """Figures at one moment, transferred when they are first read.

    Args:
        count: Tokens read, at least 1.
        figures: Mean, sum of squared deviations, min, max, times active: [5, columns].
    """

    def __init__(self, count: int, figures: Tensor) -> None:
        self._count = count
        self._on_device = figures

    @cached_property
    def _figures(self) -> Tensor:
        return self._on_device.to("cpu", torch.float64)

    @property
    def total_active(self) -> int:
        """Times any column was above 0."""
        return int(self._figures[4].sum().item())

    def active_columns(self) -> list[int]:
        """Columns that were above 0 at least once, in order."""
        columns: list[int] = self._figures[4].nonzero().flatten().tolist()
        return columns

    def strongest(self, metric: Metric, k: int) -> list[tuple[int, float]]:
        """The ``k`` first of the active columns by ``metric``, each with its value; equal ones by activity, then order.

        Every column has the same count, so by count the activity decides.
        """
        mean, _, _, high, active = self._figures
        value = {
            Metric.MEAN: mean,
            Metric.MAX: high,
            Metric.ACTIVE_RATIO: active / self._count,
            Metric.COUNT: torch.full_like(active, self._count),
        }[metric]
        columns = self.active_columns()
        keys = zip(value[columns].tolist(), active[columns].tolist(), columns, strict=True)
        first = sorted(keys, key=lambda key: (-key[0], -key[1], key[2]))[:k]
        return [(column, found) for found, _, column in first]

    def of(self, columns: Sequence[int]) -> list[ColumnFigures]:
        """The figures of ``columns``, in their order."""
        count = self._count
        return [
            ColumnFigures(
                count=count,
                mean=mean,
                std=math.sqrt(max(0.0, squares) / (count - 1)) if count > 1 else 0.0,
                min=low,
                max=high,
                active_count=int(active),
            )
            for mean, squares, low, high, active in self._figures[:, list(columns)].T.tolist()
        ]

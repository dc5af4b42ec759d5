"""What is being watched, and the reading of passes: from residual vectors to records.

Torch is imported by the first pass, not with this module.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from engine.monitor.records import ActivationRecord, FeatureStatistics
from engine.monitor.rows import Observers, RowInfo
from engine.saes.attachment import Attachment

if TYPE_CHECKING:
    from torch import Tensor

    from engine.monitor.statistics import ColumnFigures, RunningStatistics, StatisticsCopy

_DECIMALS = 4

_PARTLY = 8
"""Encoding single features gathers columns of the encoder; above one in eight the whole product is cheaper."""


class Series:
    """One watched SAE: which of its features are read, and their figures so far. The monitor's lock guards the figures.

    Args:
        features: The features read, in order; None means all.
        since: When its figures begin.
    """

    def __init__(self, attachment: Attachment, features: tuple[int, ...] | None, since: datetime) -> None:
        self.attachment = attachment
        self.features = features
        self.since = since
        self._figures: RunningStatistics | None = None

    @property
    def d_sae(self) -> int:
        return self.attachment.sae.config.d_sae

    @property
    def columns(self) -> int:
        """Features read."""
        return self.d_sae if self.features is None else len(self.features)

    def is_of(self, attachment: Attachment, features: tuple[int, ...] | None) -> bool:
        """Whether its figures would go on under this attachment and these features."""
        mine = self.attachment
        same = (mine.sae_id, mine.layer) == (attachment.sae_id, attachment.layer) and mine.sae is attachment.sae
        return same and self.features == features

    def encode(self, residual: Tensor) -> Tensor:
        """Activations [rows, columns] of ``residual`` [rows, d_model]."""
        sae = self.attachment.sae
        if self.features is None:
            return sae.encode(residual)
        if sae.encodes_partially and len(self.features) * _PARTLY <= self.d_sae:
            return sae.encode_features(residual, self.features)
        return sae.encode(residual)[:, list(self.features)]

    def name(self, column: int) -> int:
        """The feature a column stands for."""
        return column if self.features is None else self.features[column]

    def column(self, feature: int) -> int | None:
        """The column of a feature, None when it is not read."""
        if self.features is None:
            return feature
        return self.features.index(feature) if feature in self.features else None

    def add(self, activations: Tensor) -> None:
        """Count the activations [rows, columns] of one pass."""
        if self._figures is None:
            from engine.monitor.statistics import RunningStatistics

            self._figures = RunningStatistics(self.columns, activations.device)
        self._figures.add(activations)

    def copy(self) -> StatisticsCopy | None:
        """Its figures now; None before the first pass."""
        return None if self._figures is None else self._figures.copy()

    def clear(self, since: datetime) -> None:
        self._figures = None
        self.since = since

    def statistics(self, features: Sequence[int], copy: StatisticsCopy | None) -> list[FeatureStatistics]:
        """The figures of ``features`` in ``copy`` as they are given out; a count of 0 for those never read."""
        columns = [self.column(feature) for feature in features]
        known = [column for column in columns if column is not None] if copy is not None else []
        figures = dict(zip(known, copy.of(known), strict=True)) if copy is not None else {}
        return [
            self._named(feature, None if column is None else figures.get(column))
            for feature, column in zip(features, columns, strict=True)
        ]

    def _named(self, feature: int, figures: ColumnFigures | None) -> FeatureStatistics:
        sae_id, layer = self.attachment.sae_id, self.attachment.layer
        if figures is None:
            return FeatureStatistics(sae_id, layer, feature, 0, 0.0, 0.0, 0.0, 0.0, 0, 0.0)
        return FeatureStatistics(
            sae_id=sae_id,
            layer=layer,
            feature_idx=feature,
            count=figures.count,
            mean=round(figures.mean, _DECIMALS),
            std=round(figures.std, _DECIMALS),
            min=round(figures.min, _DECIMALS),
            max=round(figures.max, _DECIMALS),
            active_count=figures.active_count,
            active_ratio=round(figures.active_count / figures.count, _DECIMALS),
        )


@dataclass(frozen=True, eq=False)
class Watch:
    """What passes are to read; replaced as a whole when anything about it changes."""

    series: tuple[Series, ...]
    top_k: int


@dataclass(frozen=True, eq=False)
class _Read:
    series: Series
    residual: Tensor


class PassReading:
    """Reads one pass; when the last of its layers has been seen, ``done`` is called with it.

    Args:
        rows: The rows to be read.
        places: Their places in the pass; None means they are all of it.
        width: Rows of the pass.
        stopwatch: Seconds of a steady clock.

    Attributes:
        seconds: Time spent on reading the layers so far.
        values: Activations that what was read will give, over all SAEs.
    """

    def __init__(
        self,
        watch: Watch,
        rows: Sequence[RowInfo],
        places: Sequence[int] | None,
        width: int,
        done: Callable[[PassReading], None],
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.watch = watch
        self.rows = rows
        self.reads: list[_Read] = []
        self.seconds = 0.0
        self.values = 0
        self._places = places
        self._width = width
        self._done = done
        self._left = len(watch.series)
        self._stopwatch = stopwatch

    def observers(self) -> Observers:
        """One observer for each watched layer."""
        layers: dict[int, list[Series]] = {}
        for series in self.watch.series:
            layers.setdefault(series.attachment.layer, []).append(series)
        return {layer: (_LayerReader(self, tuple(watched)),) for layer, watched in layers.items()}

    def read(self, watched: Sequence[Series], before: Tensor) -> None:
        """Keep the last token of each row of ``before`` [rows, width, d_model]."""
        import torch

        if before.shape[0] != self._width:
            raise ValueError(f"a pass of {self._width} rows shows a residual of {tuple(before.shape)}")
        began = self._stopwatch()
        with torch.inference_mode():
            # A copy: a view would hold all of the pass.
            last = before[:, -1].clone()
            residual = last if self._places is None else last[list(self._places)]
            for series in watched:
                self.values += residual.shape[0] * series.columns
                self.reads.append(_Read(series, residual))
            self._left -= len(watched)
            self.seconds += self._stopwatch() - began
            if not self._left:
                self._done(self)


def taken_in(readings: Sequence[PassReading], times: Sequence[datetime]) -> list[ActivationRecord]:
    """The records of some passes under one watch, and their activations added to the figures of each SAE.

    Pass by pass, row by row and within a row in the order of the layers; ``times`` are those of the passes. All passes
    go together: an SAE's weights are fetched from memory once for all of them, and that is most of what reading costs;
    then one choice of the strongest features for each SAE, and one transfer in all.
    """
    import torch

    top_k = readings[0].watch.top_k
    # The layers come in one order in every pass.
    every = [[reading.reads[place] for reading in readings] for place in range(len(readings[0].reads))]
    columns = [reads[0].series for reads in every]
    with torch.inference_mode():
        gathered = [reads[0].series.encode(torch.cat([read.residual for read in reads])) for reads in every]
        lines = _transferred(columns, gathered, top_k)
        if not all(math.isfinite(number) for read in lines for line in read for number in line):
            # One overflow would spoil a mean for good, and JSON has no word for it.
            gathered = [torch.nan_to_num(activations, nan=0.0) for activations in gathered]
            lines = _transferred(columns, gathered, top_k)
        for series, activations in zip(columns, gathered, strict=True):
            series.add(activations)
    found: list[ActivationRecord] = []
    place = 0
    for reading, now in zip(readings, times, strict=True):
        for row in reading.rows:
            found.extend(
                _record(series, min(top_k, series.columns), row, read[place], now)
                for series, read in zip(columns, lines, strict=True)
            )
            place += 1
    return found


def _transferred(columns: Sequence[Series], gathered: Sequence[Tensor], top_k: int) -> list[list[list[float]]]:
    """For each SAE and each row: columns of the strongest, their values, how many are above 0, and chosen features."""
    import torch

    packed = [_packed(series, activations, top_k) for series, activations in zip(columns, gathered, strict=True)]
    device = packed[0].device
    flat: list[float] = torch.cat([each.flatten().to(device) for each in packed]).tolist()
    lines: list[list[list[float]]] = []
    start = 0
    for each in packed:
        rows, width = each.shape
        lines.append([flat[start + row * width : start + (row + 1) * width] for row in range(rows)])
        start += rows * width
    return lines


def _packed(series: Series, activations: Tensor, top_k: int) -> Tensor:
    import torch

    values, columns = activations.topk(min(top_k, series.columns), dim=-1)
    # Columns below 2²⁴ are exact in float32, so one tensor can carry everything.
    parts = [columns.float(), values.float(), (activations > 0).sum(dim=-1, keepdim=True).float()]
    if series.features is not None:
        parts.append(activations.float())
    return torch.cat(parts, dim=-1)


class _LayerReader:
    """The observer of one layer in one pass."""

    def __init__(self, reading: PassReading, watched: tuple[Series, ...]) -> None:
        self._reading = reading
        self._watched = watched

    def observe(self, layer: int, before: Tensor, after: Tensor) -> None:
        """Read what arrived at the layer's output, before its own steering."""
        self._reading.read(self._watched, before)


def _record(series: Series, k: int, row: RowInfo, line: list[float], now: datetime) -> ActivationRecord:
    pairs = [(series.name(int(column)), value) for column, value in zip(line[:k], line[k : 2 * k], strict=True)]
    # The device leaves the order of equal values open.
    best = tuple(sorted((pair for pair in pairs if pair[1] > 0), key=lambda pair: (-pair[1], pair[0])))
    chosen = best if series.features is None else tuple(zip(series.features, line[2 * k + 1 :], strict=True))
    return ActivationRecord(
        timestamp=now,
        request_id=row.request_id,
        choice=row.choice,
        token_position=row.end_position - 1,
        token_id=row.token_ids[-1],
        sae_id=series.attachment.sae_id,
        layer=series.attachment.layer,
        activations=chosen,
        top_k=best,
        active_count=int(line[2 * k]),
    )

"""Figures of features over many tokens: worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import torch

from engine.errors import InvalidParameter, SaeNotAttached
from engine.events import EventBus
from engine.monitor.live import LiveMonitor
from engine.monitor.records import FeatureStatistics, Metric
from engine.monitor.statistics import RunningStatistics
from engine.saes.errors import InvalidFeatureIndex
from tests.engine.monitor.made import attached, make_sae, ramp_sae, residual, row, show

START = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


class Ticking:
    """A time that goes on by a minute with each look."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> datetime:
        self.looks += 1
        return START + timedelta(minutes=self.looks)


@pytest.fixture
def monitor() -> LiveMonitor:
    """Watches two features at layer 2: relu(x0) and relu(x1)."""
    monitor = LiveMonitor(EventBus())
    monitor.set_attachments((attached(make_sae([[1.0, 0.0], [0.0, 1.0]])),))
    monitor.configure()
    return monitor


def feed(monitor: LiveMonitor, *passes: list[list[float]]) -> None:
    """One decode pass for each list of vectors."""
    for vectors in passes:
        rows = [row("a", 1, 1, choice=place) for place in range(len(vectors))]
        show(monitor.observers(rows), 2, residual(*[[vector] for vector in vectors]))


def test_figures_of_passes_of_one_and_of_several_rows(monitor: LiveMonitor) -> None:
    # Feature 0: 1, 3, 0, 4, 2. Mean 2; squared deviations 1 + 1 + 4 + 4 + 0 = 10, so std √(10/4) = 1.5811.
    # Feature 1: -5 (shows as 0), 0.125, 0, 0, 0. Mean 0.025; squares 0.0125, so std √(0.0125/4) = 0.0559.
    feed(monitor, [[1.0, -5.0]], [[3.0, 0.125], [0.0, 0.0]], [[4.0, 0.0], [2.0, 0.0]])
    assert monitor.statistics().features == (
        FeatureStatistics("toy", 2, 0, 5, 2.0, 1.5811, 0.0, 4.0, 4, 0.8),
        FeatureStatistics("toy", 2, 1, 5, 0.025, 0.0559, 0.0, 0.125, 1, 0.2),
    )
    assert monitor.statistics().total_activations == 5


def test_one_token_has_no_deviation(monitor: LiveMonitor) -> None:
    feed(monitor, [[1.00004, 0.0]])
    assert monitor.statistics().features == (FeatureStatistics("toy", 2, 0, 1, 1.0, 0.0, 1.0, 1.0, 1, 1.0),)


def test_a_small_spread_around_a_large_value_survives() -> None:
    running = RunningStatistics(1, torch.device("cpu"))
    running.add(torch.tensor([[4_000_001.0]]))
    running.add(torch.tensor([[4_000_002.0], [4_000_003.0], [4_000_004.0]]))
    running.add(torch.tensor([[4_000_005.0]]))
    (figures,) = running.copy().of([0])
    assert figures.mean == 4_000_003.0
    # √(10/4)
    assert round(figures.std, 4) == 1.5811


def test_features_that_never_fired_are_listed_only_when_named(monitor: LiveMonitor) -> None:
    feed(monitor, [[1.0, 0.0]], [[2.0, -1.0]])
    assert [each.feature_idx for each in monitor.statistics().features] == [0]
    assert monitor.statistics([1, 1]).features == (FeatureStatistics("toy", 2, 1, 2, 0.0, 0.0, 0.0, 0.0, 0, 0.0),)


def test_before_the_first_token(monitor: LiveMonitor) -> None:
    assert monitor.statistics().features == ()
    assert monitor.statistics([1]).features == (FeatureStatistics("toy", 2, 1, 0, 0.0, 0.0, 0.0, 0.0, 0, 0.0),)
    assert monitor.top() == []


def test_only_watched_features_have_figures(monitor: LiveMonitor) -> None:
    monitor.configure(features=[1])
    feed(monitor, [[7.0, 3.0]])
    assert [(each.feature_idx, each.mean) for each in monitor.statistics().features] == [(1, 3.0)]
    assert [(each.feature_idx, each.count) for each in monitor.statistics([0, 1]).features] == [(0, 0), (1, 1)]


def test_figures_begin_anew_with_other_features_and_go_on_otherwise(monitor: LiveMonitor) -> None:
    feed(monitor, [[1.0, 0.0]])
    monitor.configure(top_k=1, history_size=5)
    monitor.set_enabled(False)
    assert monitor.statistics().features[0].count == 1
    monitor.set_enabled(True)
    feed(monitor, [[1.0, 0.0]])
    assert monitor.statistics().features[0].count == 2
    monitor.configure(features=[0])
    assert monitor.statistics().features == ()


def test_since_is_when_the_counting_began() -> None:
    monitor = LiveMonitor(EventBus(), now=Ticking())
    assert monitor.statistics().since is None
    monitor.set_attachments((attached(ramp_sae(2), "one", 2),))
    first = monitor.statistics().since
    assert first is not None
    monitor.set_attachments((attached(ramp_sae(2), "one", 2), attached(ramp_sae(2), "two", 7)))
    monitor.configure()
    observers = monitor.observers([row("a", 1, 1)])
    show(observers, 2, residual([[1.0]]))
    show(observers, 7, residual([[1.0]]))
    assert monitor.statistics().total_activations == 2
    monitor.clear_statistics()
    cleared = monitor.statistics()
    assert (cleared.features, cleared.total_activations) == ((), 0)
    assert cleared.since is not None and cleared.since > first


def test_top_by_each_metric(monitor: LiveMonitor) -> None:
    monitor.set_attachments((attached(make_sae([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])),))
    monitor.configure()
    # Feature 0: 9, 0, 0, 0; feature 1: 3, 3, 0, 3; feature 2: 1, 1, 1, 1; feature 3 never fires.
    feed(monitor, [[9.0, 3.0, 1.0]], [[0.0, 3.0, 1.0]], [[0.0, 0.0, 1.0], [0.0, 3.0, 1.0]])

    def first(metric: Metric, k: int = 10) -> list[int]:
        return [each.feature_idx for each in monitor.top(k, metric)]

    assert first(Metric.MAX) == [0, 1, 2]
    # Means 2.25, 2.25, 1: the one that fired more often comes first.
    assert first(Metric.MEAN) == [1, 0, 2]
    assert first(Metric.ACTIVE_RATIO) == [2, 1, 0]
    assert first(Metric.COUNT) == [2, 1, 0]
    assert first(Metric.MAX, k=1) == [0]


def test_top_and_statistics_of_one_of_several_saes() -> None:
    monitor = LiveMonitor(EventBus())
    monitor.set_attachments((attached(ramp_sae(3), "one", 2), attached(ramp_sae(5), "two", 7)))
    monitor.configure()
    observers = monitor.observers([row("a", 1, 1)])
    show(observers, 2, residual([[3.0]]))
    show(observers, 7, residual([[1.0]]))
    named = [(each.sae_id, each.feature_idx, each.max) for each in monitor.top(3, Metric.MAX)]
    assert named == [("one", 2, 6.0), ("two", 4, 4.0), ("one", 1, 3.0)]
    assert [each.max for each in monitor.top(3, Metric.MAX, sae_id="two")] == [4.0, 3.0, 2.0]
    assert monitor.statistics(layer=2).total_activations == 2
    # Only the second SAE has a feature 4.
    assert [(each.sae_id, each.max) for each in monitor.statistics([4]).features] == [("two", 4.0)]
    with pytest.raises(InvalidFeatureIndex):
        monitor.statistics([5])
    with pytest.raises(InvalidFeatureIndex):
        monitor.statistics([4], sae_id="one")
    with pytest.raises(SaeNotAttached):
        monitor.statistics(sae_id="three")


@pytest.mark.parametrize("k", [0, 101, True])
def test_top_has_bounds(monitor: LiveMonitor, k: int) -> None:
    with pytest.raises(InvalidParameter) as caught:
        monitor.top(k)
    assert caught.value.param == "k"


@pytest.mark.parametrize("limit", [0, 1001])
def test_history_has_bounds(monitor: LiveMonitor, limit: int) -> None:
    with pytest.raises(InvalidParameter) as caught:
        monitor.history(limit)
    assert caught.value.param == "limit"

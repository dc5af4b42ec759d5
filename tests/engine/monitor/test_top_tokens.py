"""The strongest tokens of each feature: bounded, in order, with no more text than a few tokens."""

from __future__ import annotations

from datetime import UTC, datetime

from engine.events import EventBus
from engine.monitor import top_tokens as peaks
from engine.monitor.live import LiveMonitor
from engine.monitor.records import ActivationRecord, MonitoringCost
from engine.monitor.top_tokens import Peak, PeakMemory
from tests.engine.monitor.made import attached, plain_sae, residual, row, show

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def record(
    position: int, token: int, *top: tuple[int, float], request: str = "a", sae: str = "toy"
) -> ActivationRecord:
    return ActivationRecord(NOON, request, 0, position, token, sae, 2, top, top, len(top))


def test_the_strongest_first_with_the_tokens_before() -> None:
    memory = PeakMemory()
    for position, value in ((4, 1.0), (5, 3.0), (6, 2.0)):
        memory.add([record(position, 70 + position, (8, value))])
    assert memory.of("toy", 2, 8).peaks == (
        Peak(3.0, (74, 75), 5, "a"),
        Peak(2.0, (74, 75, 76), 6, "a"),
        Peak(1.0, (74,), 4, "a"),
    )
    assert memory.of("toy", 2, 9).peaks == () and memory.of("toy", 3, 8).peaks == ()


def test_features_come_by_their_strongest_token() -> None:
    memory = PeakMemory()
    memory.add([record(3, 1, (8, 1.0), (4, 5.0), (6, 5.0))])
    memory.add([record(3, 1, (9, 9.0), sae="other")])
    assert [each.feature_idx for each in memory.strongest("toy", 2, 10)] == [4, 6, 8]
    assert [each.feature_idx for each in memory.strongest("toy", 2, 2)] == [4, 6]


def test_a_gap_begins_a_new_context_and_position_0_is_left_out() -> None:
    memory = PeakMemory()
    memory.add([record(0, 5, (1, 900.0))])
    memory.add([record(1, 6, (1, 1.0))])
    memory.add([record(9, 7, (1, 2.0))])
    assert [peak.token_ids for peak in memory.of("toy", 2, 1).peaks] == [(7,), (5, 6)]


def test_two_saes_share_the_context_of_a_token() -> None:
    memory = PeakMemory()
    for position in (3, 4):
        memory.add([record(position, position, (1, 1.0)), record(position, position, (1, 1.0), sae="other")])
    assert memory.of("other", 2, 1).peaks[1].token_ids == (3, 4)


def test_everything_is_bounded() -> None:
    memory = PeakMemory()
    for position in range(1, 40):
        memory.add([record(position, position, (1, float(position)))])
    found = memory.of("toy", 2, 1).peaks
    assert [peak.value for peak in found] == [float(value) for value in range(39, 27, -1)]
    assert len(found[0].token_ids) == 9
    for feature in range(peaks.MOST_FEATURES):
        memory.add([record(3, 1, (feature + 10, 1.0), request=f"r{feature}")])
    assert len(memory._peaks) == peaks.MOST_FEATURES and len(memory._tails) == peaks.MOST_ANSWERS
    assert memory.of("toy", 2, 1).peaks == (), "the one that had not fired for longest is forgotten"
    assert memory.clear() == peaks.MOST_FEATURES
    assert memory.strongest("toy", 2, 5) == ()


def test_the_monitor_keeps_them_until_they_are_cleared_or_the_sae_goes() -> None:
    monitor = LiveMonitor(EventBus(), now=lambda: NOON)
    place = attached(plain_sae())
    monitor.set_attachments((place,))
    monitor.configure(top_k=2)
    show(monitor.observers([row("a", 5, 71)]), 2, residual([[3.0, 1.0, 0.0]]))
    assert [(each.feature_idx, each.peaks[0].value) for each in monitor.peaks("toy", 2)] == [(0, 3.0), (3, 2.0)]
    assert monitor.peaks_of("toy", 2, 0).peaks == (Peak(3.0, (71,), 5, "a"),)
    assert monitor.clear_peaks() == 2 and monitor.peaks("toy", 2) == ()
    show(monitor.observers([row("a", 6, 72)]), 2, residual([[3.0, 1.0, 0.0]]))
    monitor.set_attachments(())
    assert monitor.peaks("toy", 2) == ()


def test_a_reader_gets_what_is_new() -> None:
    monitor = LiveMonitor(EventBus(), now=lambda: NOON)
    monitor.set_attachments((attached(plain_sae()),))
    monitor.configure(history_size=3)
    assert monitor.since(0) == (0, [])
    for position in range(1, 3):
        show(monitor.observers([row("a", position, 70 + position)]), 2, residual([[1.0, 0.0, 0.0]]))
    number, new = monitor.since(0)
    assert (number, [each.token_id for each in new]) == (2, [71, 72])
    assert monitor.since(number) == (2, [])
    for position in range(3, 9):
        show(monitor.observers([row("a", position, 70 + position)]), 2, residual([[1.0, 0.0, 0.0]]))
    number, new = monitor.since(number)
    assert (number, [each.token_id for each in new]) == (8, [76, 77, 78])
    monitor.clear_history()
    assert monitor.since(number) == (8, []) and monitor.since(0) == (8, [])


def test_what_reading_costs() -> None:
    ticks = iter(range(1000))
    monitor = LiveMonitor(EventBus(), now=lambda: NOON, stopwatch=lambda: float(next(ticks)))
    monitor.set_attachments((attached(plain_sae()),))
    monitor.configure()
    assert monitor.cost().milliseconds_per_token is None
    show(monitor.observers([row("a", 5, 71), row("b", 5, 71)]), 2, residual([[1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0]]))
    # One second for the layer, one for the rest; two tokens.
    assert monitor.cost() == MonitoringCost(True, 2, 2.0, 1000.0)
    assert monitor.cost().milliseconds_per_token == 1000.0
    monitor.clear_statistics()
    assert monitor.cost() == MonitoringCost(True, 0, 0.0, None)

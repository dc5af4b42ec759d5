"""The live monitor: what a pass leaves in the history, who may be watched, and when listeners hear of it."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
import torch

from engine.errors import InvalidParameter, SaeNotAttached
from engine.events import ActivationObserved, Event, EventBus, FeatureActivation, MonitoringStateChanged
from engine.monitor.live import LiveMonitor
from engine.monitor.rows import NO_OBSERVERS
from engine.saes.config import Architecture
from engine.saes.errors import InvalidFeatureIndex
from engine.wire import wire
from tests.engine.monitor.made import attached, make_sae, plain_sae, ramp_sae, residual, row, show

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


class Heard:
    """A monitor with clocks one can set, and the events it published."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.events: list[Event] = []
        bus = EventBus()
        bus.subscribe(self.events.append)
        self.monitor = LiveMonitor(bus, clock=lambda: self.seconds, now=lambda: NOON)

    def activations(self) -> list[ActivationObserved]:
        return [event for event in self.events if isinstance(event, ActivationObserved)]

    def states(self) -> list[MonitoringStateChanged]:
        return [event for event in self.events if isinstance(event, MonitoringStateChanged)]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def monitor(heard: Heard) -> LiveMonitor:
    return heard.monitor


def watch_plain(monitor: LiveMonitor, **options: object) -> None:
    monitor.set_attachments((attached(plain_sae()),))
    monitor.configure(**options)  # type: ignore[arg-type]


def read(monitor: LiveMonitor, request_id: str, position: int, token_id: int, vector: list[float]) -> None:
    """One decode pass of one row at layer 2."""
    show(monitor.observers([row(request_id, position, token_id)]), 2, residual([vector]))


# --- what a pass leaves ---------------------------------------------------------------------------------------------


def test_nobody_reads_while_it_is_off(monitor: LiveMonitor) -> None:
    assert monitor.observers([row("a", 5, 7)]) is NO_OBSERVERS
    watch_plain(monitor, enabled=False)
    assert monitor.observers([row("a", 5, 7)]) is NO_OBSERVERS
    assert not monitor.watching
    monitor.set_enabled(True)
    assert monitor.watching
    assert set(monitor.observers([row("a", 5, 7)])) == {2}
    monitor.set_enabled(False)
    assert monitor.observers([row("a", 5, 7)]) is NO_OBSERVERS


def test_a_decode_pass_gives_each_row_its_record(monitor: LiveMonitor) -> None:
    watch_plain(monitor)
    rows = [row("a", 5, 71), row("b", 9, 72, choice=1)]
    show(monitor.observers(rows), 2, residual([[3.0, 1.0, 0.0]], [[0.0, 0.5, 2.0]]))
    newest, older = monitor.history()
    assert wire(older) == {
        "timestamp": "2026-05-04T12:00:00+00:00",
        "request_id": "a",
        "choice": 0,
        "token_position": 5,
        "token_id": 71,
        "sae_id": "toy",
        "layer": 2,
        "activations": [[0, 3.0], [3, 2.0], [1, 1.0]],
        "top_k": [[0, 3.0], [3, 2.0], [1, 1.0]],
        "active_count": 3,
    }
    assert (newest.request_id, newest.choice, newest.token_position, newest.token_id) == ("b", 1, 9, 72)
    assert newest.top_k == ((2, 3.0), (1, 0.5))


def test_only_what_arrives_before_the_layers_own_steering_is_read(monitor: LiveMonitor) -> None:
    watch_plain(monitor)
    before, after = residual([[1.0, 0.0, 0.0]]), residual([[9.0, 9.0, 9.0]])
    show(monitor.observers([row("a", 1, 7)]), 2, before, after)
    assert monitor.history()[0].top_k == ((0, 1.0), (3, 1.0))


def test_top_k_keeps_the_strongest(monitor: LiveMonitor) -> None:
    watch_plain(monitor, top_k=2)
    read(monitor, "a", 1, 7, [3.0, 1.0, 2.0])
    record = monitor.history()[0]
    # 3, 1, 3, 2: features 0 and 2 are equal, 3 and 1 fall out.
    assert sorted(record.top_k) == [(0, 3.0), (2, 3.0)]
    assert record.active_count == 4


def test_of_a_prompt_only_its_last_position_is_recorded(monitor: LiveMonitor) -> None:
    watch_plain(monitor)
    assert monitor.observers([row("a", 0, 1, 2, prompt_tokens=5)]) is NO_OBSERVERS
    assert monitor.observers([row("a", 2, 3, 4, prompt_tokens=5)]) is NO_OBSERVERS
    show(monitor.observers([row("a", 4, 5, prompt_tokens=5)]), 2, residual([[2.0, 0.0, 0.0]]))
    whole = row("b", 0, 1, 2, 3, prompt_tokens=3)
    show(monitor.observers([whole]), 2, residual([[50.0, 0.0, 0.0], [60.0, 0.0, 0.0], [4.0, 0.0, 0.0]]))
    found = [(each.request_id, each.token_position, each.token_id, each.top_k[0]) for each in monitor.history()]
    assert found == [("b", 2, 3, (0, 4.0)), ("a", 4, 5, (0, 2.0))]


def test_a_chunk_beside_rows_that_are_read_is_left_out(monitor: LiveMonitor) -> None:
    watch_plain(monitor)
    rows = [row("a", 5, 1), row("b", 0, 2, prompt_tokens=4), row("c", 6, 3)]
    show(monitor.observers(rows), 2, residual([[1.0, 0.0, 0.0]], [[2.0, 0.0, 0.0]], [[3.0, 0.0, 0.0]]))
    assert [(each.request_id, each.top_k[0]) for each in monitor.history()] == [("c", (0, 3.0)), ("a", (0, 1.0))]


def test_every_attached_sae_has_records_of_its_own(monitor: LiveMonitor) -> None:
    monitor.set_attachments(
        (
            attached(ramp_sae(3), "late", 7),
            attached(ramp_sae(4), "early", 2),
            attached(ramp_sae(2), "early-too", 2),
        )
    )
    monitor.configure(top_k=1)
    observers = monitor.observers([row("a", 5, 71)])
    assert set(observers) == {2, 7}
    show(observers, 2, residual([[1.0]]))
    assert monitor.history() == []
    show(observers, 7, residual([[10.0]]))
    found = {(each.sae_id, each.layer, each.top_k) for each in monitor.history()}
    assert found == {("early", 2, ((3, 3.0),)), ("early-too", 2, ((1, 1.0),)), ("late", 7, ((2, 20.0),))}


def test_one_sae_can_be_chosen(monitor: LiveMonitor) -> None:
    monitor.set_attachments((attached(ramp_sae(3), "one", 2), attached(ramp_sae(3), "two", 7)))
    state = monitor.configure(sae_id="two")
    assert (state.saes, state.sae_id, state.layer) == ((("two", 7),), "two", 7)
    assert set(monitor.observers([row("a", 5, 71)])) == {7}
    monitor.configure(layer=2)
    assert set(monitor.observers([row("a", 5, 71)])) == {2}


def test_chosen_features_keep_their_order_and_their_zeros(monitor: LiveMonitor) -> None:
    watch_plain(monitor, features=[3, 0, 1, 3])
    read(monitor, "a", 1, 7, [1.0, 4.0, 9.0])
    record = monitor.history()[0]
    assert record.activations == ((3, 0.0), (0, 1.0), (1, 4.0))
    assert record.top_k == ((1, 4.0), (0, 1.0))
    assert record.active_count == 2


@pytest.mark.parametrize("architecture", [Architecture.STANDARD, Architecture.TOPK])
def test_few_chosen_features_of_many(monitor: LiveMonitor, architecture: Architecture) -> None:
    k = 3 if architecture is Architecture.TOPK else None
    monitor.set_attachments((attached(ramp_sae(40, architecture=architecture, k=k)),))
    monitor.configure(features=[38, 5])
    read(monitor, "a", 1, 7, [1.0])
    # Of a top-k SAE only 39, 38 and 37 stay, so 5 is zero there.
    five = 0.0 if architecture is Architecture.TOPK else 5.0
    assert monitor.history()[0].activations == ((38, 38.0), (5, five))


def test_values_that_overflow_do_not_spoil_the_figures(monitor: LiveMonitor) -> None:
    monitor.set_attachments((attached(make_sae([[1000.0, 1.0]], dtype=torch.float16)),))
    monitor.configure()
    read(monitor, "a", 1, 7, [1000.0])
    read(monitor, "a", 2, 7, [float("nan")])
    assert [each.top_k for each in monitor.history()] == [(), ((0, 65504.0), (1, 1000.0))]
    assert [each.max for each in monitor.statistics().features] == [65504.0, 1000.0]


def test_a_pass_that_fails_on_the_way_leaves_nothing(monitor: LiveMonitor) -> None:
    monitor.set_attachments((attached(ramp_sae(3), "one", 2), attached(ramp_sae(3), "two", 7)))
    monitor.configure()
    show(monitor.observers([row("a", 5, 71)]), 2, residual([[1.0]]))
    observers = monitor.observers([row("a", 6, 72)])
    show(observers, 2, residual([[1.0]]))
    show(observers, 7, residual([[1.0]]))
    assert [each.token_position for each in monitor.history()] == [6, 6]
    assert {each.count for each in monitor.statistics().features} == {1}


def test_a_pass_of_other_rows_is_not_taken(monitor: LiveMonitor) -> None:
    watch_plain(monitor)
    observers = monitor.observers([row("a", 5, 71)])
    with pytest.raises(ValueError, match="a pass of 1 rows"):
        show(observers, 2, residual([[1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0]]))


# --- history --------------------------------------------------------------------------------------------------------


def test_history_is_newest_first_and_can_be_narrowed(monitor: LiveMonitor) -> None:
    watch_plain(monitor)
    for position in range(6):
        read(monitor, "ab"[position % 2], position, 7, [1.0, 0.0, 0.0])
    assert [each.token_position for each in monitor.history()] == [5, 4, 3, 2, 1, 0]
    assert [each.token_position for each in monitor.history(limit=2)] == [5, 4]
    assert [each.token_position for each in monitor.history(limit=2, request_id="a")] == [4, 2]
    assert monitor.history(request_id="c") == []
    assert monitor.clear_history() == 6
    assert monitor.history() == []


def test_history_is_kept_on_resize(monitor: LiveMonitor) -> None:
    watch_plain(monitor, history_size=4)
    for position in range(6):
        read(monitor, "a", position, 7, [1.0, 0.0, 0.0])
    assert [each.token_position for each in monitor.history()] == [5, 4, 3, 2]
    monitor.configure(history_size=1000)
    read(monitor, "a", 6, 7, [1.0, 0.0, 0.0])
    assert [each.token_position for each in monitor.history()] == [6, 5, 4, 3, 2]
    state = monitor.configure(history_size=2)
    assert [each.token_position for each in monitor.history()] == [6, 5]
    assert (state.history_size, state.history_count) == (2, 2)


# --- what may be set ------------------------------------------------------------------------------------------------


def test_state_in_the_shape_of_the_wire(monitor: LiveMonitor) -> None:
    assert wire(monitor.state()) == {
        "enabled": False,
        "sae_attached": False,
        "sae_id": None,
        "layer": None,
        "saes": [],
        "monitored_features": None,
        "history_size": 100,
        "history_count": 0,
        "top_k": 10,
    }
    watch_plain(monitor, features=[2], history_size=7, top_k=3)
    read(monitor, "a", 1, 7, [1.0, 0.0, 0.0])
    assert wire(monitor.state()) == {
        "enabled": True,
        "sae_attached": True,
        "sae_id": "toy",
        "layer": 2,
        "saes": [{"sae_id": "toy", "layer": 2}],
        "monitored_features": [2],
        "history_size": 7,
        "history_count": 1,
        "top_k": 3,
    }


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"history_size": 0}, "history_size"),
        ({"history_size": 1001}, "history_size"),
        ({"history_size": True}, "history_size"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 1001}, "top_k"),
        ({"top_k": 2.0}, "top_k"),
        ({"enabled": 1}, "enabled"),
        ({"features": []}, "features"),
        ({"features": [True]}, "features"),
        ({"features": "12"}, "features"),
    ],
)
def test_refused_settings_change_nothing(monitor: LiveMonitor, options: dict[str, object], param: str) -> None:
    watch_plain(monitor, features=[1], top_k=4)
    before = monitor.state()
    with pytest.raises(InvalidParameter) as caught:
        monitor.configure(**options)  # type: ignore[arg-type]
    assert caught.value.param == param
    assert monitor.state() == before


@pytest.mark.parametrize("index", [4, -1])
def test_a_feature_the_sae_does_not_have_is_refused(monitor: LiveMonitor, index: int) -> None:
    monitor.set_attachments((attached(plain_sae()), attached(make_sae([[1.0] * 9] * 3), "wide", 5)))
    with pytest.raises(InvalidFeatureIndex) as caught:
        monitor.configure(features=[0, index])
    assert caught.value.details == {"feature_idx": index, "d_sae": 4, "sae_id": "toy", "layer": 2}
    assert caught.value.param == "features"
    assert monitor.state().enabled is False
    if index == 4:
        assert monitor.configure(features=[4], sae_id="wide").saes == (("wide", 5),)


def test_nothing_attached_is_refused(monitor: LiveMonitor) -> None:
    calls: list[Callable[[], object]] = [
        monitor.configure,
        lambda: monitor.set_enabled(True),
        lambda: monitor.configure(False, [1]),
    ]
    for call in calls:
        with pytest.raises(SaeNotAttached) as caught:
            call()
        assert caught.value.details == {"attached": []}
    assert monitor.configure(enabled=False, history_size=5).history_size == 5
    monitor.set_attachments((attached(plain_sae()),))
    with pytest.raises(SaeNotAttached) as caught:
        monitor.configure(sae_id="other")
    assert caught.value.details == {"attached": [{"sae_id": "toy", "layer": 2}]}
    assert caught.value.param == "sae_id"


# --- attachments that come and go -----------------------------------------------------------------------------------


def test_a_detached_sae_is_let_go(monitor: LiveMonitor) -> None:
    sae = plain_sae()
    gone = weakref.ref(sae)
    monitor.set_attachments((attached(sae),))
    monitor.configure(features=[1])
    read(monitor, "a", 1, 7, [1.0, 1.0, 0.0])
    monitor.set_attachments(())
    del sae
    gc.collect()
    assert gone() is None
    state = monitor.state()
    assert (state.enabled, state.sae_attached, state.monitored_features, state.saes) == (False, False, None, ())
    assert state.history_count == 1
    assert monitor.statistics().features == ()


def test_an_sae_that_stays_keeps_its_figures(monitor: LiveMonitor) -> None:
    first = attached(plain_sae(), "first", 2)
    second = attached(ramp_sae(3), "second", 7)
    monitor.set_attachments((first,))
    monitor.configure(features=[3])
    read(monitor, "a", 1, 7, [5.0, 1.0, 0.0])
    monitor.set_attachments((first, second))
    # The second has no feature 3, so there is nothing of it to watch.
    assert monitor.state().saes == (("first", 2),)
    assert [(each.sae_id, each.feature_idx, each.max) for each in monitor.statistics().features] == [("first", 3, 4.0)]
    monitor.set_attachments((second, first))
    assert monitor.statistics().total_activations == 1
    monitor.set_attachments((second,))
    assert monitor.state().enabled is False
    monitor.set_enabled(True)
    assert monitor.state().saes == (("second", 7),)


def test_a_pass_under_way_when_things_change_is_dropped(monitor: LiveMonitor) -> None:
    watch_plain(monitor)
    observers = monitor.observers([row("a", 5, 71)])
    monitor.set_enabled(False)
    show(observers, 2, residual([[1.0, 0.0, 0.0]]))
    assert monitor.history() == []
    assert monitor.statistics().features == ()


# --- events ---------------------------------------------------------------------------------------------------------


def test_at_most_one_event_in_a_tenth_of_a_second_and_it_is_the_newest(heard: Heard) -> None:
    watch_plain(heard.monitor)
    for seconds, value in ((0.0, 1.0), (0.0625, 2.0), (0.09375, 3.0), (0.125, 4.0), (0.1875, 5.0), (0.25, 6.0)):
        heard.seconds = seconds
        read(heard.monitor, "a", 7, 71, [value, value, 0.0])
    assert [event.features[0].value for event in heard.activations()] == [1.0, 4.0, 6.0]
    event = heard.activations()[1]
    assert event.name == "monitoring:activation"
    assert event.features == (FeatureActivation(0, 4.0), FeatureActivation(1, 4.0))
    assert event.data() == {
        "timestamp": "2026-05-04T12:00:00+00:00",
        "request_id": "a",
        "position": 7,
        "token_id": 71,
        "sae_id": "toy",
        "layer": 2,
        "features": ({"idx": 0, "value": 4.0}, {"idx": 1, "value": 4.0}),
    }


def test_saes_take_turns_in_the_events(heard: Heard) -> None:
    heard.monitor.set_attachments((attached(ramp_sae(2), "one", 2), attached(ramp_sae(2), "two", 7)))
    heard.monitor.configure()
    for second in range(4):
        heard.seconds = float(second)
        observers = heard.monitor.observers([row("a", second, 1), row("b", second, 2)])
        show(observers, 2, residual([[1.0]], [[2.0]]))
        show(observers, 7, residual([[3.0]], [[4.0]]))
    assert [(event.sae_id, event.request_id) for event in heard.activations()] == [
        ("one", "b"),
        ("two", "b"),
        ("one", "b"),
        ("two", "b"),
    ]


def test_state_events_come_with_each_change_and_only_then(heard: Heard) -> None:
    heard.monitor.set_attachments((attached(plain_sae()),))
    heard.monitor.configure(features=[1, 2])
    heard.monitor.configure(features=[1, 2], top_k=5)
    heard.monitor.set_enabled(True)
    heard.monitor.set_enabled(False)
    heard.monitor.set_attachments(())
    assert [event.data() for event in heard.states()] == [
        {"enabled": False, "monitored_features": None, "sae_id": "toy", "layer": 2},
        {"enabled": True, "monitored_features": (1, 2), "sae_id": "toy", "layer": 2},
        {"enabled": False, "monitored_features": (1, 2), "sae_id": "toy", "layer": 2},
        {"enabled": False, "monitored_features": None, "sae_id": None, "layer": None},
    ]


def test_a_listener_may_ask_the_monitor() -> None:
    bus = EventBus()
    monitor = LiveMonitor(bus)
    seen: list[int] = []
    bus.subscribe(lambda _: seen.append(monitor.state().history_count), ActivationObserved)
    watch_plain(monitor)
    read(monitor, "a", 1, 7, [1.0, 0.0, 0.0])
    assert seen == [1]


# --- threads --------------------------------------------------------------------------------------------------------


def test_readers_and_settings_on_other_threads_do_not_disturb_the_passes(monitor: LiveMonitor) -> None:
    watch_plain(monitor, history_size=1000)
    failures: list[BaseException] = []
    stop = threading.Event()

    def guarded(work: object) -> None:
        try:
            while not stop.is_set():
                work()  # type: ignore[operator]
        except BaseException as error:
            failures.append(error)

    others = [
        threading.Thread(target=guarded, args=(work,))
        for work in (
            lambda: monitor.history(limit=1000),
            lambda: (monitor.statistics(), monitor.top()),
            lambda: (monitor.configure(history_size=1000, top_k=3), monitor.configure(history_size=1000)),
            lambda: monitor.clear_statistics(),
        )
    ]
    for thread in others:
        thread.start()
    for position in range(300):
        read(monitor, "a", position, position, [1.0, 0.0, 0.0])
    stop.set()
    for thread in others:
        thread.join(timeout=30)
    assert failures == []
    positions = [each.token_position for each in monitor.history(limit=1000)]
    # A pass during which the settings changed is dropped; the others are there once and in order.
    assert positions == sorted(set(positions), reverse=True)
    read(monitor, "a", 300, 300, [1.0, 0.0, 0.0])
    assert monitor.history()[0].token_position == 300


# --- several passes taken in together --------------------------------------------------------------------------------


def test_passes_taken_in_together_leave_what_single_ones_leave() -> None:
    """No event is due while the clock stands still; 40 passes are more than are held at once."""
    together, singly = Heard(), Heard()
    draw = torch.Generator().manual_seed(4)
    vectors = [torch.randn(3, generator=draw).tolist() for _ in range(40)]
    for each in (together, singly):
        watch_plain(each.monitor, history_size=60)
        each.seconds += 5.0
        for place, vector in enumerate(vectors):
            if each is singly:
                each.seconds += 1.0
            read(each.monitor, "a", place + 1, 7, vector)
    assert len(together.activations()) == 1
    assert len(singly.activations()) == 40
    assert together.monitor.state().history_count == 40
    assert together.monitor.history(40) == singly.monitor.history(40)
    assert together.monitor.statistics() == singly.monitor.statistics()
    assert together.monitor.peaks("toy", 2) == singly.monitor.peaks("toy", 2)
    assert [record.token_position for record in together.monitor.since(38)[1]] == [39, 40]


def test_what_was_read_before_a_change_is_kept_and_counted_under_what_was_watched_then(heard: Heard) -> None:
    monitor = heard.monitor
    watch_plain(monitor, history_size=20, top_k=3)
    heard.seconds += 5.0
    for place in range(5):
        read(monitor, "a", place + 1, 7, [3.0, 1.0, 2.0])
    monitor.configure(history_size=20, top_k=1)
    read(monitor, "a", 6, 7, [3.0, 1.0, 2.0])
    assert [len(record.top_k) for record in monitor.history()] == [1, 3, 3, 3, 3, 3]
    assert {figures.count for figures in monitor.statistics().features} == {6}


def test_an_overflow_among_passes_taken_in_together_spoils_none_of_them(heard: Heard) -> None:
    monitor = heard.monitor
    watch_plain(monitor)
    heard.seconds += 5.0
    for place, value in enumerate((1.0, float("nan"), float("inf"), 2.0)):
        read(monitor, "a", place + 1, 7, [0.0, value, 0.0])
    assert [record.top_k for record in monitor.history()][::3] == [((1, 2.0),), ((1, 1.0),)]
    assert all(torch.isfinite(torch.tensor(figures.mean)) for figures in monitor.statistics([1]).features)


def test_passes_are_held_together_whoever_reads(heard: Heard) -> None:
    """A read on another thread takes in what has ended, and changes nothing for what comes."""
    monitor = heard.monitor
    watch_plain(monitor)
    heard.seconds += 5.0
    held = []
    for place in range(3):
        read(monitor, "a", place + 1, 7, [1.0, 0.0, 0.0])
        held.append(len(monitor._pending))
    reader = threading.Thread(target=monitor.history)
    reader.start()
    reader.join(30)
    for place in range(3, 5):
        held.append(len(monitor._pending))
        read(monitor, "a", place + 1, 7, [1.0, 0.0, 0.0])
    held.append(len(monitor._pending))
    assert held == [0, 1, 2, 0, 1, 2]
    assert monitor.state().history_count == 5
    assert len(monitor.history()) == 5

"""The Monitor page on a real engine: the map, the bars, figures, history, and who configures what."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from pytestqt.qtbot import QtBot

from engine.generation.request import GenerationRequest, TextInput
from engine.library.records import FeatureLabel
from engine.monitor.records import ActivationRecord
from engine.sampling import Sampling
from tests.conftest import EngineMaker
from tests.made_saes import make_mirror_sae, make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.stage import Stage
from ui.context.page_context import FEATURES, HOME, MONITOR, STEERING
from ui.kit.live_watch import LiveWatch
from ui.look.features import FeaturesPage
from ui.look.heat_map import LEFT_AXIS
from ui.look.monitor import HISTORY, MonitorPage
from ui.look.monitor_feed import KEPT, WINDOW, Feed, SeenRecord

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path) -> Stage:
    """The Monitor page in front, one SAE attached, the monitor off."""
    engine = make_engine()
    engine.saes.import_local(make_mirror_sae(tmp_path / "mirror", layer=1), sae_id="mirror")
    engine.saes.import_labels("mirror", [FeatureLabel(index, f"coordinate {index}") for index in range(64)])
    engine.attachments.attach("mirror")
    made = make_stage(engine)
    made.window.show_page(MONITOR)
    return made


@pytest.fixture
def page(stage: Stage, qtbot: QtBot) -> MonitorPage:
    found = stage.window.page(MONITOR)
    assert isinstance(found, MonitorPage)
    until(qtbot, lambda: found.map._plot is not None)
    return found


def write(stage: Stage, tokens: int = 6, text: str = "the sea") -> None:
    """Have ``tokens`` tokens written."""
    engine = stage.engine
    asked = GenerationRequest(
        "tiny-llama", TextInput((text,)), sampling=Sampling(temperature=0.0, ignore_eos=True), max_tokens=tokens
    )
    engine.generation.submit(engine.generation.prepare(asked), lambda _delta: None)


def switch_on(stage: Stage, page: MonitorPage, qtbot: QtBot) -> None:
    page.switch.click()
    until(qtbot, lambda: stage.engine.monitor.state().enabled)


def test_without_an_sae_the_page_shows_the_way(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    stage = make_stage(make_engine(None))
    stage.window.show_page(MONITOR)
    page = stage.window.page(MONITOR)
    assert isinstance(page, MonitorPage)
    assert page.gate.isVisible() and not page.map.isVisible() and not page.switch.isVisible()
    page.gate_button.click()
    assert stage.window.open_page == STEERING


def test_what_fires_is_drawn_counted_and_listed(qtbot: QtBot, stage: Stage, page: MonitorPage) -> None:
    until(qtbot, lambda: "The monitor is off" in page.map.words.text())
    switch_on(stage, page, qtbot)
    until(qtbot, lambda: "The monitor is on." in page.map.words.text())
    write(stage)
    until(qtbot, lambda: page.map.shown is not None and len(page.map.shown.tokens) == 6)
    records = list(reversed(stage.engine.monitor.history()))
    shown = page.map.shown
    assert shown is not None
    for row, index in enumerate(shown.features):
        assert list(shown.values[row]) == [dict(record.activations).get(index, 0.0) for record in records]
    assert page.bars.bars[0][0].startswith("#") and "coordinate" in page.bars.bars[0][0]
    assert [value for _, value in page.bars.bars] == [value for _, value in records[-1].top_k]
    until(qtbot, lambda: len(page.statistics.rows.rows) > 5 and page.statistics.rows.rows[0].count == 6)
    first = page.statistics.rows.rows[0]
    assert first.count == 6 and first.max == max(row.max for row in page.statistics.rows.rows)
    assert "ms per token over 6 tokens" in page.cost.text()
    page.tabs[HISTORY].click()
    newest, older = page.history.rows.rows[:2]
    assert newest.record == records[-1] and newest.after == ""
    assert newest.before.endswith(older.token) and older.after == newest.token


def test_a_row_of_the_map_leads_to_the_feature(qtbot: QtBot, stage: Stage, page: MonitorPage) -> None:
    switch_on(stage, page, qtbot)
    write(stage)
    until(qtbot, lambda: page.map.shown is not None and len(page.map.shown.tokens) == 6)
    viewport = page.map._plot.viewport()
    found = None
    for y in range(0, viewport.height(), 2):
        point = QPoint(LEFT_AXIS + 10, y)
        cell = page.map.cell_at(point.toPointF())
        if cell is not None:
            found = (point, cell)
            break
    assert found is not None and page.map.shown is not None
    index = page.map.shown.features[found[1][0]]
    qtbot.mouseClick(viewport, Qt.MouseButton.LeftButton, pos=found[0])
    assert stage.window.open_page == FEATURES
    features = stage.window.page(FEATURES)
    assert isinstance(features, FeaturesPage)
    until(qtbot, lambda: features.detail.facts is not None and features.detail.facts.index == index)


def test_chosen_features_and_top_k_are_watched(qtbot: QtBot, stage: Stage, page: MonitorPage) -> None:
    page.features.setText("3, 35")
    page.top.setCurrentIndex(page.top.findData(5))
    switch_on(stage, page, qtbot)
    state = stage.engine.monitor.state()
    assert (state.monitored_features, state.top_k, state.history_size) == ((3, 35), 5, 1000)
    write(stage)
    until(qtbot, lambda: page.map.shown is not None and len(page.map.shown.tokens) == 6)
    assert page.map.shown is not None and page.map.shown.features == (3, 35)
    page.features.setText("99")
    qtbot.keyClick(page.features, Qt.Key.Key_Return)
    until(qtbot, lambda: "99" in page.notice.words())
    page.features.setText("x")
    page.apply_button.click()
    assert "is no feature" in page.notice.words()
    assert stage.engine.monitor.state().monitored_features == (3, 35)


def test_pause_holds_the_picture_and_clear_begins_anew(qtbot: QtBot, stage: Stage, page: MonitorPage) -> None:
    switch_on(stage, page, qtbot)
    write(stage)
    until(qtbot, lambda: page.map.shown is not None and len(page.map.shown.tokens) == 6)
    page.pause_button.click()
    assert page.paused and page.pause_button.accessibleName() == "Go on"
    write(stage, text="a smile")
    until(qtbot, lambda: stage.engine.monitor.since(0)[0] == 12)
    assert page.map.shown is not None and len(page.map.shown.tokens) == 6
    page.pause_button.click()
    until(qtbot, lambda: page.map.shown is not None and len(page.map.shown.tokens) == 12)
    page.clear_button.click()
    until(qtbot, lambda: stage.engine.monitor.history() == [])
    until(qtbot, lambda: page.map.shown is None and page.statistics.rows.rows == [])


def test_clearing_never_waits_on_the_windows_thread(qtbot: QtBot, stage: Stage, page: MonitorPage) -> None:
    monitor, go, held = stage.engine.monitor, threading.Event(), threading.Event()
    in_time: list[bool] = []
    page.pause_button.click()
    stage.window.show_page(FEATURES)
    seen = stage.window.page(FEATURES).seen  # type: ignore[attr-defined]
    until(qtbot, lambda: not stage.bridge._busy)

    def encode() -> None:
        # As a reader does that encodes what a long answer left.
        with monitor._up_to_date():
            held.set()
            in_time.append(go.wait(20))

    encoding = threading.Thread(target=encode)
    encoding.start()
    assert held.wait(20)
    page.clear()
    page.clear()
    seen.clear()
    go.set()
    encoding.join()
    assert in_time == [True]
    until(qtbot, lambda: not stage.bridge._busy)
    assert monitor.history() == []


def test_the_page_follows_the_api_and_other_saes(qtbot: QtBot, stage: Stage, page: MonitorPage, tmp_path: Path) -> None:
    stage.engine.monitor.configure(True, [7], 50, 20)
    until(qtbot, lambda: page.switch.isChecked())
    assert page.features.text() == "7" and page.top.currentData() == 20
    stage.engine.saes.import_local(make_sae(tmp_path / "second", layer=2), sae_id="second")
    stage.engine.attachments.attach("second")
    until(qtbot, lambda: page.places.count() == 2)
    page.places.choose("second", 2)
    page.only.setChecked(True)
    page.features.clear()
    page.apply_button.click()
    until(qtbot, lambda: stage.engine.monitor.state().saes == (("second", 2),))
    write(stage)
    until(qtbot, lambda: page.map.shown is not None and len(page.map.shown.tokens) == 6)
    page.places.choose("mirror", 1)
    until(qtbot, lambda: "This SAE is not watched" in page.map.words.text() and page.map.shown is None)


def test_it_rests_while_nobody_looks(qtbot: QtBot, stage: Stage, page: MonitorPage) -> None:
    assert page._timer.isActive()
    stage.window.show_page(HOME)
    assert not page._timer.isActive()
    stage.window.show_page(MONITOR)
    assert page._timer.isActive()


def test_what_other_pages_light_up_by_is_not_taken_for_a_persons_choice(stage: Stage, page: MonitorPage) -> None:
    window, monitor = stage.window, stage.engine.monitor
    watch = LiveWatch.of(stage.engine, stage.bridge)
    window.show_page(HOME)
    watch.want(window, {3, 5})
    assert (monitor.state().enabled, monitor.state().monitored_features) == (True, (3, 5))
    window.show_page(MONITOR)
    assert not monitor.state().enabled
    watch.want(window, {3, 5, 7})
    assert not monitor.state().enabled
    window.show_page(HOME)
    assert (monitor.state().enabled, monitor.state().monitored_features) == (True, (3, 5, 7))
    watch.release(window)
    assert not monitor.state().enabled


def seen(position: int, *top: tuple[int, float], request: str = "a") -> SeenRecord:
    return SeenRecord(
        ActivationRecord(NOON, request, 0, position, position, "s", 1, top, top, len(top)), f"t{position}"
    )


def test_the_feed_is_bounded_and_leaves_the_sink_out_of_the_scale() -> None:
    feed = Feed()
    feed.seen.append(seen(0, (9, 900.0)))
    for position in range(1, 2 * KEPT):
        feed.seen.append(seen(position, (position % 30, float(position % 7))))
    assert len(feed.seen) == KEPT
    shown = feed.map(None)
    assert len(shown.tokens) == WINDOW and len(shown.features) == 20 and shown.top == 6.0
    assert len(feed.history(50)) == 50
    feed.begin_anew(4)
    feed.seen.append(seen(0, (9, 900.0)))
    feed.seen.append(seen(1, (8, 2.0)))
    assert (feed.map(None).features, feed.map(None).top) == ((8,), 2.0)
    assert feed.map((9, 8)).values == ((900.0, 0.0), (0.0, 2.0))


def test_the_text_around_an_event_is_its_own_answers() -> None:
    feed = Feed()
    for position in range(3):
        feed.seen.append(seen(position, (1, 1.0)))
        feed.seen.append(seen(position, (1, 1.0), request="b"))
    newest = feed.history()[0]
    assert (newest.record.request_id, newest.before, newest.token, newest.after) == ("b", "t0t1", "t2", "")
    oldest = feed.history()[-1]
    assert (oldest.record.request_id, oldest.before, oldest.after) == ("a", "", "t1t2")

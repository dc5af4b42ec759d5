"""Watching features live: a rolling map, the strongest now, figures, and what was read with the text around it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QCheckBox, QLineEdit, QSplitter, QStackedWidget, QWidget

from engine.errors import InvalidParameter
from engine.events import (
    Event,
    ModelLoadComplete,
    ModelUnloadComplete,
    MonitoringStateChanged,
    SaeAttached,
    SaeDetached,
    SaesChanged,
)
from engine.public.monitor import MAX_HISTORY, FeatureStatistics, MonitoringCost, MonitoringState
from engine.public.saes import Attachment
from engine.public.steering import AttachmentKey
from ui.context.page import Page
from ui.context.page_context import CHAT, FEATURES, STEERING, PageContext
from ui.kit import plots, theme
from ui.kit.basics import Button, Card, Notice, column, label, line
from ui.kit.choice import Choice
from ui.kit.live_watch import LiveWatch
from ui.kit.rows_table import Column, RowsTable
from ui.kit.scroll_page import page_ground
from ui.kit.steering_text import parse_features
from ui.kit.switch import Switch
from ui.kit.text import count, counted, describe_error
from ui.look import monitor_feed
from ui.look.bars import Bars
from ui.look.feature_facts import label_words, visible
from ui.look.heat_map import HeatMap
from ui.look.monitor_feed import Feed, Poll
from ui.look.place_box import PlaceBox

INTERVAL_MS = 100
"""Looks at the monitor ten times a second, and only while somebody sees the page."""
FIGURES_EVERY = 5
"""Of these looks, one in so many reads the figures and the history."""
TOPS = (5, 10, 20, 50, 100)
SIDE_WIDTH = 320
TWO_COLUMNS = 860
CONTENT_WIDTH = 1560
GATE = (
    "While text is written, the monitor reads along which features fire at each token. Attach an SAE on the Steering "
    "page, switch the monitor on here, and ask something in Chat."
)
STATISTICS, HISTORY = range(2)


def _share(row: FeatureStatistics) -> str:
    return f"{row.active_ratio * 100:.3g} %"


class MonitorPage(Page, QWidget):
    """Joins the live monitor to its views; everything is read in the background."""

    FOLLOWS = (SaeAttached, SaeDetached, ModelLoadComplete, ModelUnloadComplete, MonitoringStateChanged, SaesChanged)

    def __init__(self, frame: PageContext) -> None:
        super().__init__()
        self._engine = frame.engine
        self._bridge = frame.bridge
        self._frame = frame
        self._feed = Feed()
        self._asking = False
        self._look = 0
        self._looked_at = 0
        """Which beginning of the lists is shown."""
        self.paused = False
        self.setObjectName("page")
        self.places = PlaceBox()
        self.places.place_chosen.connect(self._on_place)
        self.switch = Switch("Monitoring on or off")
        self.switch.clicked.connect(self._on_switch)
        self.cost = label("", "small")
        self.cost.setToolTip("Measured time that reading along takes, all watched SAEs together")
        self.top = Choice()
        self.top.setAccessibleName("Strongest features read at each token")
        for number in TOPS:
            self.top.addItem(f"top {number}", number)
        self.features = QLineEdit()
        self.features.setPlaceholderText("all features, or 12, 40, 99")
        self.features.setAccessibleName("Features to watch")
        self.features.setClearButtonEnabled(True)
        self.features.returnPressed.connect(self.apply)
        self.only = QCheckBox("Only this SAE")
        self.only.setToolTip("Watch the SAE that is shown and no other: less is read at each token")
        self.apply_button = Button("Apply", on_click=self.apply)
        self.pause_button = Button("Pause", "plain", "pause", self._on_pause)
        self.clear_button = Button("Clear", "quiet", on_click=self.clear)
        self.clear_button.setToolTip("Begin the history and the figures anew")
        self.notice = Notice()
        self.map = HeatMap()
        self.map.picked.connect(self._open_feature)
        self.map.room_changed.connect(self._draw_again)
        self.bars = Bars("Strongest features of the last token")
        self.token = label("", "mono", wrap=True)
        self.statistics: RowsTable[FeatureStatistics] = RowsTable(self._figures(), "Figures", sortable=True)
        self.history: RowsTable[monitor_feed.SeenEvent] = RowsTable(self._events(), "History")
        self.statistics.doubleClicked.connect(lambda _index: self._open_feature(None))
        self.tabs = [Button("Figures"), Button("History")]
        self.stack = QStackedWidget()
        self.open_button = Button("Open in Features", "quiet", on_click=lambda: self._open_feature(None))
        self.watch = LiveWatch.of(frame.engine, frame.bridge)
        self.gate = Card("Monitor")
        self.gate_button = Button("Go to Steering", "primary", on_click=partial(frame.go, STEERING))
        self._timer = QTimer(self)
        self._timer.setInterval(INTERVAL_MS)
        self._timer.timeout.connect(self.look)
        self._build()
        self.open_tab(STATISTICS)
        self._show_settings(self._engine.monitor.state())
        self.refresh()
        frame.bridge.run_in_background(plots.load, self._on_plots, self._say_error, owner=self)

    # --- following --------------------------------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Follow what is attached and who configures the monitor."""
        match event:
            case SaeAttached() | SaeDetached() | ModelLoadComplete() | ModelUnloadComplete():
                self.refresh()
            case MonitoringStateChanged():
                self._show_settings(self._engine.monitor.state())
            case SaesChanged():
                self._feed.forget_labels()

    def refresh(self) -> None:
        """Offer what is attached now."""
        attachments = self._engine.desk.state.attachments
        self.places.show_places(attachments)
        there = bool(attachments)
        self.gate.setVisible(not there)
        self._content.setVisible(there)
        for part in (self.places, self.switch, self.cost):
            part.setVisible(there)

    def look(self) -> None:
        """Read what is new, in the background; one look at a time."""
        if self._asking or self.paused:
            return
        self._asking = True
        self._look += 1
        engine, number, place = self._engine, self._feed.number, self._place
        known = frozenset(self._feed.asked)
        figures = self._look % FIGURES_EVERY == 1
        lists = self._looked_at
        self._bridge.run_in_background(
            lambda: monitor_feed.poll(engine, number, place, known, figures=figures),
            lambda found: self._on_poll(found, place, lists),
            self._on_poll_error,
            owner=self,
        )

    def showEvent(self, event: QShowEvent) -> None:
        """Look while somebody does, at what a person asked for rather than what another page lights up by."""
        super().showEvent(event)
        self.watch.rest()
        self.look()
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        """Rest."""
        super().hideEvent(event)
        self._timer.stop()
        self.watch.resume()

    @property
    def _place(self) -> AttachmentKey | None:
        place = self.places.place
        return None if place is None else (place.sae_id, place.layer)

    def _on_poll(self, found: Poll, place: AttachmentKey | None, lists: int) -> None:
        self._asking = False
        if place != self._place:
            return
        if lists != self._looked_at:
            # Read before the lists were begun anew: it would bring back what was cleared.
            self.look()
            return
        self._feed.take(found)
        self._show_cost(found.cost, found.state)
        if found.new or found.labels:
            self._show_tokens(found.state)
        if found.statistics is not None:
            self._show_figures(found.statistics)
        if not self._feed.seen:
            self.map.show_words(self._empty_words(found.state))

    def _on_poll_error(self, error: Exception) -> None:
        self._asking = False
        self._say_error(error)

    def _on_plots(self, pg: Any) -> None:
        self.map.build(pg)
        self._show_tokens(self._engine.monitor.state())

    def _on_place(self, _place: Attachment | None) -> None:
        # What the history still holds of this SAE is shown at once.
        self._show_nothing(0)
        self.map.show_words("")
        self._look = 0
        self.look()

    # --- what a person does -----------------------------------------------------------------------------------------

    def apply(self) -> None:
        """Watch what the fields say."""
        try:
            features = tuple(parse_features(self.features.text())) or None
        except InvalidParameter as error:
            self._say_error(error)
            return
        place = self._place
        chosen: dict[str, Any] = {}
        if self.only.isChecked() and place is not None:
            chosen = {"sae_id": place[0], "layer": place[1]}
        monitor, on, top = self._engine.monitor, self.switch.isChecked(), self.top.currentData()
        self._change(lambda: monitor.configure(on, features, MAX_HISTORY, top, **chosen))

    def clear(self) -> None:
        """Begin the history and the figures anew."""
        monitor = self._engine.monitor

        def clear() -> tuple[int, MonitoringState]:
            # What waits to be encoded is encoded by these, which takes a while: not on the window's thread.
            monitor.clear_history()
            monitor.clear_statistics()
            number, _ = monitor.since(1 << 62)
            return number, monitor.state()

        def cleared(found: tuple[int, MonitoringState]) -> None:
            number, state = found
            self._show_nothing(number)
            self._on_changed(state)

        self.notice.hide()
        self._bridge.run_once(("clear the monitor",), clear, cleared, self._on_refused, owner=self)

    def _show_nothing(self, number: int) -> None:
        """Begin the lists anew; only tokens after the first ``number`` count, and no look that is under way."""
        self._looked_at += 1
        self._feed.begin_anew(number)
        self.statistics.set_rows(())
        self.history.set_rows(())
        self.bars.show_bars((), 0.0)
        self.token.setText("")

    def open_tab(self, place: int) -> None:
        """Show the figures or the history."""
        self.stack.setCurrentIndex(place)
        for number, tab in enumerate(self.tabs):
            tab.setChecked(number == place)
        self.open_button.setVisible(place == STATISTICS)
        if place == HISTORY:
            self.history.set_rows(self._feed.history())

    def _on_switch(self, on: bool) -> None:
        if on:
            self.apply()
        else:
            monitor = self._engine.monitor
            self._change(lambda: monitor.set_enabled(False))

    def _on_pause(self) -> None:
        self.paused = not self.paused
        self.pause_button.setText(" Go on" if self.paused else " Pause")
        self.pause_button.setAccessibleName("Go on" if self.paused else "Pause")
        self.pause_button.set_icon("play" if self.paused else "pause")
        if not self.paused:
            self.look()

    def _open_feature(self, index: int | None) -> None:
        place, row = self._place, self.statistics.current()
        if index is None and row is not None:
            index = row.feature_idx
        if place is not None and index is not None:
            self._frame.go(FEATURES, sae_id=place[0], layer=place[1], feature=index)

    def _change(self, change: Callable[[], MonitoringState]) -> None:
        self.notice.hide()
        self._bridge.run_in_background(change, self._on_changed, self._on_refused, owner=self)

    def _on_changed(self, state: MonitoringState) -> None:
        self._show_settings(state)
        self._look = 0
        self.look()

    def _on_refused(self, error: Exception) -> None:
        self._show_settings(self._engine.monitor.state())
        self._say_error(error)

    def _say_error(self, error: Exception) -> None:
        self.notice.show_words(describe_error(error))

    # --- showing ----------------------------------------------------------------------------------------------------

    def _show_settings(self, state: MonitoringState) -> None:
        self.switch.setChecked(state.enabled)
        chosen = TOPS.index(state.top_k) if state.top_k in TOPS else -1
        if chosen < 0 and self.top.findData(state.top_k) < 0:
            self.top.addItem(f"top {state.top_k}", state.top_k)
        self.top.setCurrentIndex(self.top.findData(state.top_k))
        if not self.features.isModified():
            self.features.setText(
                "" if state.monitored_features is None else ", ".join(map(str, state.monitored_features))
            )
        attachments = self._engine.desk.state.attachments
        self.only.setEnabled(len(attachments) > 1)
        self.only.setChecked(state.enabled and len(state.saes) < len(attachments))

    def _show_cost(self, cost: MonitoringCost, state: MonitoringState) -> None:
        spent = cost.milliseconds_per_token
        if not state.enabled:
            self.cost.setText("off")
        elif spent is None:
            self.cost.setText("on · no token read yet")
        else:
            self.cost.setText(f"on · {spent:.2f} ms per token over {counted(cost.tokens, 'token')}")

    def _show_tokens(self, state: MonitoringState) -> None:
        newest = self._feed.newest
        if newest is None:
            return
        names = {index: label_words(found, index) for index, found in self._feed.labels.items()}
        shown = self._feed.map(state.monitored_features, self.map.room)
        self.map.show_map(shown, names)
        strongest = newest.record.top_k
        self.bars.show_bars([(names.get(index, f"#{index}"), value) for index, value in strongest], shown.top)
        self.token.setText(f"“{visible(newest.token)}” · position {newest.record.token_position}")
        if self._look % FIGURES_EVERY == 1 and self.stack.currentIndex() == HISTORY:
            self.history.set_rows(self._feed.history())

    def _draw_again(self) -> None:
        if self.map.shown is not None:
            self._show_tokens(self._engine.monitor.state())

    def _show_figures(self, rows: tuple[FeatureStatistics, ...]) -> None:
        if list(rows) != self.statistics.rows.given:
            self.statistics.set_rows(rows)

    def _empty_words(self, state: MonitoringState) -> str:
        if not state.enabled:
            return "The monitor is off. Switch it on, then let something be written, in Chat or through the API."
        if self._place not in state.saes:
            return "This SAE is not watched: take the tick from “Only this SAE” and apply."
        return "The monitor is on. What fires shows here as soon as something is written, in Chat or through the API."

    def _figures(self) -> tuple[Column[FeatureStatistics], ...]:
        def name(row: FeatureStatistics) -> str:
            found = self._feed.labels.get(row.feature_idx)
            return found.label if found is not None and found.label else "no label"

        return (
            Column("#", lambda row: str(row.feature_idx), 66, right=True, muted=True, sort=lambda row: row.feature_idx),
            Column("Label", name, sort=name),
            Column("Mean", lambda row: f"{row.mean:.3f}", 80, right=True, sort=lambda row: row.mean),
            Column("Std", lambda row: f"{row.std:.3f}", 80, right=True, muted=True, sort=lambda row: row.std),
            Column("Min", lambda row: f"{row.min:.3f}", 74, right=True, muted=True, sort=lambda row: row.min),
            Column("Max", lambda row: f"{row.max:.3f}", 80, right=True, sort=lambda row: row.max),
            Column("Active", _share, 80, right=True, tip="Share of tokens", sort=lambda row: row.active_ratio),
            Column("Tokens", lambda row: count(row.count), 80, right=True, muted=True, sort=lambda row: row.count),
        )

    def _events(self) -> tuple[Column[monitor_feed.SeenEvent], ...]:
        def fired(event: monitor_feed.SeenEvent) -> str:
            parts = []
            for index, value in event.strongest:
                found = self._feed.labels.get(index)
                parts.append(f"{label_words(found, index)} {value:.1f}")
            return " · ".join(parts)

        return (
            Column("Time", lambda event: f"{event.record.timestamp.astimezone():%H:%M:%S}", 96, muted=True),
            Column("Before", lambda event: visible(event.before), right=True, muted=True),
            Column("Token", lambda event: visible(event.token), 110, mono=True),
            Column("After", lambda event: visible(event.after) if event.after else "", muted=True),
            Column("Strongest", fired, 330),
        )

    # --- layout -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        texts = column(spacing=1)
        texts.addWidget(label("Monitor", "title"))
        texts.addWidget(
            label("Which features fire while text is written, before each layer's own steering.", "muted", wrap=True)
        )
        head = line(spacing=theme.M)
        head.addLayout(texts, 1)
        for part in (self.cost, self.switch, self.places):
            head.addWidget(part, 0, Qt.AlignmentFlag.AlignVCenter)
        self.gate.body.addWidget(label(GATE, "muted", wrap=True))
        self.gate.body.addLayout(
            line(self.gate_button, Button("Go to Chat", on_click=partial(self._frame.go, CHAT)), None)
        )
        controls = line()
        controls.addWidget(self.features, 1)
        for control in (self.top, self.only, self.apply_button):
            controls.addWidget(control)
        controls.addWidget(self.pause_button)
        upper = Card()
        upper.body.addLayout(controls)
        upper.body.addWidget(self.map, 1)
        bar = line(spacing=theme.L)
        for number, tab in enumerate(self.tabs):
            tab.setProperty("look", "tab")
            tab.setCheckable(True)
            tab.clicked.connect(lambda _on=False, place=number: self.open_tab(place))
            bar.addWidget(tab)
        bar.addStretch(1)
        bar.addWidget(self.open_button)
        bar.addWidget(self.clear_button)
        self.stack.addWidget(self.statistics)
        self.stack.addWidget(self.history)
        lower = Card()
        lower.body.addLayout(bar)
        lower.body.addWidget(self.stack, 1)
        side = Card("Last token")
        side.body.addWidget(self.token)
        side.body.addWidget(self.bars, 1)
        self._side = side
        top = QWidget()
        across = line(spacing=theme.L)
        across.addWidget(upper, 1)
        across.addWidget(side)
        top.setLayout(across)
        splitter = QSplitter(Qt.Orientation.Vertical)
        splitter.setChildrenCollapsible(False)
        splitter.setHandleWidth(theme.M)
        splitter.addWidget(top)
        splitter.addWidget(lower)
        splitter.setStretchFactor(0, 3)
        splitter.setStretchFactor(1, 2)
        splitter.setSizes([360, 240])
        self._content = splitter
        inside = column(spacing=theme.M)
        inside.addLayout(head)
        inside.addWidget(self.notice)
        inside.addWidget(self.gate)
        inside.addWidget(splitter, 1)
        inside.addWidget(QWidget())
        whole = column(spacing=0)
        whole.addWidget(page_ground(inside, CONTENT_WIDTH))
        self.setLayout(whole)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The last token beside the map where there is room."""
        super().resizeEvent(event)
        self._side.setVisible(self.width() >= TWO_COLUMNS)
        self._side.setFixedWidth(SIDE_WIDTH)

"""The live monitor: which features fire at each token, for every attached SAE, with history, statistics and events.

Only what arrives at a layer is read, before that layer's own steering. One record per SAE and token: each token of an
answer, and of a prompt the last position only, since that is where the answer begins. A pass leaves its residual
vectors; they are encoded, and records and figures made of them, for several passes at once: when an event is due, when
enough have come together, or when somebody asks. Nothing is left out, and whoever reads finds all passes that have
ended.

Observers run on the engine thread; everything else may be called from any thread, and encodes there what was read and
not taken in yet (``docs/decisions/0006-encoding-on-a-readers-thread.md``). Torch is imported by the first pass.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from engine.errors import SaeNotAttached
from engine.events import ActivationObserved, EventBus, FeatureActivation, MonitoringStateChanged
from engine.monitor.checks import check_bool, check_features, check_features_of_any, check_whole, feature_list
from engine.monitor.errors import listed, pairs
from engine.monitor.records import (
    ActivationRecord,
    FeatureStatistics,
    Metric,
    MonitoringCost,
    MonitoringState,
    MonitoringStatistics,
    WatchedSae,
)
from engine.monitor.rows import NO_OBSERVERS, Observers, RowInfo
from engine.monitor.top_tokens import FeaturePeaks, PeakMemory
from engine.monitor.watch import PassReading, Series, Watch, taken_in
from engine.saes.attachment import Attachment

if TYPE_CHECKING:
    from engine.monitor.statistics import StatisticsCopy

log = logging.getLogger(__name__)

EVENT_INTERVAL = 0.1
"""Seconds between two ``monitoring:activation`` events, at least."""

MOST_PASSES = 16
"""Passes whose residual vectors are held before they are encoded."""

MOST_VALUES = 1 << 19
"""Activations made at once at most, over all SAEs, as far as one pass does not make more."""

MAX_HISTORY = 1000
MAX_TOP_K = 1000
MAX_TOP_FEATURES = 100


@dataclass(frozen=True)
class _Config:
    enabled: bool = False
    features: tuple[int, ...] | None = None
    history_size: int = 100
    top_k: int = 10
    sae_id: str | None = None
    layer: int | None = None


class LiveMonitor:
    """Off until someone turns it on; then it reads every pass it is asked for.

    Args:
        events: Where :class:`MonitoringStateChanged` and :class:`ActivationObserved` go.
        clock: Seconds of a steady clock; spaces the events.
        now: The time records carry (UTC).
        stopwatch: Seconds of the clock by which reading is measured.
    """

    def __init__(
        self,
        events: EventBus,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._events = events
        self._clock = clock
        self._now = now
        self._stopwatch = stopwatch
        # Order: _taking before _lock. Records, figures and peaks change under the first; the second is held for moments
        # only, so that neither a pass that ends nor whoever asks for the state waits for an encoder.
        self._taking = threading.Lock()
        self._lock = threading.RLock()
        self._config = _Config()
        self._attachments: tuple[Attachment, ...] = ()
        self._series: tuple[Series, ...] = ()
        self._watch: Watch | None = None
        self._history: deque[ActivationRecord] = deque(maxlen=self._config.history_size)
        self._last_event: float | None = None
        self._turn = 0
        self._recorded = 0
        self._peaks = PeakMemory()
        self._pending: list[tuple[PassReading, datetime]] = []
        self._in_hand: list[tuple[PassReading, datetime]] = []
        """What is being taken in at this moment."""
        self._tokens_read, self._seconds_spent = 0, 0.0

    # --- settings ---------------------------------------------------------------------------------------------------

    def configure(
        self,
        enabled: bool = True,
        features: Sequence[int] | None = None,
        history_size: int = 100,
        top_k: int = 10,
        *,
        sae_id: str | None = None,
        layer: int | None = None,
    ) -> MonitoringState:
        """Say what is watched; nothing changes when it is refused.

        ``sae_id`` and ``layer`` choose among the attached SAEs, None means all. ``features`` are watched in each of
        them, None means all. Figures of an SAE whose watched features change begin anew.

        Raises :class:`InvalidParameter`, :class:`SaeNotAttached` (also for turning it on with nothing attached) and
        :class:`InvalidFeatureIndex` (an index that one of the SAEs does not have).
        """
        check_whole("history_size", history_size, 1, MAX_HISTORY)
        check_whole("top_k", top_k, 1, MAX_TOP_K)
        check_bool("enabled", enabled)
        chosen = feature_list(features)
        config = _Config(enabled, chosen, history_size, top_k, sae_id, layer)
        with self._changing():
            matching = self._matching(sae_id, layer, self._attachments)
            if not matching and (enabled or chosen is not None or sae_id is not None or layer is not None):
                raise self._not_attached(sae_id, layer)
            check_features(chosen or (), matching)
            changed = self._apply(config, self._attachments)
            state = self._state()
        self._publish_state(state, changed)
        return state

    def set_enabled(self, enabled: bool) -> MonitoringState:
        """Turn it on or off and leave the rest as it is. Raises :class:`SaeNotAttached` when nothing can be watched."""
        check_bool("enabled", enabled)
        with self._changing():
            if enabled and not self._series:
                raise self._not_attached(self._config.sae_id, self._config.layer)
            changed = self._apply(replace(self._config, enabled=enabled), self._attachments)
            state = self._state()
        self._publish_state(state, changed)
        return state

    def set_attachments(self, attachments: Sequence[Attachment]) -> None:
        """The attached SAEs from now on.

        Figures of SAEs that stay go on; the others' are dropped with every hold on their weights. An SAE that comes is
        watched too, unless certain ones were chosen; of chosen features those it has. When nothing that was watched is
        left, the monitor goes off and forgets what was chosen; the history stays.
        """
        with self._changing():
            config = self._config
            kept = {(each.sae_id, each.layer) for each in attachments}
            watched = {(each.attachment.sae_id, each.attachment.layer) for each in self._series}
            if watched and not watched & kept:
                config = replace(config, enabled=False, features=None, sae_id=None, layer=None)
            self._peaks.keep(kept)
            changed = self._apply(config, tuple(attachments))
            state = self._state()
        self._publish_state(state, changed)

    def state(self) -> MonitoringState:
        """What it is set to now."""
        with self._lock:
            return self._state()

    @property
    def watching(self) -> bool:
        """Whether anything is watched at all: False saves the caller describing its rows."""
        return self._watch is not None

    # --- passes (engine thread) -------------------------------------------------------------------------------------

    def observers(self, rows: Sequence[RowInfo]) -> Observers:
        """Who reads in the coming pass, by layer; empty while the monitor is off, and for a chunk of a prompt that
        does not end it. A pass that fails on the way leaves no trace.
        """
        watch = self._watch
        if watch is None:
            return NO_OBSERVERS
        places = [place for place, row in enumerate(rows) if row.reaches_prompt_end]
        if not places:
            return NO_OBSERVERS
        some = len(places) < len(rows)
        read = [rows[place] for place in places]
        where = places if some else None
        return PassReading(watch, read, where, len(rows), self._finish, self._stopwatch).observers()

    def _finish(self, reading: PassReading) -> None:
        """Every layer of a pass was read: keep it, unless what is watched has changed meanwhile."""
        time_now = self._clock()
        with self._lock:
            if self._watch is not reading.watch:
                return
            self._pending.append((reading, self._now()))
            full = len(self._pending) >= MOST_PASSES or self._pending_values() >= MOST_VALUES
        due = self._last_event is None or time_now - self._last_event >= EVENT_INTERVAL
        # While somebody else takes passes in, an event can wait for the next one; room cannot.
        if not (due or full) or not self._taking.acquire(blocking=full):
            return
        try:
            records = self._take_in()
            # Nothing where somebody else was first.
            event = self._event(records, len(reading.watch.series), time_now) if due and records else None
        finally:
            self._taking.release()
        if event is not None:
            self._events.publish(event)

    def _pending_values(self) -> int:
        return sum(reading.values for reading, _ in self._pending)

    def _take_in(self) -> list[ActivationRecord]:
        """Make records and figures of the passes read since the last time, on the thread that has taken ``_taking``."""
        with self._lock:
            if not self._pending:
                return []
            self._in_hand, self._pending = self._pending, []
        try:
            return self._took(*zip(*self._in_hand, strict=True))
        finally:
            self._in_hand = []

    def _took(self, readings: tuple[PassReading, ...], times: tuple[datetime, ...]) -> list[ActivationRecord]:
        began = self._stopwatch()
        records = taken_in(readings, times)
        with self._lock:
            self._history.extend(records)
            self._in_hand = []
        self._recorded += len(records)
        self._peaks.add(records)
        spent = sum(reading.seconds for reading in readings) + self._stopwatch() - began
        tokens = len(records) // len(readings[0].watch.series)
        self._tokens_read += tokens
        self._seconds_spent += spent
        return records

    @contextmanager
    def _up_to_date(self) -> Iterator[None]:
        """For somebody who reads: what has ended is taken in, and nothing more is meanwhile."""
        with self._taking:
            self._take_in()
            yield

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Both locks, for a change of what is watched. What was read before is taken in first, under what was watched
        then; where that fails (memory is short, and an SAE is to leave for that very reason) it is lost, and the change
        is made all the same.
        """
        with self._taking:
            self._take_in_or_lose()
            with self._lock:
                # Of a pass that has ended since.
                self._take_in_or_lose()
                yield

    def _take_in_or_lose(self) -> None:
        try:
            self._take_in()
        except Exception as error:
            # Without its traceback, which would hold the weights.
            log.error("the last passes that were read could not be taken in: %s", repr(error))

    def _event(self, records: Sequence[ActivationRecord], saes: int, time_now: float) -> ActivationObserved:
        """The newest record of one SAE, the SAEs taking turns."""
        self._last_event = time_now
        record = records[len(records) - saes + self._turn % saes]
        self._turn += 1
        return ActivationObserved(
            timestamp=record.timestamp.isoformat(),
            request_id=record.request_id,
            position=record.token_position,
            token_id=record.token_id,
            sae_id=record.sae_id,
            layer=record.layer,
            features=tuple(FeatureActivation(index, value) for index, value in record.top_k),
        )

    # --- reads ------------------------------------------------------------------------------------------------------

    def history(self, limit: int = 50, request_id: str | None = None) -> list[ActivationRecord]:
        """The newest records first, at most ``limit`` (1–1000), of one request or of all."""
        check_whole("limit", limit, 1, MAX_HISTORY)
        with self._up_to_date():
            wanted = (each for each in reversed(self._history) if request_id in (None, each.request_id))
            return list(islice(wanted, limit))

    def since(self, number: int) -> tuple[int, list[ActivationRecord]]:
        """How many records there were in all so far, and those after the first ``number``, oldest first.

        For a reader that comes again and again with the number it was given last. Records that have left the history
        meanwhile are missing.
        """
        with self._up_to_date():
            new = min(max(self._recorded - number, 0), len(self._history))
            return self._recorded, list(islice(self._history, len(self._history) - new, None))

    def cost(self) -> MonitoringCost:
        """What reading has cost since what is watched last changed, or the figures were cleared.

        On a device that works behind the program's back the figure holds the wait for what was under way.
        """
        with self._up_to_date():
            tokens, seconds = self._tokens_read, self._seconds_spent
            mean = seconds * 1000 / tokens if tokens else None
            return MonitoringCost(self._config.enabled, tokens, seconds, mean)

    def peaks(self, sae_id: str, layer: int, *, limit: int = 50) -> tuple[FeaturePeaks, ...]:
        """The features of an SAE that fired most since they were last cleared, each with its strongest tokens."""
        check_whole("limit", limit, 1, MAX_HISTORY)
        with self._up_to_date():
            return self._peaks.strongest(sae_id, layer, limit)

    def peaks_of(self, sae_id: str, layer: int, feature_idx: int) -> FeaturePeaks:
        """One feature's strongest tokens since they were last cleared."""
        with self._up_to_date():
            return self._peaks.of(sae_id, layer, feature_idx)

    def clear_peaks(self) -> int:
        """Forget the strongest tokens of all features; returns how many tokens there were."""
        with self._up_to_date():
            return self._peaks.clear()

    def clear_history(self) -> int:
        """Forget all records; returns how many there were."""
        with self._up_to_date():
            count = len(self._history)
            self._history.clear()
        return count

    def statistics(
        self, features: Sequence[int] | None = None, *, sae_id: str | None = None, layer: int | None = None
    ) -> MonitoringStatistics:
        """Figures of ``features`` (None: all that were ever active) of the watched SAEs, or of the named ones.

        A named feature that was never read has a count of 0. Raises :class:`SaeNotAttached` when the named SAE is not
        watched and :class:`InvalidFeatureIndex` when none of the SAEs has the feature.
        """
        named = feature_list(features)
        series, since = self._copies(sae_id, layer)
        check_features_of_any(named or (), [each.attachment for each, _ in series])
        found: list[FeatureStatistics] = []
        for each, copy in series:
            if named is not None:
                names = [index for index in named if index < each.d_sae]
            else:
                names = [] if copy is None else [each.name(column) for column in copy.active_columns()]
            found.extend(each.statistics(names, copy))
        total = sum(copy.total_active for _, copy in series if copy is not None)
        return MonitoringStatistics(tuple(found), total, since)

    def top(
        self,
        k: int = 10,
        metric: Metric = Metric.MEAN,
        *,
        sae_id: str | None = None,
        layer: int | None = None,
    ) -> list[FeatureStatistics]:
        """The ``k`` (1–100) first features by ``metric`` among those ever active; equal ones by activity, then index.

        Raises :class:`SaeNotAttached` when the named SAE is not watched.
        """
        check_whole("k", k, 1, MAX_TOP_FEATURES)
        series, _ = self._copies(sae_id, layer)
        best: list[tuple[tuple[float, int, int], FeatureStatistics]] = []
        for order, (each, copy) in enumerate(series):
            if copy is None:
                continue
            first = copy.strongest(metric, k)
            found = each.statistics([each.name(column) for column, _ in first], copy)
            keys = [(-value, -one.active_count, order) for (_, value), one in zip(first, found, strict=True)]
            best.extend(zip(keys, found, strict=True))
        # Stable: equal ones stay in the order of their indices.
        best.sort(key=lambda item: item[0])
        return [one for _, one in best[:k]]

    def clear_statistics(self) -> None:
        with self._up_to_date():
            since = self._now()
            for each in self._series:
                each.clear(since)
            self._tokens_read, self._seconds_spent = 0, 0.0

    # --- with both locks held, but `_state` with the second -----------------------------------------------------------

    def _apply(self, config: _Config, attachments: tuple[Attachment, ...]) -> bool:
        """Take over what is to be watched; True when listeners should hear of it."""
        before = self._heard()
        since = self._now()
        series: list[Series] = []
        for each in self._matching(config.sae_id, config.layer, attachments):
            features = config.features
            if features is not None:
                features = tuple(index for index in features if index < each.sae.config.d_sae)
                if not features:
                    continue
            kept = next((old for old in self._series if old.is_of(each, features)), None)
            series.append(kept or Series(each, features, since))
        if config.history_size != self._history.maxlen:
            self._history = deque(self._history, maxlen=config.history_size)
        self._config = config
        self._attachments = attachments
        self._series = tuple(series)
        self._watch = Watch(self._series, config.top_k) if config.enabled and series else None
        self._tokens_read, self._seconds_spent = 0, 0.0
        return self._heard() != before

    def _heard(self) -> tuple[object, ...]:
        watched = tuple((each.attachment.sae_id, each.attachment.layer) for each in self._series)
        return self._config.enabled, self._config.features, watched

    def _state(self) -> MonitoringState:
        config = self._config
        watched = tuple(WatchedSae(each.attachment.sae_id, each.attachment.layer) for each in self._series)
        return MonitoringState(
            enabled=config.enabled,
            sae_attached=bool(self._attachments),
            sae_id=watched[0].sae_id if watched else None,
            layer=watched[0].layer if watched else None,
            saes=watched,
            monitored_features=config.features,
            history_size=config.history_size,
            history_count=min(len(self._history) + self._records_to_come(), config.history_size),
            top_k=config.top_k,
        )

    def _records_to_come(self) -> int:
        return sum(len(reading.rows) * len(reading.watch.series) for reading, _ in (*self._pending, *self._in_hand))

    def _not_attached(self, sae_id: str | None, layer: int | None) -> SaeNotAttached:
        wanted = [f"'{sae_id}'"] if sae_id is not None else []
        wanted += [f"layer {layer}"] if layer is not None else []
        asked = f"no SAE fits {' and '.join(wanted)}" if wanted else "no SAE is attached"
        return SaeNotAttached(
            f"There is nothing to monitor: {asked}. Attached: {listed(self._attachments)}.",
            param=None if not wanted else "sae_id" if sae_id is not None else "layer",
            details={"attached": pairs(self._attachments)},
            remedy="Name one that is attached." if self._attachments else "Attach an SAE first.",
        )

    @staticmethod
    def _matching(sae_id: str | None, layer: int | None, attachments: Sequence[Attachment]) -> list[Attachment]:
        return [each for each in attachments if sae_id in (None, each.sae_id) and layer in (None, each.layer)]

    # --- lock not held ----------------------------------------------------------------------------------------------

    def _copies(
        self, sae_id: str | None, layer: int | None
    ) -> tuple[list[tuple[Series, StatisticsCopy | None]], datetime | None]:
        """The figures of the watched SAEs that fit, and since when they count."""
        with self._up_to_date():
            fitting = set(self._matching(sae_id, layer, [each.attachment for each in self._series]))
            chosen = [each for each in self._series if each.attachment in fitting]
            if not chosen and (sae_id is not None or layer is not None):
                raise self._not_attached(sae_id, layer)
            since = min((each.since for each in chosen), default=None)
            return [(each, each.copy()) for each in chosen], since

    def _publish_state(self, state: MonitoringState, changed: bool) -> None:
        if changed:
            self._events.publish(
                MonitoringStateChanged(state.enabled, state.monitored_features, state.sae_id, state.layer)
            )

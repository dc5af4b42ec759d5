"""Watching certain features live for as long as something on screen shows them, and putting the monitor back after.

The live monitor is one for everybody. Where it is off it is turned on for what is wanted; where it watches everything
it is only listened to; where a person or an API client chose other features, that choice stands. A choice that somebody
makes meanwhile stands too: then there is nothing to put back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from PySide6.QtCore import QObject, Signal

from engine.engine import Engine
from engine.errors import MillmError
from engine.events import Event, MonitoringStateChanged
from engine.public.monitor import MAX_TOP_K, MonitoringState
from ui.bridge import Bridge

LEAST_TOP_K = 10
WIDE_TOP_K = 64
"""How many of the strongest features are read where the wanted ones cannot be chosen."""


class WatchState(Enum):
    """How the wanted features are read."""

    IDLE = "idle"
    """Nothing is wanted, or no SAE is attached."""
    CHOSEN = "chosen"
    """They are read at every token."""
    STRONGEST = "strongest"
    """They are read at tokens where they are among the strongest."""
    OTHERS = "others"
    """Somebody chose other features to be watched."""


@dataclass(frozen=True)
class _Ours:
    enabled: bool
    features: tuple[int, ...] | None


class LiveWatch(QObject):
    """One for the window; see :meth:`of`. All methods are for the GUI thread, and return at once."""

    changed = Signal()
    """:attr:`state` may be another one now."""

    def __init__(self, engine: Engine, bridge: Bridge) -> None:
        super().__init__(bridge)
        self._engine = engine
        self._wanted: dict[object, frozenset[int]] = {}
        self._before: MonitoringState | None = None
        self._ours: _Ours | None = None
        self._resting = False
        self.state = WatchState.IDLE
        bridge.event_arrived.connect(self._on_event)

    @classmethod
    def of(cls, engine: Engine, bridge: Bridge) -> LiveWatch:
        """The window's watch, made by whoever asks first."""
        found = bridge.findChild(cls)
        return found if isinstance(found, cls) else cls(engine, bridge)

    def want(self, owner: object, features: Iterable[int]) -> None:
        """Let ``owner`` see these features, in place of what it wanted before."""
        wanted = frozenset(features)
        if self._wanted.get(owner) != wanted:
            self._wanted[owner] = wanted
        self._apply(take_over=False)

    def take_over(self) -> None:
        """Watch what is wanted, whatever somebody else chose; their choice comes back at the end."""
        self._apply(take_over=True)

    def release(self, owner: object) -> None:
        """``owner`` shows nothing any more; the last one to leave puts the monitor back."""
        if self._wanted.pop(owner, None) is None:
            return
        if self._wanted:
            self._apply(take_over=False)
            return
        before, self._before = self._before, None
        ours, self._ours = self._ours, None
        if before is not None and ours is not None:
            self._put_back(before)
        self._say(WatchState.IDLE)

    def rest(self) -> None:
        """Leave the monitor to a person who looks at it: it stands as it did before this watched anything."""
        self._resting = True
        before, self._before = self._before, None
        ours, self._ours = self._ours, None
        if before is not None and ours is not None:
            self._put_back(before)
        self._say(WatchState.IDLE)

    def resume(self) -> None:
        """Watch again what is wanted."""
        if self._resting:
            self._resting = False
            if self._wanted:
                self._apply(take_over=False)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _apply(self, *, take_over: bool) -> None:
        monitor = self._engine.monitor
        now = monitor.state()
        wanted = tuple(sorted(set().union(*self._wanted.values()))) if self._wanted else ()
        if self._resting or not wanted or not now.sae_attached:
            self._say(WatchState.IDLE)
            return
        if self._ours is None and now.enabled and not take_over:
            chosen = now.monitored_features
            listening = WatchState.STRONGEST if chosen is None else WatchState.CHOSEN
            self._say(listening if chosen is None or set(wanted) <= set(chosen) else WatchState.OTHERS)
            return
        if self._ours is None:
            self._before = now
        elif self._ours.features == wanted:
            self._say(WatchState.CHOSEN)
            return
        self._configure(now, wanted)

    def _configure(self, now: MonitoringState, wanted: tuple[int, ...]) -> None:
        monitor = self._engine.monitor
        top_k = min(MAX_TOP_K, max(LEAST_TOP_K, len(wanted)))
        try:
            self._ours = _Ours(True, wanted)
            monitor.configure(True, wanted, now.history_size, top_k)
            self._say(WatchState.CHOSEN)
        except MillmError:
            # One of the attached SAEs is too small for one of the features: read the strongest of each instead.
            self._ours = _Ours(True, None)
            monitor.configure(True, None, now.history_size, WIDE_TOP_K)
            self._say(WatchState.STRONGEST)

    def _put_back(self, before: MonitoringState) -> None:
        monitor = self._engine.monitor
        attached = {(each.sae_id, each.layer) for each in self._engine.desk.state.attachments}
        watched = set(before.saes)
        one = next(iter(watched)) if len(watched) == 1 and watched < attached else (None, None)
        try:
            monitor.configure(
                before.enabled,
                before.monitored_features,
                before.history_size,
                before.top_k,
                sae_id=one[0],
                layer=one[1],
            )
        except MillmError:
            # What was watched before has been detached meanwhile: off is all that can be put back.
            monitor.configure(False, None, before.history_size, before.top_k)

    def _on_event(self, event: Event) -> None:
        if not isinstance(event, MonitoringStateChanged):
            return
        if self._ours is not None and _Ours(event.enabled, event.monitored_features) != self._ours:
            now = self._engine.monitor.state()
            if _Ours(now.enabled, now.monitored_features) != self._ours:
                self._ours = self._before = None
        if self._ours is None and self._wanted:
            now = self._engine.monitor.state()
            if now.enabled:
                self._apply(take_over=False)
            else:
                self._say(WatchState.IDLE)

    def _say(self, state: WatchState) -> None:
        if state is not self.state:
            self.state = state
            self.changed.emit()

"""The dial above the composer: reads what there is to steer with, puts the choice in force, turns it as text comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import QObject, QTimer, Signal

from engine.errors import SaeNotAttached
from engine.events import (
    CircuitsChanged,
    ClustersChanged,
    Event,
    ModelUnloadComplete,
    ProfilesChanged,
    SaeAttached,
    SaeDetached,
    SteeringUpdated,
)
from engine.public.steering import SaeSetIncomplete, UnvalidatedCircuit
from ui.context.page_context import PageContext
from ui.kit.rung_badge import next_words
from ui.kit.steer_targets import (
    NOTHING,
    Target,
    TargetKind,
    Targets,
    apply_value,
    in_force,
    live_target,
    put_in_force,
    read_shelf,
    sets_that_serve,
)
from ui.kit.steering_text import NO_CLAIM, live_words
from ui.kit.text import describe_error
from ui.talk.steer_strip import LIVE, SteerStrip

_SHELF_EVENTS = (ProfilesChanged, ClustersChanged, CircuitsChanged, SaeAttached, SaeDetached, ModelUnloadComplete)
SETTLE_MS = 60
"""Events that come together are answered together."""


class DialDesk(QObject):
    """Joins the strip to the engine. What is chosen steers live, so it steers other programs' requests too."""

    FOLLOWS = (SteeringUpdated, *_SHELF_EVENTS)

    changed = Signal()
    """What steers, or what is chosen, is another than before."""

    def __init__(self, frame: PageContext, strip: SteerStrip, parent: QObject) -> None:
        super().__init__(parent)
        self._engine = frame.engine
        self._bridge = frame.bridge
        self._strip = strip
        self._shelf = Targets()
        self._chosen: tuple[TargetKind, str] = LIVE
        self._mine: Target | None = None
        """What was put in force here, and goes when something else is chosen here."""
        self._hand: Target | None = None
        self._wish: tuple[TargetKind, str, float | None] | None = None
        """What is to be chosen as soon as the library was read."""
        self._agreed: set[str] = set()
        self._wanted: tuple[Target, float] | None = None
        self._turning = False
        self._under_way: Target | None = None
        self._putting = False
        self._at_zero = False
        """Whether the notice says that what was chosen adds nothing."""
        self._pending = False
        """What is chosen waits for the person: to agree, or to attach what it needs."""
        self._asked = 0
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SETTLE_MS)
        self._timer.timeout.connect(self.refresh)
        strip.chosen.connect(self.choose)
        strip.turned.connect(self._turn)
        strip.agreed.connect(self._on_agreed)
        strip.attach_wanted.connect(self._attach)
        strip.page_wanted.connect(frame.go)

    # --- what is chosen ---------------------------------------------------------------------------------------------

    @property
    def chosen(self) -> tuple[TargetKind, str]:
        """(kind, id of the row); the live steering is ``LIVE``."""
        return self._chosen

    @property
    def busy(self) -> bool:
        """Whether a change is on its way to the engine."""
        return self._turning or self._putting or self._wish is not None

    @property
    def choosing(self) -> bool:
        """Whether something that was chosen is not in force yet."""
        return self._putting or self._wish is not None

    def on_event(self, event: Event) -> None:
        """Follow what others do."""
        if isinstance(event, SteeringUpdated):
            self._show()
        elif isinstance(event, _SHELF_EVENTS):
            self._timer.start()

    def refresh(self) -> None:
        """Read the library anew."""
        self._asked += 1
        asked, engine = self._asked, self._engine

        def read(shelf: Targets) -> None:
            if asked != self._asked:
                return
            self._shelf = shelf
            wish, self._wish = self._wish, None
            if wish is not None:
                self.choose(*wish)
            else:
                self._show()

        self._bridge.run_in_background(lambda: read_shelf(engine), read, self._say_error, owner=self)

    def choose_soon(self, kind: TargetKind, key: str, value: float | None = None) -> None:
        """Choose a document, with its dial at ``value``, once the library was read anew."""
        self._wish = (kind, key, value)
        self.refresh()

    def choose(self, kind: TargetKind, key: str, value: float | None = None) -> None:
        """Steer with this document; with ``LIVE``, with whatever steers already."""
        self._strip.notice.hide()
        self._pending = self._at_zero = False
        if (kind, key) == LIVE:
            self._chosen = LIVE
            self._mine = None
            self._show()
            return
        target = self._shelf.find(kind, key)
        if target is None:
            self._strip.notice.show_words("This is not in the library any more.", "warn")
            self._show()
            return
        self._chosen = (kind, key)
        self._put(target if value is None else replace(target, value=value), value)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _put(self, target: Target, value: float | None) -> None:
        engine, former = self._engine, self._mine
        acknowledged = target.key in self._agreed
        self._putting = True

        def done(warnings: Sequence[str]) -> None:
            self._putting = self._pending = False
            self._mine = target
            if self._standing(target).value == 0:
                self._show()
                self._strip.say_zero("\n".join(warnings) or f"“{target.name}” stands at λ 0, so it adds nothing.")
                self._at_zero = True
            elif warnings:
                self._strip.notice.show_words("\n".join(warnings), "info")
            self.refresh()

        def refused(error: Exception) -> None:
            self._putting = False
            if former is not None and former.key != target.key:
                self._mine = None
            self._refused(target, error)

        self._bridge.run_in_background(
            lambda: put_in_force(engine, target, former, value, acknowledged=acknowledged), done, refused, owner=self
        )
        self._show()

    def _refused(self, target: Target, error: Exception) -> None:
        words = describe_error(error)
        if isinstance(error, UnvalidatedCircuit):
            self._pending = True
            self._strip.ask(words)
            self._show()
            return
        if isinstance(error, SaeNotAttached | SaeSetIncomplete):
            self._pending = True
            engine = self._engine
            self._bridge.run_in_background(
                lambda: sets_that_serve(engine, target),
                lambda names: self._offer(words, names),
                lambda _error: self._strip.notice.show_words(words),
                owner=self,
            )
            self._show()
            return
        self._strip.notice.show_words(words)
        self._chosen = LIVE
        self.refresh()

    def _offer(self, words: str, names: tuple[str, ...]) -> None:
        if names:
            self._pending = True
            self._strip.offer_set(words, names[0])
        else:
            self._strip.notice.show_words(words)
            self._chosen, self._pending = LIVE, False
            self._show()

    def _attach(self, name: str) -> None:
        attachments = self._engine.attachments

        def attached(_result: object) -> None:
            self._strip.notice.hide()
            self._wish = (*self._chosen, None) if self._chosen != LIVE else None
            self.refresh()

        self._bridge.run_once(
            ("attach set", name), lambda: attachments.attach_saved_set(name), attached, self._say_error, owner=self
        )

    def _on_agreed(self) -> None:
        target = self._shelf.find(*self._chosen)
        if target is None:
            live = live_target(self._engine.desk.now, self._shelf, self._hand)
            if live is not None:
                self._agreed.add(live.key)
            return
        self._agreed.add(target.key)
        self._put(target, None)

    def _turn(self, value: float) -> None:
        if value and self._at_zero:
            self._at_zero = False
            self._strip.notice.hide()
        target = self._target()
        if target is None or target.kind is TargetKind.NONE:
            return
        if target.gated and target.key not in self._agreed and self._chosen == LIVE:
            # Whoever activated it has said that this is known; the person at this dial has not.
            self._strip.ask(f"“{target.name}” is not validated. {next_words(target.rung or 0)}")
            return
        if target.kind is TargetKind.HAND:
            self._hand = replace(target, value=value)
        self._wanted = (target, value)
        self._pump()

    def _pump(self) -> None:
        """One change at a time; of those that wait only the latest is sent."""
        if self._turning or self._wanted is None:
            return
        (target, value), self._wanted = self._wanted, None
        self._turning, self._under_way = True, target
        engine, acknowledged = self._engine, target.key in self._agreed

        def ended() -> None:
            self._turning, self._under_way = False, None
            self._pump()
            if not self._turning:
                self._show()

        def done(warnings: tuple[str, ...]) -> None:
            if warnings:
                self._strip.notice.show_words("\n".join(warnings), "warn")
            ended()

        def refused(error: Exception) -> None:
            self._strip.notice.show_words(describe_error(error))
            ended()

        self._bridge.run_in_background(
            lambda: apply_value(engine, target, value, acknowledged=acknowledged), done, refused, owner=self
        )

    @property
    def _turning_hand(self) -> bool:
        return any(each is not None and each.kind is TargetKind.HAND for each in (self._under_way, self._next))

    @property
    def _next(self) -> Target | None:
        return None if self._wanted is None else self._wanted[0]

    def _target(self) -> Target | None:
        now = self._engine.desk.now
        if self._chosen == LIVE:
            if self._hand is not None and self._turning_hand:
                # What is set now is on its way to this; looked at in between it would be taken for something new.
                return self._hand
            return live_target(now, self._shelf, self._hand)
        return self._shelf.find(*self._chosen) or NOTHING

    def _show(self) -> None:
        """Say how things stand."""
        now = self._engine.desk.now
        if self._chosen != LIVE and not (self._putting or self._wish or self._pending):
            chosen = self._shelf.find(*self._chosen)
            if chosen is None or not in_force(now, chosen):
                # Somebody else took it out of force, or it is gone.
                self._chosen, self._mine = LIVE, None
        target = self._target()
        if target is not None and target.kind is TargetKind.HAND:
            self._hand = target
        rung, claim = self._evidence(target)
        self._strip.show_shelf(self._shelf, self._chosen)
        standing = None if target is None else self._standing(target)
        attached = bool(now.state.attachments)
        persistence = target is not None and target.only_persistence
        self._strip.show_target(
            standing, f"now: {live_words(now)}", rung, claim, attached=attached, only_persistence=persistence
        )
        self.changed.emit()

    def _standing(self, target: Target) -> Target:
        """The target with its dial where it stands this moment, which the library may not have been asked for yet."""
        state = self._engine.desk.state
        if target.kind is TargetKind.NONE or self._wanted is not None or self._turning:
            return target if self._wanted is None else replace(target, value=self._wanted[1])
        if state.profile is not None and state.profile.profile_id == target.key:
            return replace(target, value=state.profile.intensity)
        found = next((one for one in state.circuits if one.circuit_id == target.key), None)
        return target if found is None else replace(target, value=found.intensity)

    def _evidence(self, target: Target | None) -> tuple[int | None, str]:
        """The rung to show beside the dial, and words where a circuit's evidence may not be claimed now."""
        if target is None or target.kind is not TargetKind.CIRCUIT:
            return None, ""
        plan = self._engine.desk.live_plan
        serving = any(each.circuit_id == target.key for each in plan.report.circuits)
        if serving and plan.rung is None:
            return None, f"As it steers now, {NO_CLAIM}."
        return target.rung, ""

    def _say_error(self, error: Exception) -> None:
        self._strip.notice.show_words(describe_error(error))
        self._show()

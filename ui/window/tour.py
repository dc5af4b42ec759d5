"""The tour of a minute: the dial, comparing, the server's address. Offered once, ended and begun again at will.

It changes nothing: it only turns pages, and puts the chat back to how it was when it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QWidget

from engine.public.library import ModelSource
from ui.context.page_context import CHAT, HOME
from ui.window.tour_panel import TourPanel

if TYPE_CHECKING:
    from ui.window.main_window import MainWindow

SEEN_KEY = "tour_seen"
"""Set in the library's state once the tour was ended or refused."""


@dataclass(frozen=True)
class TourStep:
    """One thing that is shown. ``enter`` brings it into view; ``target`` is asked for again and again meanwhile."""

    head: str
    words: str
    enter: Callable[[], None]
    target: Callable[[], QWidget | None]


class Tour(QObject):
    """Leads through the window it belongs to."""

    def __init__(self, window: MainWindow, panel: TourPanel) -> None:
        super().__init__(window)
        self._window = window
        self.panel = panel
        self._at: int | None = None
        self._comparing: bool | None = None
        """How the chat stood before the tour; None while the tour has not been there."""
        self._steps = self._make_steps()
        panel.onward.connect(self._onward)
        panel.back.connect(self._back)
        panel.skipped.connect(self.end)
        window.demo.changed.connect(self._on_install)
        window.demo.ended.connect(self._on_installed)

    @property
    def running(self) -> bool:
        """Whether it is under way, the welcome included; that one is seen on the first page only."""
        return self.panel.active

    # --- how it begins ----------------------------------------------------------------------------------------------

    def offer(self) -> None:
        """Welcome a person who has not been asked yet. Asks the library in the background."""
        engine = self._window.frame.engine

        def read() -> tuple[bool, bool]:
            demo = any(record.source is ModelSource.DEMO for record in engine.shelf.list())
            return bool(engine.library.state.get(SEEN_KEY)), demo

        def told(found: tuple[bool, bool]) -> None:
            seen, demo = found
            if not seen and not self.running and not self._window.demo.running:
                self.welcome(with_demo=not demo and self._window.frame.services.demo is not None)

        self._window.frame.bridge.run_in_background(read, told, self._window.say_error, owner=self)

    def welcome(self, *, with_demo: bool) -> None:
        """The first panel. ``with_demo``: offer to install the demo model, which is not there."""
        self._at = None
        home = self._window.home
        words = "A minute is enough to see what is special here: one dial that steers what a model writes."
        action = None
        if with_demo:
            bundled = self._window.frame.services.demo is not None and self._window.frame.services.demo.bundled
            source = "nothing is fetched, it came with this program" if bundled else "93 MB are fetched"
            words = f"{words} The demo model is small and has what it takes: {source}."
            action = ("Install the demo model", self._install)
        self.panel.show_step(
            "Welcome",
            words,
            lambda: home.steps.load.button if with_demo else None,
            onward="Show me around",
            back=False,
            skip=True,
            action=action,
            clear=True,
            where=lambda: self._window.open_page == HOME,
        )

    def begin(self) -> None:
        """Begin at the first step."""
        self._show(0)

    def end(self) -> None:
        """End it, wherever it is, and do not offer it again."""
        self.panel.end()
        self._at = None
        if self._comparing is not None:
            self._window.chat.set_comparing(self._comparing)
            self._comparing = None
        state = self._window.frame.engine.library.state
        self._window.frame.bridge.run_in_background(
            lambda: state.set(SEEN_KEY, True), None, self._window.say_error, owner=self
        )

    # --- the steps --------------------------------------------------------------------------------------------------

    def _make_steps(self) -> tuple[TourStep, ...]:
        window = self._window
        return (
            TourStep(
                "One dial: λ",
                "λ is the strength of everything that steers, as one number. 0 adds nothing; 1 is what the author of a "
                "cluster or circuit found useful. The marks say where an effect begins, where it is best, and where "
                "the text breaks. Move it while an answer is written: the next word follows.",
                self._enter_chat,
                # Where nothing steers yet there is no dial: then at where it will be.
                lambda: window.chat.strip.dial if window.chat.strip.dial.isVisible() else window.chat.strip,
            ),
            TourStep(
                "Compare",
                "With this on, each message is answered twice at the same time and with the same luck: plain on the "
                "left, steered on the right. What differs is what the dial did. Under each answer stands what was "
                "really added.",
                self._enter_chat,
                lambda: window.chat.compare_button,
            ),
            TourStep(
                "For other programs",
                "The same model, steered the same way, is served at this address to any program that speaks OpenAI's "
                "API. Copy it here; the Server page has ready-made snippets. It listens on this computer only, unless "
                "you say otherwise.",
                lambda: None,
                lambda: window.bar.copy if window.bar.copy.isVisible() else window.bar.server,
            ),
        )

    def _show(self, number: int) -> None:
        step = self._steps[number]
        self._at = number
        step.enter()
        last = number == len(self._steps) - 1
        self.panel.show_step(
            step.head,
            step.words,
            step.target,
            place=f"{number + 1} of {len(self._steps)}",
            onward="Done" if last else "Next",
            back=number > 0,
        )

    def _enter_chat(self) -> None:
        self._window.go(CHAT)
        if self._comparing is None:
            self._comparing = self._window.chat.compare_button.isChecked()
        self._window.chat.set_comparing(True)

    def _onward(self) -> None:
        number = 0 if self._at is None else self._at + 1
        if number < len(self._steps):
            self._show(number)
        else:
            self.end()
            self._window.go(HOME)

    def _back(self) -> None:
        if self._at:
            self._show(self._at - 1)

    def _install(self) -> None:
        self._window.demo.begin()

    # --- while the demo model is being installed, from whichever button ----------------------------------------------

    @property
    def _welcoming(self) -> bool:
        return self.running and self._at is None

    @Slot()
    def _on_install(self) -> None:
        demo = self._window.demo
        if self._welcoming and demo.installed:
            self.end()
        elif self._welcoming and demo.running:
            self.panel.take_action_away()
            self.panel.words.setText(f"{demo.in_words} Meanwhile:")
            self.panel.follow()

    @Slot(object)
    def _on_installed(self, error: Exception | None) -> None:
        # The first page says what came of it and what to do next; a welcome in front of that is in the way.
        if self._welcoming:
            self.end()

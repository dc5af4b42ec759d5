"""Counting and showing the exact prompt, rendered by the engine in the background; the newest question wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtWidgets import QWidget

from engine.engine import Engine
from engine.errors import ContextLengthExceeded, MillmError
from engine.public.generation import GenerationRequest, PreparedRequest
from engine.sampling import Sampling
from ui.bridge import Bridge
from ui.talk.prompt_inspector import PromptInspector, view_of

COUNT_DELAY_MS = 300

RequestMaker = Callable[[], GenerationRequest | None]


class PromptDesk(QObject):
    """Asks the engine for prompts on behalf of the chat page."""

    counted = Signal(object, object, str)
    """(tokens or None, window or None, a problem in words or "")."""

    def __init__(self, engine: Engine, bridge: Bridge, page: QWidget) -> None:
        super().__init__(page)
        self._engine = engine
        self._bridge = bridge
        self._page = page
        self._make: RequestMaker | None = None
        self._asked = 0
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(COUNT_DELAY_MS)
        self._timer.timeout.connect(self._count)

    def count_soon(self, make: RequestMaker) -> None:
        """Count the tokens of what ``make`` gives, once the person stops typing."""
        self._make = make
        self._timer.start()

    def inspect(self, heading: str, make: RequestMaker, details: Mapping[str, object] | None = None) -> PromptInspector:
        """Open the dialog on what ``make`` gives, and on what is known of the answer to it, where there is one."""
        dialog = PromptInspector(heading, self._page)
        if details is not None:
            dialog.show_answer(details)
        dialog.show()
        try:
            request = make()
        except MillmError as error:
            dialog.show_error(error)
            return dialog
        if request is None:
            dialog.show_nothing()
            return dialog
        generation = self._engine.generation
        self._bridge.run_in_background(
            lambda: view_of(generation.prepare(request)), dialog.show_prompt, dialog.show_error, owner=dialog
        )
        return dialog

    def _count(self) -> None:
        self._asked += 1
        asked = self._asked
        resident = self._engine.shelf.resident
        if self._make is None or resident is None:
            return
        window = resident.info.context_length
        try:
            request = self._make()
        except MillmError:
            return
        if request is None:
            self.counted.emit(None, window, "")
            return
        # Only the prompt is counted; whether the asked length fits beside it, and how it is sampled, matters when it is
        # sent.
        generation, counting = self._engine.generation, replace(request, max_tokens=1, sampling=Sampling())

        def show(prepared: PreparedRequest) -> None:
            if asked == self._asked:
                self.counted.emit(len(prepared.prompts[0].token_ids), window, "")

        def refused(error: Exception) -> None:
            if asked != self._asked:
                return
            tokens = error.details.get("prompt_tokens") if isinstance(error, ContextLengthExceeded) else None
            problem = error.message if isinstance(error, ContextLengthExceeded) else ""
            self.counted.emit(tokens, window, problem)

        self._bridge.run_in_background(lambda: generation.prepare(counting), show, refused, owner=self)

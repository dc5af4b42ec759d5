"""Whether a model can answer, and the way there where none can: drives the composer's gate."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal, Slot

from engine.engine import Engine
from engine.events import (
    Event,
    ModelLoadComplete,
    ModelLoadError,
    ModelLoadProgress,
    ModelsChanged,
    ModelUnloadComplete,
)
from engine.public.library import ModelRecord
from ui.bridge import Bridge
from ui.context.demo_install import DemoInstall, suggestion
from ui.talk.composer import Composer


class ModelGate(QObject):
    """Watches the shelf for the chat page."""

    FOLLOWS = (ModelLoadProgress, ModelLoadComplete, ModelLoadError, ModelUnloadComplete, ModelsChanged)

    opened = Signal()
    """A model is resident."""
    closed = Signal()
    home_wanted = Signal()

    def __init__(
        self,
        engine: Engine,
        bridge: Bridge,
        composer: Composer,
        demo: DemoInstall,
        on_error: Callable[[Exception], None],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._demo = demo
        self._engine = engine
        self._bridge = bridge
        self._composer = composer
        self._on_error = on_error
        self._offered: int | None = None
        composer.remedy.connect(self._on_remedy)
        demo.changed.connect(self._on_install)

    def on_event(self, event: Event) -> None:
        """Look again when a model came, went or moved on."""
        if isinstance(event, self.FOLLOWS):
            self.refresh()

    def refresh(self) -> None:
        """Say in the composer how things stand."""
        shelf = self._engine.shelf
        resident, loading = shelf.resident, shelf.loading
        if resident is not None:
            self._composer.set_ready()
            self.opened.emit()
            return
        self.closed.emit()
        if loading is not None:
            self._offered = None
            self._composer.set_not_ready(
                f"Loading {loading.model_name}: {loading.stage}. You can write your message meanwhile.", None
            )
            return
        if self._demo.running:
            self._offered = None
            self._say_installing()
            return
        self._bridge.run_in_background(shelf.list, self._offer, self._on_error, owner=self)

    @Slot()
    def _on_install(self) -> None:
        shelf = self._engine.shelf
        if shelf.resident is not None or shelf.loading is not None:
            return
        if self._demo.running:
            self._offered = None
            self._say_installing()
        else:
            self.refresh()

    def _say_installing(self) -> None:
        self._composer.set_not_ready(f"{self._demo.in_words} You can write your message meanwhile.", None)

    def _offer(self, records: list[ModelRecord]) -> None:
        shelf = self._engine.shelf
        if shelf.resident is not None or shelf.loading is not None or self._demo.running:
            return
        best = suggestion(records)
        self._offered = best.id if best is not None else None
        if best is None:
            self._composer.set_not_ready(
                "There is no model yet. Install the demo model, or add a model folder of your own.", "Go to Home"
            )
        else:
            self._composer.set_not_ready("No model is loaded, so nothing can answer yet.", f"Load {best.name}")

    def _on_remedy(self) -> None:
        model_id = self._offered
        if model_id is None:
            self.home_wanted.emit()
            return
        models = self._engine.models
        self._bridge.run_once(
            ("load", model_id),
            lambda: models.begin_load(model_id),
            # What a load ends with is an event, which the bar tells.
            lambda future: self._bridge.when_done(future, None, lambda _error: self.refresh(), owner=self),
            self._on_error,
            owner=self,
        )

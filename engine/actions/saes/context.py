"""The rooms that actions on SAEs touch, and the few questions all of them ask."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TypeVar

from engine.actions.lock import SteeringLock
from engine.config import EngineSettings
from engine.errors import ModelBusy, ModelNotLoaded, RequestCancelled, shortened
from engine.events import EventBus, ModelsChanged
from engine.generation.scheduler import Scheduler
from engine.generation.worker import EngineThread
from engine.library.database import Library
from engine.library.errors import SaeNotFound
from engine.library.records import SaeRecord
from engine.models.registry import LoadedModel, ModelShelf
from engine.monitor.live import LiveMonitor
from engine.steering.desk import SteeringDesk

T = TypeVar("T")


@dataclass(frozen=True)
class SaeContext:
    """Where state lives; actions keep none of their own."""

    settings: EngineSettings
    library: Library
    desk: SteeringDesk
    monitor: LiveMonitor
    shelf: ModelShelf
    scheduler: Scheduler
    thread: EngineThread
    events: EventBus
    lock: SteeringLock

    def resident(self) -> LoadedModel:
        """The resident model. Raises :class:`ModelNotLoaded`."""
        loaded = self.shelf.resident
        if loaded is None:
            raise ModelNotLoaded("No model is loaded.", remedy="Load a model first.", retry_after=30)
        return loaded

    def record(self, sae_id: str) -> SaeRecord:
        """The SAE's row. Raises :class:`SaeNotFound`."""
        found = self.library.saes.get(sae_id)
        if found is None:
            raise SaeNotFound(
                f"There is no SAE with the id {shortened(sae_id)}.",
                param="sae_id",
                details={"sae_id": sae_id},
                remedy="List the SAEs to see their ids.",
            )
        return found

    def on_engine(self, job: Callable[[], T]) -> T:
        """Run ``job`` on the engine thread between two ticks and wait for it."""
        try:
            return self.thread.run(job).result()
        except CancelledError as error:
            raise RequestCancelled("The program is closing.") from error

    def on_model(self, loaded: LoadedModel, job: Callable[[], T]) -> T:
        """As :meth:`on_engine`, refused with :class:`ModelBusy` when ``loaded`` is not the resident model any more.

        Residents change on the engine thread only, so the job runs on the model it was made for or not at all.
        """

        def checked() -> T:
            if self.shelf.resident is not loaded:
                raise ModelBusy(
                    f"The model {loaded.record.name!r} was unloaded meanwhile.",
                    remedy="Try again with the model that is loaded now.",
                    retry_after=5,
                )
            return job()

        return self.on_engine(checked)

    def hook(self, loaded: LoadedModel) -> None:
        """Have hooks on exactly the layers with an SAE. Engine thread."""
        loaded.backend.watch_layers({each.layer for each in self.desk.state.attachments})

    def lock_model(self, model_id: int) -> None:
        """Lock this model's row, and no other, for steering."""
        self._free_locks(but=model_id)
        if not self.shelf.get(model_id).locked:
            self.library.models.update(model_id, locked=True)
            self.events.publish(ModelsChanged())

    def unlock_models(self) -> None:
        """Clear the lock on whichever row holds it: it need not be the resident model's."""
        self._free_locks()

    def _free_locks(self, *, but: int | None = None) -> None:
        stale = [each.id for each in self.library.models.list() if each.locked and each.id != but]
        for model_id in stale:
            self.library.models.update(model_id, locked=False)
        if stale:
            self.events.publish(ModelsChanged())

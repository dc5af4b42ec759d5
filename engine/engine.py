"""The engine: builds its rooms, starts and stops them. Wiring only; what happens is in the rooms.

Knows neither Qt nor HTTP. A face (window, server) reads and acts through the public attributes.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import CancelledError

from engine.actions.loading import ModelLoader
from engine.actions.lock import SteeringLock
from engine.actions.saes.actions import SaeActions
from engine.actions.steering.circuits import CircuitActions
from engine.actions.steering.clusters import ClusterActions
from engine.actions.steering.lost import end_what_lost_its_place
from engine.actions.steering.profiles import ProfileActions
from engine.config import EngineSettings
from engine.errors import RequestCancelled
from engine.events import EventBus
from engine.generation.scheduler import Scheduler
from engine.generation.service import GenerationService
from engine.generation.worker import EngineThread
from engine.library.database import Library
from engine.models.shelf import ModelShelf
from engine.monitor.live import LiveMonitor
from engine.steering.desk import SteeringDesk

log = logging.getLogger(__name__)


class Engine:
    """Everything the program does, behind one object.

    Attributes:
        library: What is kept on disk. Closed by its owner, not by the engine.
        events: The bus on which changes are announced.
        shelf: Which models there are and which one is resident.
        loader: Loads and unloads them.
        saes: Imports, attaches and hand-steers SAEs.
        profiles, clusters, circuits: Manage what steers under a name.
        desk: What steers live.
        monitor: Reads activations along.
        generation: Prepares and runs requests on the resident one.
    """

    def __init__(self, settings: EngineSettings, library: Library) -> None:
        self.settings = settings
        self.library = library
        self.events = EventBus()
        self.shelf = ModelShelf(library.models)
        self.desk = SteeringDesk(self.events)
        self.monitor = LiveMonitor(self.events)
        self._scheduler = Scheduler(settings, self.desk, self.monitor)
        self._thread = EngineThread(self._scheduler.tick)
        self.generation = GenerationService(
            settings, self.shelf, library.profiles, library.saes, self.desk, self._scheduler, self._thread
        )
        self.loader = ModelLoader(
            settings,
            library,
            self.shelf,
            self._scheduler,
            self._thread,
            self.events,
            self.desk,
            self._release_steering,
            self._measure_saes,
        )
        lock = SteeringLock()
        self.saes = SaeActions(
            settings,
            library,
            self.desk,
            self.monitor,
            self.shelf,
            self._scheduler,
            self._thread,
            self.events,
            lock,
            on_detached=self._sae_detached,
            passes_steered=self._passes_steered,
        )
        self.profiles = ProfileActions(settings, library, self.desk, self.events, lock)
        self.clusters = ClusterActions(settings, library, self.desk, self.events, lock, self.profiles)
        self.circuits = CircuitActions(settings, library, self.desk, self.events, lock)
        self._running = False

    def start(self) -> None:
        """Put rows left over from a crash right and start the engine thread. Imports no torch."""
        self.library.reset_after_restart()
        self.saes.sweep()
        self._thread.start()
        self._running = True

    def _release_steering(self) -> None:
        """The model has left memory: nothing is attached or active any more."""
        self.circuits.release_all()
        self.profiles.release_all()
        self.saes.release_all()

    def _measure_saes(self) -> None:
        """SAEs imported while no fitting model was there get their figures now."""
        try:
            self.saes.measure_pending()
        except CancelledError:
            log.info("SAEs were not measured after the load: the program is closing")

    def _sae_detached(self, sae_id: str) -> None:
        end_what_lost_its_place(self.library, self.desk, self.profiles, self.circuits)

    def _passes_steered(self, layer: int) -> int:
        resident = self.shelf.resident
        return 0 if resident is None else resident.backend.passes_steered(layer)

    def stop(self, timeout: float = 1.5) -> bool:
        """Cancel every request and load and stop the thread.

        Returns False when something could not be interrupted within ``timeout`` seconds (a load inside a library).
        Stopping twice, or before the start, is harmless.
        """
        if not self._running:
            return True
        self._running = False
        deadline = time.monotonic() + timeout
        ending = RequestCancelled("The program is closing.")
        self.loader.stop()
        self._scheduler.close_queue(ending)
        ended = self._thread.run(lambda: self._scheduler.fail_all(ending))
        try:
            ended.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            # The pass in hand is long; the thread is a daemon and the caller decides about a hard exit.
            return False
        stopped = self._thread.stop(max(0.0, deadline - time.monotonic()))
        return self.loader.wait(max(0.0, deadline - time.monotonic())) and stopped

"""The engine: builds its rooms, starts and stops them. Wiring only; what happens is in the rooms.

Knows neither Qt nor HTTP. A face (window, server) reads and acts through the public attributes.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import CancelledError
from typing import Literal

from engine.actions.downloading.finding import HubFinder
from engine.actions.downloading.models import ModelDownloads
from engine.actions.downloading.saes import SaeDownloads
from engine.actions.downloading.workers import Workers
from engine.actions.experiments import ExperimentActions
from engine.actions.lock import SteeringLock
from engine.actions.models.actions import ModelActions
from engine.actions.models.loading import ModelLoader
from engine.actions.models.model_files import FOLDER as MODELS_FOLDER
from engine.actions.models.model_files import ModelFolder
from engine.actions.saes.actions import SaeActions
from engine.actions.saes.attachments import Attachments
from engine.actions.saes.context import SaeContext
from engine.actions.saes.contrast import Contraster
from engine.actions.saes.files import FOLDER as SAES_FOLDER
from engine.actions.saes.files import SaeFolder
from engine.actions.saes.measuring import Measurer
from engine.actions.saes.reading import TextReader
from engine.actions.saes.steering import HandSteering
from engine.actions.saes.views import Viewer
from engine.actions.standing import Standing
from engine.actions.steering.circuits import CircuitActions, end_what_lost_its_place
from engine.actions.steering.clusters import ClusterActions
from engine.actions.steering.profiles import ProfileActions
from engine.actions.sweeping import SweepActions
from engine.config import EngineSettings
from engine.errors import LibraryUnusable, RequestCancelled
from engine.events import EventBus, LibraryStateChanged
from engine.generation.scheduler import Scheduler
from engine.generation.service import GenerationService
from engine.generation.tokens import TokenReader
from engine.generation.worker import EngineThread
from engine.library.database import Library
from engine.models.hub.breaker import HUB, CircuitBreaker
from engine.models.hub.client import HubClient
from engine.models.registry import ModelShelf
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
        models: Everything that is done with models: downloads, imports, loads, removals.
        sae_downloads: Fetches SAEs from the hub.
        hub: Searches the hub, and fetches models with SAEs that belong to them.
        saes: The library's SAEs: imports, labels, deletes.
        measurer: Measures how well an SAE fits the resident model.
        attachments: What is attached to it.
        hand_steering: Strengths that a person sets.
        steering_lock: Who holds it alone changes what steers.
        reading: Reads a text with an SAE.
        contrasts: Finds the features in which two sets of texts differ.
        profiles, clusters, circuits: Manage what steers under a name.
        standing: Keeps what was attached to each model, and puts it back.
        sweeps: Runs the same prompts at several intensities.
        experiments: Keeps comparisons of plain and steered answers.
        desk: What steers live.
        monitor: Reads activations along.
        generation: Prepares and runs requests on the resident one.
        tokens: Makes tokens of texts, and texts of tokens, without a model.
        breakers: What stands between us and remote services, by name.
    """

    def __init__(self, settings: EngineSettings, library: Library) -> None:
        self.settings = settings
        self.library = library
        self.events = EventBus()
        library.listen(self._library_changed)
        self.breakers = {HUB: CircuitBreaker(HUB)}
        self.shelf = ModelShelf(library.models)
        self.desk = SteeringDesk(self.events)
        self.monitor = LiveMonitor(self.events)
        self._scheduler = Scheduler(settings, self.desk, self.monitor)
        self._thread = EngineThread(self._scheduler.tick, self._rest, settings.TRANSFORMERS_IDLE_CACHE_RELEASE_S)
        self.generation = GenerationService(
            settings, self.shelf, library.profiles, library.saes, self.desk, self._scheduler, self._thread
        )
        self.tokens = TokenReader(self.shelf, settings)
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
        self.steering_lock = lock = SteeringLock()
        context = SaeContext(
            settings, library, self.desk, self.monitor, self.shelf, self._scheduler, self._thread, self.events, lock
        )
        viewer = Viewer(context, self._passes_steered)
        self.measurer = Measurer(context)
        sae_folder = SaeFolder(library.path.parent / SAES_FOLDER, library.state)
        self.saes = SaeActions(context, self.measurer, sae_folder, before_delete=self._forget_download)
        self.attachments = Attachments(context, viewer, self._sae_detached)
        self.hand_steering = HandSteering(context, viewer)
        self.reading = TextReader(context)
        self.contrasts = Contraster(context, self.reading)
        self._workers = Workers(settings.MAX_DOWNLOAD_WORKERS)
        hub = HubClient(self.breakers[HUB], lambda: settings.HF_HUB_OFFLINE)
        folder = ModelFolder(library.path.parent / MODELS_FOLDER, library.state)
        downloads = ModelDownloads(library, self.events, hub, folder, self._workers)
        self.models = ModelActions(library, self.events, self.shelf, self.loader, hub, folder, downloads, settings)
        self.sae_downloads = SaeDownloads(
            library, self.events, hub, library.path.parent / SAES_FOLDER, self._workers, self.saes.adopt
        )
        self.hub = HubFinder(hub, self.models, self.sae_downloads)
        self.profiles = ProfileActions(settings, library, self.desk, self.events, lock)
        self.clusters = ClusterActions(settings, library, self.desk, self.events, lock, self.profiles)
        self.circuits = CircuitActions(settings, library, self.desk, self.events, lock)
        self.standing = Standing(
            library,
            self.desk,
            self.shelf,
            self.events,
            self.attachments,
            self.hand_steering,
            self.profiles,
            self.circuits,
        )
        self.sweeps = SweepActions(context, self.generation)
        self.experiments = ExperimentActions(library, self.events)
        self._running = False

    def start(self) -> None:
        """Put rows left over from a crash right and start the engine thread. Imports no torch."""
        self.library.reset_after_restart()
        self.saes.sweep()
        self.models.sweep()
        self.sae_downloads.sweep()
        self._thread.start()
        self._running = True

    def _library_changed(self, error: LibraryUnusable | None) -> None:
        state: Literal["well", "lost"] = "well" if error is None else "lost"
        self.events.publish(LibraryStateChanged(state, None if error is None else error.one_line()))

    def _rest(self) -> None:
        """Nothing has been asked for a while: memory that torch only keeps for reuse goes back to the driver."""
        resident = self.shelf.resident
        if resident is not None:
            from engine.models.hardware.devices import release_cached_memory

            release_cached_memory(resident.backend.device)

    def _release_steering(self) -> None:
        """The model has left memory: nothing is attached or active any more."""
        self.circuits.release_all()
        self.profiles.release_all()
        self.attachments.release_all()

    def _measure_saes(self) -> None:
        """SAEs imported while no fitting model was there get their figures now."""
        try:
            self.measurer.measure_pending()
        except CancelledError:
            log.info("SAEs were not measured after the load: the program is closing")

    def _sae_detached(self, sae_id: str) -> None:
        end_what_lost_its_place(self.library, self.desk, self.profiles, self.circuits)

    def _forget_download(self, sae_id: str) -> None:
        self.sae_downloads.forget(sae_id)

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
        self.standing.stop()
        self.sweeps.runs.stop()
        # Their threads are daemons and what they have fetched is kept, so nobody waits for a socket that hangs.
        self._workers.stop(0.2)
        self._scheduler.close_queue(ending)
        ended = self._thread.run(lambda: self._scheduler.fail_all(ending))
        try:
            ended.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            # The pass in hand is long; the thread is a daemon and the caller decides about a hard exit.
            return False
        self.sweeps.runs.wait(max(0.0, deadline - time.monotonic()))
        stopped = self._thread.stop(max(0.0, deadline - time.monotonic()))
        return self.loader.wait(max(0.0, deadline - time.monotonic())) and stopped

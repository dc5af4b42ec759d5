"""Loading and unloading models: one at a time, cancellable, never half done.

A load runs on a thread of its own (reading weights holds no lock that the engine thread needs); what is resident
changes only on the engine thread, between two ticks. The row of a model never stays ``loading``: every way out puts
it right.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from engine.actions.models.gc_pause import COLLECTOR
from engine.actions.models.importing import files_gone
from engine.config import EngineSettings
from engine.counting import in_mb
from engine.errors import (
    CheckpointInvalid,
    InsufficientMemory,
    LoadCancelled,
    MillmError,
    ModelBusy,
    ModelLoadFailed,
    ModelLoading,
    ModelLocked,
    ModelNotLoaded,
)
from engine.events import EventBus, ModelLoadComplete, ModelLoadError, ModelLoadProgress, ModelUnloadComplete
from engine.generation.scheduler import Scheduler
from engine.generation.tools.probe import tool_form
from engine.generation.worker import EngineThread
from engine.library.database import Library
from engine.library.records import EngineKind, ModelRecord, ModelStatus
from engine.models.backends.engines import require_installed
from engine.models.inspection.names import check_generative
from engine.models.load_plan import Opening, import_ahead, import_libraries, inspect, open_model
from engine.models.registry import LoadedModel, LoadingState, ModelShelf
from engine.moving import moving
from engine.steering import transitions
from engine.steering.desk import SteeringDesk
from engine.steering.plan import ResidualSpec

if TYPE_CHECKING:
    from engine.models.backends.backend import Backend
    from engine.models.inspection.checkpoint import CheckpointReport
    from engine.models.inspection.gguf_file import GgufReport

log = logging.getLogger(__name__)

T = TypeVar("T")

STEP_SECONDS = 6.0
"""What looking at the files, or the first import of the libraries, takes at a guess."""
WARM, COLD = (2.0, 5.0, 10.0), (40.0, 50.0, 52.0)
"""Percent at which the files are checked, the engine is started, and reading begins. The first load waits mostly for
the libraries, which come in while the files are looked at."""
PROGRESS_INTERVAL = 0.1
"""Seconds between two words on the progress of one stage of a load, at least."""

LAST_MODEL = "last_model"
"""Key of the library's state under which the name of the model loaded last is kept."""


class ModelLoader:
    """Loads, cancels and unloads. All methods may be called from any thread.

    ``release_steering`` puts the rows right of everything that steered the model that is gone. ``after_load`` is called
    on the loader's thread when a model has come and everybody has been told.
    """

    def __init__(
        self,
        settings: EngineSettings,
        library: Library,
        shelf: ModelShelf,
        scheduler: Scheduler,
        thread: EngineThread,
        events: EventBus,
        desk: SteeringDesk,
        release_steering: Callable[[], None],
        after_load: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._library = library
        self._shelf = shelf
        self._scheduler = scheduler
        self._engine_thread = thread
        self._events = events
        self._desk = desk
        self._release_steering = release_steering
        self._after_load = after_load
        self._lock = threading.Lock()
        self._busy: str | None = None
        self._loading_id: int | None = None
        self._future: Future[LoadedModel] | None = None
        self._unload_future: Future[None] | None = None
        self._cancelled = threading.Event()
        self._worker: threading.Thread | None = None
        self._on_demand = False
        self._libraries_are_in = False
        self._gpu: int | None = None
        self._accepted = threading.Event()

    # --- from the faces ---------------------------------------------------------------------------------------------

    def load(self, model_id: int, *, on_demand: bool = False, gpu: int | None = None) -> Future[LoadedModel]:
        """Start loading; progress comes as events, the result through the future.

        ``on_demand``: a request asked for it, so a model that is locked is not pushed out. ``gpu``: the card to load
        it to, by torch's number, instead of the one the settings choose.

        Raises at once :class:`ModelNotFound`, :class:`EngineUnsupported`, :class:`ModelNotGenerative` or
        :class:`ModelBusy` (another load or an unload is under way). A model that is resident already is given back as
        it is.
        """
        record = self._shelf.get(model_id)
        if record.status is ModelStatus.DOWNLOADING:
            raise ModelBusy(
                f"{record.name!r} is being downloaded.",
                remedy="Wait until it is here, or cancel the download.",
                retry_after=15,
            )
        check_generative(record)
        if record.engine is EngineKind.LLAMACPP:
            require_installed(record.name)
        with self._lock:
            resident = self._shelf.resident
            if resident is not None and resident.record.id == model_id and self._busy is None:
                done: Future[LoadedModel] = Future()
                done.set_result(resident)
                return done
            if self._busy is not None:
                if self._loading_id == model_id and self._future is not None:
                    return self._future
                raise ModelBusy(
                    f"{record.name!r} cannot be loaded now: {self._busy}.",
                    remedy="Wait until that is done, or cancel it.",
                    retry_after=15,
                )
            # Claimed with nothing between the check and the claim, so that a double click starts one load.
            self._busy, self._loading_id = f"{record.name!r} is being loaded", model_id
            future: Future[LoadedModel] = Future()
            self._future = future
            self._on_demand = on_demand
            self._gpu = gpu
            self._cancelled.clear()
            self._accepted.clear()
        future.set_running_or_notify_cancel()
        self._worker = threading.Thread(target=self._load, args=(record, future), name="loader", daemon=True)
        self._worker.start()
        return future

    def wait_accepted(self, loading: Future[LoadedModel], timeout: float) -> None:
        """Until nothing can refuse the load any more before something is unloaded, or ``timeout`` seconds have passed.

        Raises what the load ended with until then.
        """
        loading.add_done_callback(lambda _: self._accepted.set())
        self._accepted.wait(timeout)
        if loading.done():
            loading.result()

    def unless_in_use(self, record: ModelRecord, what: str, work: Callable[[], T]) -> T:
        """Carry out ``work`` (quick) while that model is neither loaded nor being loaded, nor begins to be.

        Raises :class:`ModelBusy`, which says that it cannot be ``what`` (``removed``).
        """
        with self._lock:
            resident = self._shelf.resident
            loaded = resident is not None and resident.record.id == record.id
            if loaded or self._loading_id == record.id:
                raise ModelBusy(
                    f"{record.name!r} is {'loaded' if loaded else 'being loaded'}, so it cannot be {what}.",
                    remedy="Unload it first." if loaded else "Cancel the load first.",
                    retry_after=15,
                )
            return work()

    def cancel(self) -> bool:
        """Cancel the load under way at its next step; False when there is none."""
        with self._lock:
            if self._loading_id is None:
                return False
            self._cancelled.set()
            return True

    @property
    def busy(self) -> bool:
        """Whether a load or an unload is under way."""
        with self._lock:
            return self._busy is not None

    def unload(self) -> Future[None]:
        """Let running requests finish (``GRACEFUL_UNLOAD_TIMEOUT``), then free the model. One under way is joined.

        Raises :class:`ModelNotLoaded`, :class:`ModelBusy` while a model is being loaded.
        """
        with self._lock:
            if self._unload_future is not None:
                return self._unload_future
            resident = self._shelf.resident
            if resident is None:
                raise ModelNotLoaded("No model is loaded.", retry_after=30)
            if self._busy is not None:
                raise ModelBusy(f"The model cannot be unloaded now: {self._busy}.", retry_after=15)
            self._busy = f"{resident.record.name!r} is being unloaded"
            # The refusal of new requests begins here, not when the thread gets to it.
            self._close_queue(resident)
            future: Future[None] = Future()
            future.set_running_or_notify_cancel()
            self._unload_future = future

        def work() -> None:
            try:
                self._drain(lambda: None)
                self._unload_resident(resident)
                self._release()
                future.set_result(None)
            except BaseException as error:
                self._release()
                future.set_exception(error)

        threading.Thread(target=work, name="unloader", daemon=True).start()
        return future

    def demand(self, name: str) -> Demand:
        """Begin to load ``name`` where it is not resident, and return at once.

        Raises what :meth:`load` raises at once with ``Could not load 'NAME': `` before the message, and
        :class:`ModelLocked` when another loaded model is locked.
        """
        record = self._shelf.resolve(name)
        resident = self._shelf.resident
        if resident is not None and resident.record.id == record.id:
            there: Future[LoadedModel] = Future()
            there.set_result(resident)
            return Demand(record, there)
        self._check_lock(record)
        try:
            return Demand(record, self.load(record.id, on_demand=True))
        except MillmError as error:
            raise _could_not_load(record, error) from error

    def import_ahead(self) -> None:
        """Bring in what a first load needs, on the calling thread; takes seconds. Does nothing once it is there."""
        with COLLECTOR.importing():
            import_libraries()

    def stop(self) -> None:
        """Cancel what is under way; used when the program ends."""
        self.cancel()

    def wait(self, timeout: float) -> bool:
        """Wait for the loader's thread to end; False when it did not within ``timeout`` s."""
        worker = self._worker
        if worker is None:
            return True
        worker.join(timeout)
        return not worker.is_alive()

    # --- on the loader's thread -------------------------------------------------------------------------------------

    def _load(self, record: ModelRecord, future: Future[LoadedModel]) -> None:
        try:
            self._library.models.set_status(record.id, ModelStatus.LOADING)
            loaded = self._carry_out(record)
        except MillmError as error:
            self._failed(record, error, future)
        except Exception as error:
            log.exception("loading %s failed", record.name)
            self._failed(record, ModelLoadFailed(f"Loading {record.name!r} failed: {error}"), future)
        else:
            self._release()
            future.set_result(loaded)
            self._remember(record)
            self._events.publish(ModelLoadComplete(record.id, record.name, in_mb(loaded.info.memory_bytes, 1)))
            self._bring_up_to_date()

    def _bring_up_to_date(self) -> None:
        try:
            self._after_load()
        except Exception:
            # The model is there and answers; what was to follow is an extra.
            log.exception("what follows a load failed")

    def _remember(self, record: ModelRecord) -> None:
        try:
            self._library.state.set(LAST_MODEL, record.name)
        except MillmError as error:
            log.warning("%s is loaded, but that it was could not be kept for the next start: %s", record.name, error)

    def _carry_out(self, record: ModelRecord) -> LoadedModel:
        checked, started, reads_from = WARM if self._libraries_are_in else COLD
        with self._moving(record, 0.0, checked, "Checking the files"):
            found = self._look(record)
        with self._moving(record, checked, started, "Starting the engine"):
            # The heavy libraries come in here, on this thread, the first time a model is loaded.
            with COLLECTOR.importing():
                opening = open_model(record, found, self._settings, gpu=self._gpu)
                import_ahead(found)
            resident = self._shelf.resident
            opening.estimate(resident.info.memory_bytes if resident is not None else 0).check(record.name)
            opening.rehearse()
        self._libraries_are_in = True
        if resident is not None and self._on_demand:
            # Asked again: the lock may have come while the files were looked at.
            self._check_lock(record)
        self._accepted.set()
        if resident is not None:
            self._report(record, started, f"Unloading {resident.record.name}")
            self._close_queue(resident)
            try:
                self._drain(self._check_cancelled)
            except LoadCancelled:
                self._scheduler.open_queue()
                raise
            self._unload_resident(resident)
        backend = self._read(record, opening, reads_from)
        try:
            self._check_cancelled()
        except LoadCancelled:
            backend.close()
            raise
        try:
            if record.has_chat_template != found.has_chat_template:
                # A row of an earlier version does not know, and files change.
                self._library.models.update(record.id, has_chat_template=found.has_chat_template)
            fresh = self._library.models.set_status(record.id, ModelStatus.LOADED)
            # Found now, so that no list or request has to wait for the template.
            wire = tool_form(backend.tokenizer).wire.name
            loaded = LoadedModel(fresh, backend.info, backend, wire)
            self._engine_thread.run(lambda: self._install(loaded)).result()
        except BaseException:
            backend.close()
            raise
        return loaded

    def _read(self, record: ModelRecord, opening: Opening, start: float) -> Backend:
        last, said = "", 0.0

        def step(share: float, stage: str) -> None:
            nonlocal last, said
            self._check_cancelled()
            # The library counts single tensors, a thousand a second; whoever shows each of them does nothing else.
            now = time.monotonic()
            if stage != last or share >= 1.0 or now - said >= PROGRESS_INTERVAL:
                last, said = stage, now
                self._report(record, start + (98.0 - start) * share, stage)

        try:
            return opening.load(step)
        except (LoadCancelled, InsufficientMemory, ModelLoadFailed):
            raise
        except MillmError as error:
            # Whoever asked can do nothing about it any more: what was loaded before is gone.
            raise ModelLoadFailed(error.message, details=error.details, remedy=error.remedy) from error

    def _install(self, loaded: LoadedModel) -> None:
        self._scheduler.set_backend(loaded.backend)
        self._desk.apply(
            transitions.open_for(
                ResidualSpec(
                    model_name=loaded.record.name,
                    d_model=loaded.info.d_model,
                    n_layers=loaded.info.n_layers,
                    device=loaded.backend.device,
                    dtype=loaded.backend.dtype,
                    steer_first=self._settings.STEER_FIRST_POSITION,
                    blocks_path=loaded.info.blocks_path,
                )
            )
        )
        self._shelf.set_resident(loaded)
        self._scheduler.open_queue()

    def _drain(self, check: Callable[[], None]) -> None:
        """Let running requests finish, ``GRACEFUL_UNLOAD_TIMEOUT`` seconds at most; ``check`` may raise to end it."""
        deadline = time.monotonic() + self._settings.GRACEFUL_UNLOAD_TIMEOUT
        while True:
            check()
            left = deadline - time.monotonic()
            if self._scheduler.wait_idle(max(0.0, min(left, 0.1))):
                return
            if left <= 0:
                log.warning("requests still run after %g s; they are ended", self._settings.GRACEFUL_UNLOAD_TIMEOUT)
                return

    def _unload_resident(self, resident: LoadedModel) -> None:
        """Free on the engine thread. The queue is closed and drained already."""
        from engine.models.hardware.devices import release_cached_memory

        def free() -> None:
            self._scheduler.fail_all(self._unloading(resident))
            self._scheduler.set_backend(None)
            self._desk.apply(transitions.close())
            self._shelf.set_resident(None)
            resident.backend.close()

        self._engine_thread.run(free).result()
        self._release_steering()
        # The SAEs' weights have gone only now.
        release_cached_memory(resident.backend.device)
        self._library.models.update(resident.record.id, status=ModelStatus.READY, locked=False)
        self._scheduler.open_queue()
        self._events.publish(ModelUnloadComplete(resident.record.id, resident.record.name))

    def _close_queue(self, resident: LoadedModel) -> None:
        self._scheduler.close_queue(self._unloading(resident))

    def _unloading(self, resident: LoadedModel) -> ModelBusy:
        return ModelBusy(f"The model {resident.record.name!r} is being unloaded.", retry_after=5)

    def _failed(self, record: ModelRecord, error: MillmError, future: Future[LoadedModel]) -> None:
        # Neither a person's change of mind nor another model's lock says anything about this one.
        sound = isinstance(error, LoadCancelled | ModelLocked)
        status = ModelStatus.READY if sound else ModelStatus.ERROR
        try:
            self._library.models.set_status(record.id, status, error_message=None if sound else error.one_line())
        except Exception:
            # The library is closed when the program ends during a load; the row is put right at the next start.
            # Whatever it is, whoever waits for the load is told, and the next one may begin.
            log.warning("the failed load of %s could not be recorded", record.name, exc_info=True)
        self._release()
        future.set_exception(error)
        self._events.publish(ModelLoadError(record.id, record.name, error.code, error.one_line()))

    def _release(self) -> None:
        self._shelf.set_loading(None)
        with self._lock:
            self._busy = self._loading_id = self._future = self._unload_future = None

    def _look(self, record: ModelRecord) -> CheckpointReport | GgufReport:
        """What its files say. Raises where they are not there."""
        if not record.local_path:
            raise ModelLoadFailed(
                f"{record.name!r} has no files on this machine.", remedy="Download or import it again."
            )
        if files_gone(record):
            raise CheckpointInvalid(
                f"The files of {record.name!r} are not at {record.local_path} any more.",
                param="model",
                details={"path": record.local_path, "problems": ["nothing is there"]},
                remedy="Put them back, or choose them again where they are now.",
            )
        return inspect(record)

    def _moving(self, record: ModelRecord, start: float, end: float, stage: str) -> AbstractContextManager[None]:
        """Imports and whole files are steps of seconds inside a library; the bar goes on meanwhile."""
        return moving(lambda percent, phrase: self._report(record, percent, phrase), start, end, stage, STEP_SECONDS)

    def _report(self, record: ModelRecord, progress: float, stage: str) -> None:
        self._shelf.set_loading(LoadingState(record.id, record.name, progress, stage))
        self._events.publish(ModelLoadProgress(record.id, record.name, progress, stage))

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise LoadCancelled("The load was cancelled.")

    def _check_lock(self, record: ModelRecord) -> None:
        resident = self._shelf.resident
        if resident is None:
            return
        holder = self._shelf.get(resident.record.id)
        if holder.locked and holder.id != record.id:
            raise ModelLocked(
                f"{holder.name!r} is locked for steering, so {record.name!r} cannot be loaded by a request.",
                param="model",
                details={"locked_model": holder.name},
                remedy=f"Detach the SAEs or unlock {holder.name!r} first.",
            )


@dataclass(frozen=True)
class Demand:
    """A model that a request asked for, and its load, which goes on whoever stops waiting."""

    record: ModelRecord
    loading: Future[LoadedModel]

    def model(self, timeout: float) -> LoadedModel:
        """The model; blocks up to ``timeout`` seconds.

        Raises what the load raised with ``Could not load 'NAME': `` before the message, :class:`ModelLoading` when the
        wait was too short.
        """
        try:
            return self.loading.result(timeout)
        except FutureTimeout as error:
            raise self.still_loading(timeout) from error
        except CancelledError as error:
            raise ModelLoadFailed(
                f"Could not load {self.record.name!r}: the program is closing.", param="model"
            ) from error
        except MillmError as error:
            raise _could_not_load(self.record, error) from error

    def still_loading(self, waited: float) -> ModelLoading:
        """What to say to whoever has waited ``waited`` seconds in vain."""
        return ModelLoading(
            f"Could not load {self.record.name!r}: it is still being loaded after {waited:g} seconds.",
            param="model",
            retry_after=15,
        )


def _could_not_load(record: ModelRecord, error: MillmError) -> MillmError:
    return type(error)(
        f"Could not load {record.name!r}: {error.message}",
        param=error.param,
        details=error.details,
        remedy=error.remedy,
        retry_after=error.retry_after,
    )

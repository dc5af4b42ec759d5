"""Models, from the hub or the disk to memory and away again: the one object that the window and the API act through."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from engine.actions.downloading.models import DownloadRequest, ModelDownloads
from engine.actions.downloading.preview import ModelPreview, preview
from engine.actions.models.disk_use import DiskUse, disk_use, model_files
from engine.actions.models.importing import LocalModel, files_gone, import_local_model, look_at_local_model, relocated
from engine.actions.models.loading import Demand, ModelLoader
from engine.actions.models.model_files import ModelFolder, tree_bytes
from engine.actions.models.views import ModelView, placement_of
from engine.config import EngineSettings
from engine.counting import in_mb
from engine.errors import (
    DownloadCancelled,
    GpuNotFound,
    InvalidParameter,
    MillmError,
    ModelAlreadyLoaded,
    ModelBusy,
    ModelLocked,
    ModelNotFound,
    ModelNotLoaded,
    NothingToCancel,
    SplitNotHonoured,
)
from engine.events import EventBus, ModelsChanged
from engine.library.database import Library
from engine.library.records import EngineKind, ModelRecord, ModelSource, ModelStatus
from engine.models.capabilities import capabilities_of
from engine.models.hardware.memory import LoadEstimate
from engine.models.hub.client import MAIN, HubClient
from engine.models.inspection.gguf_file import inspect_gguf
from engine.models.inspection.local_caches import FoundModel, find_models
from engine.models.inspection.names import check_custom_name
from engine.models.registry import LoadedModel, ModelShelf
from engine.single_flight import SingleFlight

ACCEPT_WAIT_S = 90.0
"""Longest wait for a load to have asked everything that can refuse it; the first one imports the heavy libraries."""


class ModelActions:
    """Everything that is done with models. All methods may be called from any thread but the engine's.

    State is in the library, the shelf and the downloads, none of it here.
    """

    def __init__(
        self,
        library: Library,
        events: EventBus,
        shelf: ModelShelf,
        loader: ModelLoader,
        hub: HubClient,
        folder: ModelFolder,
        downloads: ModelDownloads,
        settings: EngineSettings,
    ) -> None:
        self._library = library
        self._events = events
        self._shelf = shelf
        self._loader = loader
        self._hub = hub
        self._folder = folder
        self.downloads = downloads
        self._settings = settings
        self._imports = SingleFlight()

    # --- looking ----------------------------------------------------------------------------------------------------

    def list(self) -> list[ModelView]:
        """Every model, newest first."""
        return [self._view(record) for record in self._library.models.list()]

    def get(self, model_id: int) -> ModelView:
        """One model. Raises :class:`ModelNotFound`."""
        return self._view(self._shelf.get(model_id))

    def preview(self, repo_id: str, revision: str = MAIN, *, token: str | None = None) -> ModelPreview:
        """What a hub repository holds and would take; see :func:`engine.actions.downloading.preview.preview`."""
        return preview(self._hub, repo_id, revision, token=token)

    def find_on_disk(self) -> tuple[FoundModel, ...]:
        """Models that other programs keep on this machine. Reads headers: not for a window's thread."""
        known = {record.local_path for record in self._library.models.list() if record.local_path}
        return find_models(known)

    def disk_use(self) -> DiskUse:
        """What everything takes on the disk. Looks at files: not for a window's thread."""
        return disk_use(
            self._library.path.parent, self._library.models.list(), self._library.saes.list(), self._disk_bytes
        )

    # --- coming in --------------------------------------------------------------------------------------------------

    def download(self, asked: DownloadRequest) -> ModelView:
        """Begin a download; see :meth:`ModelDownloads.start`. Asks the hub."""
        return self._view(self.downloads.start(asked))

    def look_at(self, path: Path) -> LocalModel:
        """What lies at ``path``; see :func:`engine.actions.models.importing.look_at_local_model`. Reads headers."""
        return look_at_local_model(self._library, path)

    def import_local(
        self,
        path: Path,
        *,
        name: str | None = None,
        copy: bool = False,
        quantization: str | None = None,
        trust_remote_code: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> ModelView:
        """Add what is on this machine; see :func:`engine.actions.models.importing.import_local_model`. Reads files.

        The very same import that is under way already is joined: both give the one row.
        """

        def work() -> ModelRecord:
            return import_local_model(
                self._library,
                self._events,
                path,
                name=name,
                copy=copy,
                quantization=quantization,
                trust_remote_code=trust_remote_code,
                check=check,
            )

        same = (str(path), name, copy, quantization, trust_remote_code)
        return self._view(self._imports.run(same, work, not_shared=(DownloadCancelled,)))

    def rename(self, model_id: int, name: str) -> ModelView:
        """Give a model another name. Raises :class:`ModelBusy` while it is loaded or being loaded."""
        record = self._shelf.get(model_id)
        check_custom_name(name)
        self._refuse_in_use(record, "renamed")
        renamed = self._library.models.update(model_id, name=name)
        self._events.publish(ModelsChanged())
        return self._view(renamed)

    def locate(self, model_id: int, path: Path) -> ModelView:
        """Say where the files of a model lie now; they are left there. Reads headers.

        Its name and everything that speaks of it stay. Raises :class:`ModelBusy` while it is in memory or on its way,
        and what :func:`engine.actions.models.importing.relocated` raises.
        """
        record = self._shelf.get(model_id)
        if record.status is ModelStatus.DOWNLOADING:
            raise ModelBusy(
                f"{record.name!r} is being downloaded.", remedy="Wait, or cancel the download first.", retry_after=15
            )
        self._refuse_in_use(record, "moved")
        changes = relocated(self._library, record, path)

        def change() -> ModelRecord:
            return self._library.models.update(model_id, status=ModelStatus.READY, error_message=None, **changes)

        moved = self._loader.unless_in_use(record, "moved", change)
        self._events.publish(ModelsChanged())
        return self._view(moved)

    # --- memory -----------------------------------------------------------------------------------------------------

    def load(self, model_id: int, gpu: int | str | None = None) -> ModelView:
        """Begin to load a model; returns once nothing can refuse it any more, or raises what did. Waits for seconds.

        ``gpu``: a card's number, ``GPU-…`` (its UUID), ``all``, or None or ``auto`` for the settings' choice. Raises
        :class:`ModelBusy`, :class:`ModelAlreadyLoaded`, :class:`GpuNotFound`, :class:`SplitNotHonoured`, and what the
        load is refused with.
        """
        record = self._shelf.get(model_id)
        loading = self._shelf.loading
        if loading is not None:
            raise ModelBusy(
                f"{loading.model_name!r} is being loaded.",
                remedy="Wait until that is done, or cancel it.",
                retry_after=15,
            )
        resident = self._shelf.resident
        if resident is not None and resident.record.id == model_id:
            raise ModelAlreadyLoaded(
                f"{record.name!r} is loaded already.", remedy="Unload it first to load it another way."
            )
        self._loader.wait_accepted(self.begin_load(model_id, gpu), ACCEPT_WAIT_S)
        return self.get(model_id)

    def begin_load(self, model_id: int, gpu: int | str | None = None) -> Future[LoadedModel]:
        """As :meth:`load`, without waiting; a load of that model under way is joined, and one in memory is given back.

        Raises at once what is known at once; see :meth:`ModelLoader.load`.
        """
        return self._loader.load(model_id, gpu=choose_gpu(gpu))

    def cancel_load(self) -> bool:
        """End the load under way, whichever model it is of; False when there is none."""
        return self._loader.cancel()

    def demand(self, name: str) -> Demand:
        """The model that a request names, loaded where it is not; see :meth:`ModelLoader.demand`."""
        return self._loader.demand(name)

    def estimate(self, model_id: int) -> LoadEstimate:
        """What a load would take. Reads headers, and brings in the heavy libraries, which know the devices.

        Raises :class:`ModelNotFound`, and what :func:`engine.models.estimate.estimate` raises.
        """
        from engine.models.estimate import estimate

        record, resident = self._shelf.get(model_id), self._shelf.resident
        if record.status is ModelStatus.DOWNLOADING or not record.local_path:
            raise ModelBusy(
                f"{record.name!r} is not here yet.",
                remedy="Wait until it is here, or download it again.",
                retry_after=15,
            )
        found = estimate(record, self._settings, freed=resident.info.memory_bytes if resident is not None else 0)
        terms = found.terms
        return LoadEstimate(
            model_id=record.id,
            name=record.name,
            device=found.device,
            number_format=found.number_format,
            weights_bytes=terms.weights,
            kv_bytes=terms.kv,
            kv_tokens=terms.kv_tokens,
            working_bytes=terms.working,
            needed_bytes=terms.total,
            available_bytes=found.available,
            fits=found.fits,
        )

    def unload(self, model_id: int, *, on_demand: bool = False) -> ModelView:
        """Free a model after its requests; waits for them.

        ``on_demand``: a request asked for it, so a model that is locked stays. Raises :class:`ModelNotLoaded`,
        :class:`ModelBusy`, :class:`ModelLocked`.
        """
        record = self._require_loaded(model_id).record
        if on_demand and self._shelf.get(model_id).locked:
            raise ModelLocked(
                f"{record.name!r} is locked for steering, so it cannot be unloaded by a request.",
                param="model",
                details={"locked_model": record.name},
                remedy="Detach the SAEs or unlock it first.",
            )
        self._loader.unload().result()
        return self.get(model_id)

    def lock(self, model_id: int) -> ModelView:
        """Keep requests from loading another model. Raises :class:`ModelNotLoaded`, :class:`ModelLocked`."""
        self._require_loaded(model_id)
        self._library.models.update(model_id, locked=True)
        self._events.publish(ModelsChanged())
        return self.get(model_id)

    def unlock(self, model_id: int) -> ModelView:
        """Let requests load other models again; nothing changes for a model that is not locked."""
        if self._shelf.get(model_id).locked:
            self._library.models.update(model_id, locked=False)
            self._events.publish(ModelsChanged())
        return self.get(model_id)

    def cancel(self, model_id: int) -> ModelView:
        """End the download or the load of a model. Raises :class:`NothingToCancel`."""
        record = self._shelf.get(model_id)
        loading = self._shelf.loading
        ended = self.downloads.cancel(model_id)
        if not ended and loading is not None and loading.model_id == model_id:
            ended = self._loader.cancel()
        if not ended:
            raise NothingToCancel(
                f"{record.name!r} is neither being downloaded nor loaded.", details={"status": record.status.value}
            )
        return self.get(model_id)

    def delete(self, model_id: int) -> int:
        """Forget a model, and remove the files that this program wrote for it; the bytes that are free again.

        Files that another row uses stay, and so does everything that a person put beside them. A download is cancelled
        first. Raises :class:`ModelNotFound`, and :class:`ModelBusy` for a model in memory.
        """
        record = self._shelf.get(model_id)
        self._refuse_in_use(record, "removed")
        self.downloads.cancel(model_id)
        ended = self.downloads.wait_ended(model_id)
        with self._folder.changes:
            record = self._shelf.get(model_id)
            others = [each for each in self._library.models.list() if each.id != model_id]
            shared = any(self._folder.used_by(each) for each in others if self._key(each) == self._key(record))
            note = {} if shared or not ended else self._folder.mark_going(record)
            try:
                # Between the question and the removal no load may begin.
                self._loader.unless_in_use(record, "removed", lambda: self._library.models.remove(model_id))
            except BaseException:
                if note:
                    self._folder.keep(record)
                raise
            freed = self._folder.take_away(record, note) if note else 0
            key = self._key(record)
            if key is not None and ended and all(self._key(each) != key for each in others):
                freed += self._folder.discard_staging(key)
        self._events.publish(ModelsChanged())
        return freed

    def sweep(self) -> None:
        """Remove what a killed process left on the disk; for the start, before anything comes in."""
        self._folder.sweep(self._library.models.list())

    # --- steps ------------------------------------------------------------------------------------------------------

    def _key(self, record: ModelRecord) -> str | None:
        return None if record.local_path is None else self._folder.key_of(Path(record.local_path))

    def _disk_bytes(self, record: ModelRecord) -> int | None:
        """What goes from the disk with a row; None where nothing does."""
        written = sum(each.size for each in self._folder.used_by(record).values())
        key = self._key(record)
        if not written and key is not None and record.source is ModelSource.HUGGINGFACE:
            written = tree_bytes(self._folder.staging(key))
        return written or None

    def _require_loaded(self, model_id: int) -> LoadedModel:
        record = self._shelf.get(model_id)
        resident = self._shelf.resident
        if resident is None or resident.record.id != model_id:
            raise ModelNotLoaded(f"{record.name!r} is not loaded.", remedy="Load it first.", retry_after=30)
        return resident

    def _refuse_in_use(self, record: ModelRecord, what: str) -> None:
        self._loader.unless_in_use(record, what, lambda: None)

    def _looked_at(self, record: ModelRecord) -> ModelRecord:
        """A GGUF's row that does not know whether it has a template, as those of earlier versions and of the demo pack,
        learns it from the header; other files are looked at when they are loaded.
        """
        unknown = record.engine is EngineKind.LLAMACPP and record.has_chat_template is None
        if not unknown or not record.local_path or record.status is ModelStatus.DOWNLOADING:
            return record
        try:
            report = inspect_gguf(Path(record.local_path))
        except MillmError:
            return record  # what is wrong with the file is said when it is to be loaded
        try:
            return self._library.models.update(
                record.id, has_chat_template=report.has_chat_template, architecture=report.architecture
            )
        except ModelNotFound:
            return record  # removed meanwhile

    def _view(self, record: ModelRecord) -> ModelView:
        record = self._looked_at(record)
        state = self.downloads.state(record.id) if record.status is ModelStatus.DOWNLOADING else None
        loading = self._shelf.loading
        if loading is not None and loading.model_id != record.id:
            loading = None
        resident = self._shelf.resident
        facts: dict[str, Any] = {}
        if resident is not None and resident.record.id == record.id:
            info = resident.info
            facts = {
                "num_parameters": info.num_parameters,
                "memory_footprint": info.memory_bytes,
                "device": info.device,
                "dtype": info.dtype,
                "placement": placement_of(resident),
            }
        taken = sum(model_files(record).values())
        return ModelView(
            id=record.id,
            name=record.name,
            source=record.source.value,
            engine=record.engine.value,
            repo_id=record.repo_id,
            local_path=record.local_path,
            params=record.params,
            architecture=record.architecture,
            quantization=record.quantization,
            gguf_label=record.gguf_label,
            revision=record.revision,
            pipeline_tag=record.pipeline_tag,
            context_length=record.context_length,
            has_chat_template=record.has_chat_template,
            disk_size_mb=in_mb(taken) if taken else record.disk_size_mb,
            disk_bytes=self._disk_bytes(record),
            files_missing=not taken and files_gone(record),
            estimated_memory_mb=record.estimated_memory_mb,
            trust_remote_code=record.trust_remote_code,
            status=record.status.value,
            error_message=record.error_message,
            locked=record.locked,
            download_progress=None if state is None else state.percent,
            downloaded_bytes=None if state is None else state.downloaded_bytes,
            total_bytes=None if state is None else state.total_bytes,
            download_speed_bps=None if state is None else state.speed_bps,
            load_progress=None if loading is None else loading.progress,
            load_stage=None if loading is None else loading.stage,
            created_at=record.created_at,
            updated_at=record.updated_at,
            loaded_at=record.loaded_at,
            last_used_at=record.last_used_at,
            capabilities=capabilities_of(record, resident),
            **facts,
        )


def choose_gpu(asked: int | str | None) -> int | None:
    """The number by which torch knows the card that is asked for; None leaves the choice to the settings.

    Raises :class:`GpuNotFound` with the cards there are, :class:`SplitNotHonoured` for several at once,
    :class:`InvalidParameter` for a word nobody knows.
    """
    if asked is None or asked == "auto":
        return None
    if isinstance(asked, bool) or not (isinstance(asked, int) or asked == "all" or asked.startswith("GPU-")):
        raise InvalidParameter(
            f"{str(asked)[:60]!r} names no GPU.",
            param="gpu",
            remedy="Send a card's number, its UUID (GPU-…), 'all' or 'auto'.",
        )
    import torch

    cards = range(torch.cuda.device_count())
    uuids = {index: f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in cards}
    if asked == "all":
        if len(cards) == 1:
            return 0
        if len(cards) > 1:
            raise SplitNotHonoured(
                f"The model cannot be spread over {len(cards)} GPUs: this engine holds a model on one card.",
                param="gpu",
                details={"gpus": list(uuids.values())},
                remedy="Name one card, or leave the choice to the program.",
            )
    found = asked if isinstance(asked, int) and asked in cards else None
    found = next((index for index, uuid in uuids.items() if uuid == asked), found)
    if found is None:
        there = ", ".join(f"{index} ({uuid})" for index, uuid in uuids.items()) or "none that torch can use"
        raise GpuNotFound(
            f"There is no GPU {asked}. This machine has: {there}.",
            param="gpu",
            details={"gpus": list(uuids.values())},
            remedy="Name one of those, or leave the choice to the program.",
        )
    return found

"""SAEs, from the disk to the residual stream: the one object that the window and the API act through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from engine.actions.lock import SteeringLock
from engine.actions.saes.attaching import Attacher
from engine.actions.saes.context import Rooms
from engine.actions.saes.contrast import CLUSTER_SHARE, DENSITY_CAP, Contrast, Contraster, Side
from engine.actions.saes.detaching import Detacher
from engine.actions.saes.errors import SaeAlreadyAttached
from engine.actions.saes.files import FOLDER, SaeFolder
from engine.actions.saes.importing import Importer
from engine.actions.saes.labels import LabelKind, read_label_upload, read_labels
from engine.actions.saes.measuring import Measurer, pushes_now, typical_norm, with_first_strengths
from engine.actions.saes.reading import Source, TextReader, TextReading
from engine.actions.saes.steering import HandSteering
from engine.actions.saes.views import (
    AttachmentsView,
    AttachResult,
    AttachSetResult,
    Compatibility,
    DeleteResult,
    DetachResult,
    FirstAttachmentView,
    LabelsResult,
    SteeringView,
    Viewer,
)
from engine.config import EngineSettings
from engine.errors import NotFound
from engine.events import EventBus, SaesChanged
from engine.generation.scheduler import Scheduler
from engine.generation.worker import EngineThread
from engine.library.database import Library
from engine.library.records import AttachItem, AttachSetRecord, FeatureLabel, SaeRecord
from engine.models.registry import ModelShelf
from engine.monitor.live import LiveMonitor
from engine.steering.desk import SteeringDesk
from engine.steering.push import Push
from engine.steering.strengths import SteeredSet


def _nothing_to_tell(sae_id: str) -> None:
    """Nobody steers through profiles or circuits."""


class SaeActions:
    """Everything that is done with SAEs. All methods may be called from any thread but the engine's; those that read
    files or wait say so.

    State is in the library, the desk and the monitor, none of it here. ``before_delete`` is told of an SAE that is to
    be removed, outside the steering lock. ``on_detached`` is told of each SAE that was taken away while the model
    stayed, under that lock. ``passes_steered``: layer to the number of passes that added a vector there.
    """

    def __init__(
        self,
        settings: EngineSettings,
        library: Library,
        desk: SteeringDesk,
        monitor: LiveMonitor,
        shelf: ModelShelf,
        scheduler: Scheduler,
        thread: EngineThread,
        events: EventBus,
        lock: SteeringLock,
        *,
        on_detached: Callable[[str], None] = _nothing_to_tell,
        passes_steered: Callable[[int], int] | None = None,
        before_delete: Callable[[str], None] = _nothing_to_tell,
    ) -> None:
        self._rooms = Rooms(settings, library, desk, monitor, shelf, scheduler, thread, events, lock)
        self._before_delete = before_delete
        self._viewer = Viewer(self._rooms, passes_steered)
        self._measurer = Measurer(self._rooms)
        self._importer = Importer(self._rooms, self._measurer, SaeFolder(library.path.parent / FOLDER, library.state))
        self._attacher = Attacher(self._rooms, self._viewer)
        self._detacher = Detacher(self._rooms, on_detached)
        self._reader = TextReader(self._rooms)
        self._contraster = Contraster(self._rooms, self._reader)
        self.steering = HandSteering(self._rooms, self._viewer)
        """Hand-set values."""

    @property
    def rooms(self) -> Rooms:
        """The rooms it acts on, for actions that read with SAEs as it does."""
        return self._rooms

    # --- library ----------------------------------------------------------------------------------------------------

    def list(self) -> list[SaeRecord]:
        """Every SAE, newest first."""
        return self._rooms.library.saes.list()

    def get(self, sae_id: str) -> SaeRecord:
        """One SAE. Raises :class:`SaeNotFound`."""
        return self._rooms.record(sae_id)

    def import_local(
        self, path: Path, *, sae_id: str | None = None, layer: int | None = None, copy: bool = False
    ) -> tuple[SaeRecord, bool]:
        """Add the SAE at ``path``; see :meth:`Importer.import_local`. Reads files."""
        return self._importer.import_local(path, sae_id=sae_id, layer=layer, copy=copy)

    def adopt(self, sae_id: str, folder: Path, weights: str, digests: Mapping[str, str]) -> SaeRecord:
        """Take over the files of a download; see :meth:`Importer.adopt`. Reads files."""
        return self._importer.adopt(sae_id, folder, weights, digests)

    def measure(self, sae_id: str) -> SaeRecord:
        """Measure an SAE on the resident model; see :meth:`Measurer.measure`. Reads files and runs the model."""
        return self._measurer.measure(sae_id)

    def measure_pending(self) -> Sequence[SaeRecord]:
        """Measure what fits the resident model and has no figures yet; for after a load. Reads files."""
        return self._measurer.measure_pending()

    def delete(self, sae_id: str) -> DeleteResult:
        """Forget an SAE with its labels; its files go where they are a copy. Raises :class:`SaeNotFound`, and
        :class:`SaeAlreadyAttached` while it is attached.
        """
        self._before_delete(sae_id)
        with self._rooms.lock:
            record = self._rooms.record(sae_id)
            layers = [each.layer for each in self._rooms.desk.state.attachments if each.sae_id == sae_id]
            if layers:
                raise SaeAlreadyAttached(
                    f"The SAE {sae_id!r} is attached, so it cannot be removed.",
                    param="sae_id",
                    details={"sae_id": sae_id, "layers": layers},
                    remedy="Detach it first.",
                )
            freed = self._importer.remove(record)
        self._rooms.events.publish(SaesChanged())
        return DeleteResult("deleted", sae_id, round(freed / 1_000_000, 2))

    def import_labels(self, sae_id: str, labels: Iterable[FeatureLabel]) -> int:
        """Store what is known about features, each label in place of the one there was: all, or none. Returns how many.

        Raises :class:`SaeNotFound`, and :class:`InvalidParameter` for a feature that the SAE does not have.
        """
        count = self._rooms.library.labels.upsert(sae_id, labels)
        self._rooms.events.publish(SaesChanged())
        return count

    def import_label_file(self, sae_id: str, path: Path) -> LabelsResult:
        """Store the labels in a file or folder; see :func:`engine.actions.saes.labels.read_labels`. Reads files."""
        found = read_labels(path, self._rooms.record(sae_id).d_sae)
        return LabelsResult(sae_id, self.import_labels(sae_id, found.labels), found.skipped)

    def import_label_upload(self, sae_id: str, content: bytes, kind: LabelKind | None = None) -> LabelsResult:
        """Store the labels in a file that was sent; see :func:`engine.actions.saes.labels.read_label_upload`."""
        found = read_label_upload(content, kind, self._rooms.record(sae_id).d_sae)
        return LabelsResult(sae_id, self.import_labels(sae_id, found.labels), found.skipped)

    def sweep(self) -> Sequence[str]:
        """Remove what a killed import or removal left; for the start of the program, before any import."""
        return self._importer.sweep()

    # --- attachments ------------------------------------------------------------------------------------------------

    def compatibility(self, sae_id: str, layer: int | None = None) -> Compatibility:
        """Whether an SAE can be attached; see :meth:`Attacher.compatibility`."""
        return self._attacher.compatibility(sae_id, layer)

    def attach(self, sae_id: str, layer: int | None = None) -> AttachResult:
        """Attach one SAE; see :meth:`Attacher.attach`. Reads files."""
        return self._attacher.attach(sae_id, layer)

    def attach_set(self, items: Sequence[tuple[str, int | None]]) -> AttachSetResult:
        """Attach several SAEs, or none; see :meth:`Attacher.attach_set`. Reads files."""
        return self._attacher.attach_set(items)

    def detach(self, sae_id: str) -> DetachResult:
        """Detach an SAE; see :meth:`Detacher.detach`. Waits for requests."""
        return self._detacher.detach(sae_id)

    def release_all(self) -> None:
        """For the loader, after the model has gone: nothing is attached any more."""
        self._detacher.release_all()

    def attachment_view(self) -> FirstAttachmentView:
        """The first attachment."""
        return self._viewer.first()

    def attachments_view(self) -> AttachmentsView:
        """Every attachment."""
        return self._viewer.all()

    # --- reading texts ----------------------------------------------------------------------------------------------

    def read_text(
        self,
        source: Source,
        *,
        sae_id: str | None = None,
        layer: int | None = None,
        top_k: int = 8,
        features: Sequence[int] = (),
    ) -> Future[TextReading]:
        """Which features fire at each token of a text, unsteered; see :meth:`TextReader.read`. May read files."""
        return self._reader.read(source, sae_id=sae_id, layer=layer, top_k=top_k, features=features)

    def contrast(
        self,
        texts_a: Sequence[str],
        texts_b: Sequence[str],
        *,
        sae_id: str | None = None,
        layer: int | None = None,
        limit: int = 30,
        density_cap: float = DENSITY_CAP,
    ) -> Future[Contrast]:
        """The features in which two sets of texts differ most; see :meth:`Contraster.contrast`. May read files."""
        return self._contraster.contrast(
            texts_a, texts_b, sae_id=sae_id, layer=layer, limit=limit, density_cap=density_cap
        )

    def contrast_cluster(
        self,
        found: Contrast,
        name: str,
        *,
        side: Side = "a",
        features: Sequence[int] | None = None,
        count: int = 3,
        total: float = CLUSTER_SHARE,
    ) -> dict[str, Any]:
        """What was found as a cluster document, not stored; see :meth:`Contraster.cluster`. Reads the library."""
        return self._contraster.cluster(found, name, side=side, features=features, count=count, total=total)

    # --- saved sets -------------------------------------------------------------------------------------------------

    def save_set(self, name: str, items: Sequence[tuple[str, int]] | None = None) -> AttachSetRecord:
        """Remember a set (None: what is attached now) under ``name``, in place of one of that name.

        Raises :class:`InvalidParameter` for an empty set or a name that cannot be used.
        """
        if items is None:
            items = [(each.sae_id, each.layer) for each in self._rooms.desk.state.attachments]
        saved = self._rooms.library.attach_sets.save(name, [AttachItem(*item) for item in items])
        self._rooms.events.publish(SaesChanged())
        return saved

    def delete_set(self, name: str) -> None:
        """Forget a set. Raises :class:`NotFound` for a missing one."""
        self._rooms.library.attach_sets.remove(name)
        self._rooms.events.publish(SaesChanged())

    def attach_saved_set(self, name: str) -> AttachSetResult:
        """Attach a remembered set. Raises :class:`NotFound`, else as :meth:`attach_set`. Reads files."""
        saved = self._rooms.library.attach_sets.get(name)
        if saved is None:
            raise NotFound(f"There is no saved set of SAEs named {name!r}.", param="name")
        return self.attach_set([(item.sae_id, item.layer) for item in saved.items])

    # --- how much is added ------------------------------------------------------------------------------------------

    def typical_norm(self, sae_id: str, layer: int) -> float | None:
        """The layer's median norm, where it is known; see :func:`engine.actions.saes.pushing.typical_norm`."""
        return typical_norm(self._rooms, sae_id, layer)

    def with_first_strengths(self, sae_id: str, layer: int, values: Mapping[int, float | None]) -> dict[int, float]:
        """Fill in what was given without a strength; see :func:`engine.actions.saes.pushing.with_first_strengths`."""
        return with_first_strengths(self._rooms, sae_id, layer, values)

    def pushes(self, sets: Sequence[SteeredSet]) -> tuple[Push, ...]:
        """How long the vectors are that ``sets`` add; see :func:`engine.actions.saes.pushing.pushes_now`."""
        return pushes_now(self._rooms, sets)

    # --- steering by hand -------------------------------------------------------------------------------------------

    def steering_view(self, sae_id: str | None = None, layer: int | None = None) -> SteeringView:
        """The hand-set values of the first attached SAE, or of the one named; raises :class:`SaeNotAttached`."""
        return self._viewer.steering(sae_id, layer)

    def set_steering(
        self, feature_idx: int, value: float, *, sae_id: str | None = None, layer: int | None = None
    ) -> SteeringView:
        """Set one strength; see :meth:`HandSteering.set_value`."""
        return self.steering.set_value(feature_idx, value, sae_id=sae_id, layer=layer)

    def set_steering_batch(
        self,
        steering: Mapping[int, float] | Mapping[str, float],
        *,
        sae_id: str | None = None,
        layer: int | None = None,
    ) -> SteeringView:
        """Merge many strengths; see :meth:`HandSteering.set_values`."""
        return self.steering.set_values(steering, sae_id=sae_id, layer=layer)

    def enable_steering(
        self, enabled: bool = True, *, sae_id: str | None = None, layer: int | None = None
    ) -> SteeringView:
        """Switch an SAE's values on or off; see :meth:`HandSteering.set_enabled`."""
        return self.steering.set_enabled(enabled, sae_id=sae_id, layer=layer)

    def remove_steering(self, feature_idx: int, *, sae_id: str | None = None, layer: int | None = None) -> SteeringView:
        """Take one feature out; see :meth:`HandSteering.remove_value`."""
        return self.steering.remove_value(feature_idx, sae_id=sae_id, layer=layer)

    def clear_steering(self, *, sae_id: str | None = None, layer: int | None = None) -> SteeringView:
        """Take every value out; see :meth:`HandSteering.clear`."""
        return self.steering.clear(sae_id=sae_id, layer=layer)

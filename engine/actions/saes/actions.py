"""The SAEs of the library: imported from this machine, taken over from a download, labelled, deleted.

An import reads once, describes, and remembers what was assumed.

By reference its files stay where they are and are never changed; as a copy they go with the row. A refused import
leaves nothing behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.actions.saes.context import SaeContext
from engine.actions.saes.errors import SaeAlreadyAttached, SaeFilesDamaged
from engine.actions.saes.files import SaeFolder
from engine.actions.saes.import_paths import checked_id, checked_layer, origin_of, usable_place, width_label
from engine.actions.saes.labels import LabelKind, read_label_upload, read_labels
from engine.actions.saes.measuring import Measurer
from engine.actions.saes.views import DeleteResult, LabelsResult
from engine.checked import there
from engine.counting import in_mb
from engine.errors import InsufficientMemory
from engine.events import SaesChanged
from engine.library.errors import SaeAlreadyExists
from engine.library.records import FeatureLabel, SaeRecord, SaeSource, SaeStatus
from engine.saes.config import SaeConfig
from engine.saes.errors import SaeLoadFailed
from engine.saes.path_facts import l0_from_path, width_from_path
from engine.wire import wire

if TYPE_CHECKING:
    from engine.saes.formats import Detected
    from engine.saes.sae import Sae

_OF_THE_ROW = frozenset(
    {
        "id",
        "name",
        "source",
        "repository_id",
        "revision",
        "created_at",
        "updated_at",
        "status",
        "copied",
        "error_message",
    }
)
"""Columns that the download's row has already."""


class SaeActions:
    """What is done with the SAEs of the library. All methods may be called from any thread but the engine's; those that
    read files say so. ``before_delete`` is told of an SAE that is to be removed, outside the steering lock.
    """

    def __init__(
        self,
        context: SaeContext,
        measurer: Measurer,
        folder: SaeFolder,
        *,
        before_delete: Callable[[str], None] = lambda _sae_id: None,
    ) -> None:
        self._context = context
        self._before_delete = before_delete
        self._measurer = measurer
        self._folder = folder
        # One import at a time, so that the same files twice at once make one row; short work on the copies beside it.
        self._importing = threading.Lock()
        self._files = threading.Lock()

    def list(self) -> list[SaeRecord]:
        """Every SAE, newest first."""
        return self._context.library.saes.list()

    def get(self, sae_id: str) -> SaeRecord:
        """One SAE. Raises :class:`SaeNotFound`."""
        return self._context.record(sae_id)

    def delete(self, sae_id: str) -> DeleteResult:
        """Forget an SAE with its labels; its files go where they are a copy. Raises :class:`SaeNotFound`, and
        :class:`SaeAlreadyAttached` while it is attached.
        """
        self._before_delete(sae_id)
        with self._context.lock:
            record = self._context.record(sae_id)
            layers = [each.layer for each in self._context.desk.state.attachments if each.sae_id == sae_id]
            if layers:
                raise SaeAlreadyAttached(
                    f"The SAE {sae_id!r} is attached, so it cannot be removed.",
                    param="sae_id",
                    details={"sae_id": sae_id, "layers": layers},
                    remedy="Detach it first.",
                )
            freed = self._remove(record)
        self._context.events.publish(SaesChanged())
        return DeleteResult("deleted", sae_id, in_mb(freed))

    def import_labels(self, sae_id: str, labels: Iterable[FeatureLabel]) -> int:
        """Store what is known about features, each label in place of the one there was: all, or none. Returns how many.

        Raises :class:`SaeNotFound`, and :class:`InvalidParameter` for a feature that the SAE does not have.
        """
        count = self._context.library.labels.upsert(sae_id, labels)
        self._context.events.publish(SaesChanged())
        return count

    def import_label_file(self, sae_id: str, path: Path) -> LabelsResult:
        """Store the labels in a file or folder; see :func:`engine.actions.saes.labels.read_labels`. Reads files."""
        found = read_labels(path, self._context.record(sae_id).d_sae)
        return LabelsResult(sae_id, self.import_labels(sae_id, found.labels), found.skipped)

    def import_label_upload(self, sae_id: str, content: bytes, kind: LabelKind | None = None) -> LabelsResult:
        """Store the labels in a file that was sent; see :func:`engine.actions.saes.labels.read_label_upload`."""
        found = read_label_upload(content, kind, self._context.record(sae_id).d_sae)
        return LabelsResult(sae_id, self.import_labels(sae_id, found.labels), found.skipped)

    def import_local(
        self, path: Path, *, sae_id: str | None = None, layer: int | None = None, copy: bool = False
    ) -> tuple[SaeRecord, bool]:
        """The row of the SAE at ``path``, and whether it is new. Blocks while the files are read; not for a window.

        The very same files again give the row there is, with a ``layer`` given now taken over. Raises
        :class:`InvalidParameter`, :class:`SaeFilesDamaged`, :class:`SaeAlreadyExists` for an id that is taken, the
        errors of :func:`engine.saes.formats.detect`, :class:`SaeNotSteerable`, :class:`InsufficientMemory` and, for
        copies, :class:`InsufficientDisk` and :class:`DataDirectoryUnusable`.
        """
        if sae_id is not None:
            checked_id(sae_id)
        checked_layer(layer)
        place = usable_place(path)
        try:
            with self._importing:
                record, sae, created = self._import(place, sae_id, layer, copy)
        except SaeLoadFailed as error:
            # The files are the caller's, so this is no failure of ours.
            raise SaeFilesDamaged(
                error.message, param=error.param or "path", details=error.details, remedy=error.remedy
            ) from error
        # The passes take their time, and other imports need not wait for them.
        return self._measurer.measure_if_fitting(record, sae), created

    def _import(
        self, place: Path, sae_id: str | None, layer: int | None, copy: bool
    ) -> tuple[SaeRecord, Sae | None, bool]:
        from engine.saes.formats import detect

        detected = detect(place)
        detected.config.require_steerable()
        try:
            digest = detected.digest()
        except OSError as error:
            raise SaeLoadFailed(
                f"{detected.files[0].name} cannot be read: {error.strerror or error}.", param="path"
            ) from error
        there = self._context.library.saes.by_files_hash(digest)
        if there is not None:
            return self._again(there, detected, layer, copy=copy, digest=digest), None, False
        sae = _read(detected, layer)
        new = _row(detected, sae.config, sae_id, digest)
        record, created = self._add(new, detected, copy=copy)
        self._context.events.publish(SaesChanged())
        return record, sae, created

    def adopt(self, sae_id: str, folder: Path, weights: str, digests: Mapping[str, str]) -> SaeRecord:
        """Take over the downloaded files in ``folder`` for the row ``sae_id``: placed, described, ``cached``.

        ``weights`` is the weight file's path inside, ``digests`` the SHA-256 of files where it is known. Files that are
        no SAE we can use are removed. Raises as :meth:`import_local`.
        """
        from engine.saes.formats import detect

        with self._importing:
            with self._files:
                self._folder.mark_going(self._context.record(sae_id))
                self._folder.discard(sae_id)
                home = self._folder.adopt(sae_id, folder, digests)
            try:
                detected = detect(home / weights)
                detected.config.require_steerable()
                sae = _read(detected, None)
                new = _row(detected, sae.config, sae_id, detected.digest())
                facts = {each.name: getattr(new, each.name) for each in fields(new) if each.name not in _OF_THE_ROW}
                record = self._context.library.saes.update(
                    sae_id, **facts, copied=True, status=SaeStatus.CACHED, error_message=None
                )
            except BaseException:
                with self._files:
                    self._folder.discard(sae_id)
                raise
            self._folder.settle(sae_id)
        self._context.events.publish(SaesChanged())
        return self._measurer.measure_if_fitting(record, sae)

    def _remove(self, record: SaeRecord) -> int:
        """Forget an SAE and remove the files that we wrote for it; the bytes that are free again."""
        with self._files:
            self._folder.mark_going(record)
            try:
                self._context.library.saes.remove(record.id)
            except BaseException:
                self._folder.settle(record.id)
                raise
            return self._folder.discard(record.id)

    def sweep(self) -> tuple[str, ...]:
        """Remove what a killed import or removal left. For the start of the program."""
        with self._files:
            return tuple(self._folder.sweep(self._owns_files))

    # --- steps ------------------------------------------------------------------------------------------------------

    def _add(self, new: SaeRecord, detected: Detected, *, copy: bool) -> tuple[SaeRecord, bool]:
        if not copy:
            return self._context.library.saes.add_or_find(new, replace_failed=True)
        self._refuse_taken(new.id)
        with self._folder.staged(detected, new.id, there(new.files_sha256)) as staged:
            with self._files:
                self._refuse_taken(new.id)
                failed = self._context.library.saes.get(new.id)
                if failed is not None:
                    # What is left of an attempt that ended in an error gives way with its row.
                    self._folder.mark_going(failed)
                    self._folder.discard(new.id)
                placed = replace(new, local_path=str(self._folder.put(staged)), copied=True)
                try:
                    record, created = self._context.library.saes.add_or_find(placed, replace_failed=True)
                except BaseException:
                    self._folder.discard(new.id)
                    raise
                if created:
                    self._folder.settle(new.id)
                else:
                    self._folder.discard(new.id)
                return record, created

    def _again(self, there: SaeRecord, detected: Detected, layer: int | None, *, copy: bool, digest: str) -> SaeRecord:
        """The row of files that are in the library, with what this import says anew taken over."""
        changes: dict[str, object] = {}
        if layer is not None and layer != there.trained_layer:
            changes["trained_layer"] = layer
            changes["assumed"] = (*there.assumed, f"Layer {layer} was given by hand.")
            changes["config"] = {**there.config, "layer": layer}
        gone = there.local_path is None or not Path(there.local_path).exists()
        if copy and (gone or not there.copied):
            with self._folder.staged(detected, there.id, digest) as staged, self._files:
                self._folder.mark_going(there)
                self._folder.discard(there.id)
                changes |= {"local_path": str(self._folder.put(staged)), "copied": True}
                try:
                    record = self._context.library.saes.update(there.id, **changes)
                except BaseException:
                    self._folder.discard(there.id)
                    raise
                self._folder.settle(there.id)
        else:
            if gone:
                changes |= {"local_path": str(detected.files[0]), "copied": False}
            if not changes:
                return there
            record = self._context.library.saes.update(there.id, **changes)
        self._context.events.publish(SaesChanged())
        return record

    def _refuse_taken(self, sae_id: str) -> None:
        """Early, so that nothing is copied in vain; the library has the last word."""
        taken = self._context.library.saes.get(sae_id)
        if taken is not None and taken.status is not SaeStatus.ERROR:
            raise SaeAlreadyExists(
                f"The library has an SAE with the id {sae_id!r} already.",
                param="sae_id",
                details={"existing_sae_id": sae_id},
                remedy="Use that one, or give this one another id.",
            )

    def _owns_files(self, sae_id: str) -> bool:
        record = self._context.library.saes.get(sae_id)
        if record is None or not record.copied or record.local_path is None:
            return False
        return Path(record.local_path).is_relative_to(self._folder.root / sae_id)


def _read(detected: Detected, layer: int | None) -> Sae:
    """The SAE as stored, on the CPU: only the values tell whether it is whole and which way round it lies."""
    import torch

    from engine.models.hardware.devices import available_memory
    from engine.saes.formats import estimate_bytes, load_detected

    needed, free = estimate_bytes(detected, detected.config.dtype), available_memory(torch.device("cpu"))
    if needed > free:
        raise InsufficientMemory(
            f"The SAE takes {in_mb(needed):g} MB to be read and {in_mb(free):g} MB are available.",
            details={"projected_mb": in_mb(needed), "free_mb": in_mb(free), "device": "cpu"},
            remedy="Close other programs, or choose an SAE with fewer features.",
        )
    return load_detected(detected, layer=layer)


def _row(detected: Detected, config: SaeConfig, sae_id: str | None, digest: str) -> SaeRecord:
    weights = detected.files[0]
    origin = origin_of(detected.folder, weights, config.layer)
    named = sae_id if sae_id is not None else origin.sae_id
    return SaeRecord(
        id=named,
        name=named,
        source=SaeSource.LOCAL,
        repository_id=origin.repository_id,
        revision=origin.revision,
        format=config.source_format.value,
        architecture=config.architecture.value,
        d_in=config.d_in,
        d_sae=config.d_sae,
        k=config.k,
        trained_on=config.model_name,
        trained_layer=config.layer,
        hook_name=config.hook_name,
        width=width_from_path(weights) or width_label(config.d_sae),
        average_l0=l0_from_path(weights),
        source_l0=config.source_l0,
        source_variance_explained=config.source_variance_explained,
        file_size_bytes=detected.size_bytes,
        local_path=str(weights),
        files_sha256=digest,
        dtype=config.dtype,
        normalize_activations=config.normalize_activations.value,
        apply_b_dec_to_input=config.apply_b_dec_to_input,
        assumed=config.assumed,
        config=wire(config),
    )

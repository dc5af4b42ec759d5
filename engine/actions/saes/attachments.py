"""The SAEs that are attached to the resident model: attached all of a set or none of it, taken away, remembered.

Order of a change: everything is validated, weights are read, then, under the steering lock, the rows are written and a
job on the engine thread puts hooks, desk and monitor right at once. Rows come first, so that a change that cannot be
remembered never happens; a job that is refused takes them back. After a kill in between, the next start finds rows that
say ``attached`` and puts them right, since nothing is attached then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.actions.saes.context import SaeContext
from engine.actions.saes.errors import SaeAlreadyAttached
from engine.actions.saes.import_paths import checked_layer
from engine.actions.saes.measuring import fit_to
from engine.actions.saes.verify import find_files
from engine.actions.saes.views import (
    AttachmentsView,
    AttachResult,
    AttachSetResult,
    AttachStatus,
    Compatibility,
    DetachResult,
    FirstAttachmentView,
    Viewer,
    held_bytes,
)
from engine.actions.saes.weights import attach_dtype, load_weights, require_memory
from engine.counting import in_mb
from engine.errors import InvalidParameter, MillmError, NotFound, SaeNotAttached
from engine.events import SaeAttached, SaeDetached, SaesChanged
from engine.library.records import AttachItem, AttachSetRecord, SaeRecord, SaeStatus
from engine.models.registry import LoadedModel
from engine.saes.attachment import Attachment
from engine.saes.config import Fit, SaeConfig
from engine.saes.errors import SaeLoadFailed
from engine.steering import transitions
from engine.steering.errors import SteeringInvalid
from engine.steering.live import AttachmentKey

if TYPE_CHECKING:
    from engine.saes.formats import Detected
    from engine.saes.sae import Sae

log = logging.getLogger(__name__)

DETACH_WAIT_SECONDS = 30.0
"""How long a detach waits for requests that run with the SAE."""


@dataclass(frozen=True)
class _Wanted:
    """One attachment that was asked for and found fit."""

    record: SaeRecord
    layer: int
    detected: Detected
    config: SaeConfig
    warnings: tuple[str, ...]

    @property
    def place(self) -> AttachmentKey:
        return self.record.id, self.layer


class Attachments:
    """What is attached to the resident model: attached and taken away one by one, as sets, and as remembered sets.

    Blocks while weights are read or requests run; not for the engine thread or a window's. ``on_detached`` is told,
    under the steering lock, of each SAE that was taken away while the model stayed.
    """

    def __init__(self, context: SaeContext, viewer: Viewer, on_detached: Callable[[str], None]) -> None:
        self._context = context
        self._viewer = viewer
        self._on_detached = on_detached
        # One at a time reads weights, so that the memory one was promised is not taken by another.
        self._reading = threading.Lock()

    def compatibility(self, sae_id: str, layer: int | None = None) -> Compatibility:
        """How an SAE fits a layer (None: its own) of the resident model.

        Raises :class:`ModelNotLoaded`, :class:`SaeNotFound`, and :class:`InvalidParameter` for a layer nobody names.
        """
        loaded = self._context.resident()
        record = self._context.record(sae_id)
        at = _layer_of(record, layer)
        fit = _usable(record)
        if not fit.errors:
            try:
                fit = fit_to(find_files(record)[1], at, loaded)
            except SaeLoadFailed as error:
                fit = Fit((error.message,))
        return Compatibility(not fit.errors, fit.errors, fit.warnings)

    def attach(self, sae_id: str, layer: int | None = None) -> AttachResult:
        """Attach one SAE at ``layer`` (None: the one it was trained for).

        Raises, in this order: :class:`ModelNotLoaded`, :class:`SaeNotFound`, :class:`InvalidParameter` for a layer,
        :class:`SaeAlreadyAttached`, :class:`SaeIncompatible`, :class:`EngineUnsupported` where the engine cannot
        reach the layer, :class:`SaeLoadFailed`, :class:`InsufficientMemory`.
        """
        return self._attach([(sae_id, layer)], again_refused=True).entries[0]

    def attach_set(self, items: Sequence[tuple[str, int | None]]) -> AttachSetResult:
        """Attach several at once: all that are new, or none. What is attached already stays and is said to be.

        Raises :class:`SteeringInvalid` for an empty set, else as :meth:`attach`, for the first item at fault.
        """
        if not items:
            raise SteeringInvalid("A set needs at least one SAE.", param="saes", remedy="Name an SAE and its layer.")
        return self._attach(items, again_refused=False)

    def detach(self, sae_id: str) -> DetachResult:
        """Take an SAE away from every layer it is on, once no request runs with it or 30 seconds have gone by.

        Requests that follow the live steering go on without it. Raises :class:`SaeNotFound` and
        :class:`SaeNotAttached`.
        """
        context = self._context
        context.record(sae_id)
        self._require_attached(sae_id)
        unused = context.scheduler.wait_unused(sae_id, DETACH_WAIT_SECONDS)
        if not unused:
            log.error("requests still run with the SAE %s after %g s; it is detached", sae_id, DETACH_WAIT_SECONDS)
        with context.lock:
            layers, size = self._require_attached(sae_id)
            loaded = context.resident()
            last = all(each.sae_id == sae_id for each in context.desk.state.attachments)
            context.library.saes.set_status(sae_id, SaeStatus.CACHED)
            try:
                if last and context.settings.LOCK_ON_ATTACH:
                    context.unlock_models()

                def remove() -> None:
                    context.desk.apply(transitions.detach(sae_id))
                    context.monitor.set_attachments(context.desk.state.attachments)
                    context.hook(loaded)

                context.on_model(loaded, remove)
            except BaseException:
                self._put_back(sae_id, loaded)
                raise
            from engine.models.hardware.devices import release_cached_memory

            release_cached_memory(loaded.backend.device)
            context.events.publish(SaeDetached(sae_id))
            context.events.publish(SaesChanged())
            self._tell(sae_id)
        return DetachResult("detached", sae_id, in_mb(size), layers, unused)

    def release_all(self) -> None:
        """The model is gone, and with it every attachment: put rows, lock and monitor right. Raises nothing."""
        context = self._context
        with context.lock:
            context.monitor.set_attachments(context.desk.state.attachments)
            try:
                here = {each.sae_id for each in context.desk.state.attachments}
                rows = [each.id for each in context.library.saes.list() if each.status is SaeStatus.ATTACHED]
                gone = [sae_id for sae_id in rows if sae_id not in here]
                context.library.saes.set_statuses(gone, SaeStatus.CACHED)
                if gone and not here and context.settings.LOCK_ON_ATTACH:
                    context.unlock_models()
            except MillmError:
                # The library is closed when the program ends; the next start puts the rows right.
                log.warning("the rows of SAEs that left with the model could not be put right", exc_info=True)
                return
            for sae_id in gone:
                context.events.publish(SaeDetached(sae_id))
            if gone:
                context.events.publish(SaesChanged())

    def first(self) -> FirstAttachmentView:
        """The first attachment."""
        return self._viewer.first()

    def all(self) -> AttachmentsView:
        """Every attachment."""
        return self._viewer.all()

    def save_set(self, name: str, items: Sequence[tuple[str, int]] | None = None) -> AttachSetRecord:
        """Remember a set (None: what is attached now) under ``name``, in place of one of that name.

        Raises :class:`InvalidParameter` for an empty set or a name that cannot be used.
        """
        if items is None:
            items = [(each.sae_id, each.layer) for each in self._context.desk.state.attachments]
        saved = self._context.library.attach_sets.save(name, [AttachItem(*item) for item in items])
        self._context.events.publish(SaesChanged())
        return saved

    def delete_set(self, name: str) -> None:
        """Forget a set. Raises :class:`NotFound` for a missing one."""
        self._context.library.attach_sets.remove(name)
        self._context.events.publish(SaesChanged())

    def attach_saved_set(self, name: str) -> AttachSetResult:
        """Attach a remembered set. Raises :class:`NotFound`, else as :meth:`attach_set`. Reads files."""
        saved = self._context.library.attach_sets.get(name)
        if saved is None:
            raise NotFound(f"There is no saved set of SAEs named {name!r}.", param="name")
        return self.attach_set([(item.sae_id, item.layer) for item in saved.items])

    # --- steps ------------------------------------------------------------------------------------------------------

    def _attach(self, items: Sequence[tuple[str, int | None]], *, again_refused: bool) -> AttachSetResult:
        with self._reading:
            loaded = self._context.resident()
            places = [(sae_id, _layer_of(self._context.record(sae_id), layer)) for sae_id, layer in items]
            places = list(dict.fromkeys(places))
            there = {(each.sae_id, each.layer) for each in self._context.desk.state.attachments}
            if again_refused and (taken := [place for place in places if place in there]):
                raise _already_attached(*taken[0])
            wanted = [self._want(*place, loaded) for place in places if place not in there]
            attachments: list[Attachment] = []
            try:
                self._read_weights(wanted, loaded, attachments)
                with self._context.lock:
                    self._require_still(there.intersection(places))
                    self._commit(loaded, attachments)
                    return self._attached(places, wanted, loaded)
            except BaseException:
                # Whoever keeps the error keeps this frame: the weights must not stay with it.
                attachments.clear()
                from engine.models.hardware.devices import release_cached_memory

                release_cached_memory(loaded.backend.device)
                raise

    def _want(self, sae_id: str, layer: int, loaded: LoadedModel) -> _Wanted:
        record = self._context.record(sae_id)
        _usable(record).require(sae_id)
        detected, config = find_files(record)
        fit = fit_to(config, layer, loaded)
        fit.require(sae_id)
        loaded.backend.capabilities.steering.check_layer(layer)
        return _Wanted(record, layer, detected, config, fit.warnings)

    def _read_weights(self, wanted: Sequence[_Wanted], loaded: LoadedModel, into: list[Attachment]) -> None:
        """Read what is not in memory yet and append an attachment for each of ``wanted``."""
        dtype, device = attach_dtype(self._context.settings, loaded), loaded.backend.device
        held: dict[str, Sae] = {
            each.sae_id: each.sae for each in self._context.desk.state.attachments if each.sae.dtype == dtype
        }
        new = {each.record.id: each for each in wanted if each.record.id not in held}
        require_memory([(each.record, each.config) for each in new.values()], dtype, device)
        try:
            for each in wanted:
                if each.record.id not in held:
                    held[each.record.id] = load_weights(each.detected, device, dtype)
                sae = held[each.record.id]
                path = f"{loaded.info.blocks_path}.{each.layer}"
                into.append(Attachment(each.record.id, each.layer, sae, path, sae.nbytes))
                del sae
        finally:
            held.clear()

    def _require_still(self, places: Collection[AttachmentKey]) -> None:
        """Refuse when what was attached before weights were read has been detached meanwhile: it is all or nothing."""
        now = {(each.sae_id, each.layer) for each in self._context.desk.state.attachments}
        gone = sorted(set(places) - now)
        if gone:
            raise SaeNotAttached(
                f"The SAE {gone[0][0]!r} at layer {gone[0][1]} was detached while the others were read.",
                param="saes",
                details={"attached_sae_ids": sorted({sae_id for sae_id, _ in now})},
                remedy="Attach the set again.",
            )

    def _commit(self, loaded: LoadedModel, attachments: Sequence[Attachment]) -> None:
        """Rows, lock, then the model itself; nothing stays changed when a step is refused."""
        if not attachments:
            return
        context = self._context
        before = {each.sae_id for each in context.desk.state.attachments}
        new = sorted({each.sae_id for each in attachments} - before)
        was_locked = context.shelf.get(loaded.record.id).locked
        context.library.saes.set_statuses(sorted({each.sae_id for each in attachments}), SaeStatus.ATTACHED)
        try:
            if context.settings.LOCK_ON_ATTACH:
                context.lock_model(loaded.record.id)

            def install() -> None:
                context.desk.apply(transitions.attach(attachments))
                context.hook(loaded)
                context.monitor.set_attachments(context.desk.state.attachments)

            context.on_model(loaded, install)
        except BaseException:
            self._take_back(new, unlock=context.settings.LOCK_ON_ATTACH and not was_locked and not before)
            raise
        for each in attachments:
            context.events.publish(SaeAttached(each.sae_id, each.layer, in_mb(each.memory_bytes)))
        context.events.publish(SaesChanged())

    def _take_back(self, sae_ids: Sequence[str], *, unlock: bool) -> None:
        try:
            self._context.library.saes.set_statuses(sae_ids, SaeStatus.CACHED)
            if unlock:
                self._context.unlock_models()
        except MillmError:
            log.warning("rows of SAEs that were not attached could not be taken back", exc_info=True)

    def _attached(
        self, places: Sequence[AttachmentKey], wanted: Sequence[_Wanted], loaded: LoadedModel
    ) -> AttachSetResult:
        attachments = self._context.desk.state.attachments
        size = {(each.sae_id, each.layer): in_mb(each.memory_bytes) for each in attachments}
        warnings = {each.place: each.warnings for each in wanted}
        entries = tuple(
            AttachResult(
                AttachStatus.ATTACHED if place in warnings else AttachStatus.ALREADY_ATTACHED,
                *place,
                size.get(place, 0.0),
                warnings.get(place, ()),
                f"{loaded.info.blocks_path}.{place[1]}",
            )
            for place in places
        )
        total, envelope, above = self._viewer.memory(attachments)
        return AttachSetResult(AttachStatus.ATTACHED, entries, len(attachments), total, envelope, above)

    def _tell(self, sae_id: str) -> None:
        try:
            self._on_detached(sae_id)
        except MillmError:
            # The SAE is gone all the same; who steered through it is put right at the next start at the latest.
            log.warning("what steered through the SAE %s could not be put right", sae_id, exc_info=True)

    def _require_attached(self, sae_id: str) -> tuple[tuple[int, ...], int]:
        """The layers an SAE is on and the bytes it holds. Raises :class:`SaeNotAttached`."""
        attachments = self._context.desk.state.attachments
        own = [each for each in attachments if each.sae_id == sae_id]
        if not own:
            raise SaeNotAttached(
                f"The SAE {sae_id!r} is not attached.",
                param="sae_id",
                details={"attached_sae_ids": list(dict.fromkeys(each.sae_id for each in attachments))},
                remedy="Only an SAE that is attached can be detached.",
            )
        return tuple(each.layer for each in own), held_bytes(own)

    def _put_back(self, sae_id: str, loaded: LoadedModel) -> None:
        """A detach was refused on the way: the rows say again what is so."""
        if not any(each.sae_id == sae_id for each in self._context.desk.state.attachments):
            return
        try:
            self._context.library.saes.set_status(sae_id, SaeStatus.ATTACHED)
            if self._context.settings.LOCK_ON_ATTACH:
                self._context.lock_model(loaded.record.id)
        except MillmError:
            log.warning("the row of the SAE %s, which is still attached, could not be put back", sae_id, exc_info=True)


def _layer_of(record: SaeRecord, layer: int | None) -> int:
    """The layer asked for, or the SAE's own. Raises :class:`InvalidParameter` when nobody names one."""
    checked_layer(layer)
    found = record.trained_layer if layer is None else layer
    if found is None:
        raise InvalidParameter(
            f"The files of the SAE {record.id!r} do not say which layer it belongs to.",
            param="layer",
            remedy="Name the layer.",
        )
    return found


def _usable(record: SaeRecord) -> Fit:
    """What speaks against an SAE whatever the model is: a row that does not stand for files that are here."""
    if record.status in (SaeStatus.CACHED, SaeStatus.ATTACHED):
        return Fit()
    state = "still being downloaded" if record.status is SaeStatus.DOWNLOADING else "not usable"
    return Fit((f"It is {state}: {record.error_message}" if record.error_message else f"It is {state}.",))


def _already_attached(sae_id: str, layer: int) -> SaeAlreadyAttached:
    return SaeAlreadyAttached(
        f"The SAE {sae_id!r} is attached at layer {layer} already.",
        param="sae_id",
        details={"sae_id": sae_id, "layers": [layer]},
        remedy="Use it as it is, or detach it first.",
    )

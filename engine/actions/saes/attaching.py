"""Attaching SAEs to the resident model: all of a set, or none of it.

Order of a change: everything is validated, weights are read, then, under the steering lock, the rows are written and a
job on the engine thread puts hooks, desk and monitor right at once. Rows come first, so that a change that cannot be
remembered never happens; a job that is refused takes them back. After a kill in between, the next start finds rows that
say ``attached`` and puts them right, since nothing is attached then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.actions.saes.context import Rooms
from engine.actions.saes.errors import SaeAlreadyAttached
from engine.actions.saes.import_paths import checked_layer
from engine.actions.saes.measuring import fit_to
from engine.actions.saes.verify import find_files
from engine.actions.saes.views import (
    AttachResult,
    AttachSetResult,
    AttachStatus,
    Compatibility,
    Viewer,
)
from engine.actions.saes.weights import attach_dtype, load_weights, require_memory
from engine.counting import in_mb
from engine.errors import InvalidParameter, MillmError, SaeNotAttached
from engine.events import SaeAttached, SaesChanged
from engine.library.records import SaeRecord, SaeStatus
from engine.models.registry import LoadedModel
from engine.saes.attachment import Attachment
from engine.saes.config import Fit, SaeConfig
from engine.saes.errors import SaeLoadFailed
from engine.steering.errors import SteeringInvalid
from engine.steering.live import AttachmentKey

if TYPE_CHECKING:
    from engine.saes.formats import Detected
    from engine.saes.sae import Sae

log = logging.getLogger(__name__)


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


class Attacher:
    """Attaches. Blocks while weights are read; not for the engine thread or a window's."""

    def __init__(self, rooms: Rooms, viewer: Viewer) -> None:
        self._rooms = rooms
        self._viewer = viewer
        # One at a time reads weights, so that the memory one was promised is not taken by another.
        self._reading = threading.Lock()

    def compatibility(self, sae_id: str, layer: int | None) -> Compatibility:
        """How an SAE fits a layer (None: its own) of the resident model.

        Raises :class:`ModelNotLoaded`, :class:`SaeNotFound`, and :class:`InvalidParameter` for a layer nobody names.
        """
        loaded = self._rooms.resident()
        record = self._rooms.record(sae_id)
        at = _layer_of(record, layer)
        fit = _usable(record)
        if not fit.errors:
            try:
                fit = fit_to(find_files(record)[1], at, loaded)
            except SaeLoadFailed as error:
                fit = Fit((error.message,))
        return Compatibility(not fit.errors, fit.errors, fit.warnings)

    def attach(self, sae_id: str, layer: int | None) -> AttachResult:
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

    def _attach(self, items: Sequence[tuple[str, int | None]], *, again_refused: bool) -> AttachSetResult:
        with self._reading:
            loaded = self._rooms.resident()
            places = [(sae_id, _layer_of(self._rooms.record(sae_id), layer)) for sae_id, layer in items]
            places = list(dict.fromkeys(places))
            there = {(each.sae_id, each.layer) for each in self._rooms.desk.state.attachments}
            if again_refused and (taken := [place for place in places if place in there]):
                raise _already_attached(*taken[0])
            wanted = [self._want(*place, loaded) for place in places if place not in there]
            attachments: list[Attachment] = []
            try:
                self._read_weights(wanted, loaded, attachments)
                with self._rooms.lock:
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
        record = self._rooms.record(sae_id)
        _usable(record).require(sae_id)
        detected, config = find_files(record)
        fit = fit_to(config, layer, loaded)
        fit.require(sae_id)
        loaded.backend.capabilities.steering.check_layer(layer)
        return _Wanted(record, layer, detected, config, fit.warnings)

    def _read_weights(self, wanted: Sequence[_Wanted], loaded: LoadedModel, into: list[Attachment]) -> None:
        """Read what is not in memory yet and append an attachment for each of ``wanted``."""
        dtype, device = attach_dtype(self._rooms.settings, loaded), loaded.backend.device
        held: dict[str, Sae] = {
            each.sae_id: each.sae for each in self._rooms.desk.state.attachments if each.sae.dtype == dtype
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
        now = {(each.sae_id, each.layer) for each in self._rooms.desk.state.attachments}
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
        rooms = self._rooms
        before = {each.sae_id for each in rooms.desk.state.attachments}
        new = sorted({each.sae_id for each in attachments} - before)
        was_locked = rooms.shelf.get(loaded.record.id).locked
        rooms.library.saes.set_statuses(sorted({each.sae_id for each in attachments}), SaeStatus.ATTACHED)
        try:
            if rooms.settings.LOCK_ON_ATTACH:
                rooms.lock_model(loaded.record.id)

            def install() -> None:
                rooms.desk.attach(attachments)
                rooms.hook(loaded)
                rooms.monitor.set_attachments(rooms.desk.state.attachments)

            rooms.on_model(loaded, install)
        except BaseException:
            self._take_back(new, unlock=rooms.settings.LOCK_ON_ATTACH and not was_locked and not before)
            raise
        for each in attachments:
            rooms.events.publish(SaeAttached(each.sae_id, each.layer, in_mb(each.memory_bytes)))
        rooms.events.publish(SaesChanged())

    def _take_back(self, sae_ids: Sequence[str], *, unlock: bool) -> None:
        try:
            self._rooms.library.saes.set_statuses(sae_ids, SaeStatus.CACHED)
            if unlock:
                self._rooms.unlock_models()
        except MillmError:
            log.warning("rows of SAEs that were not attached could not be taken back", exc_info=True)

    def _attached(
        self, places: Sequence[AttachmentKey], wanted: Sequence[_Wanted], loaded: LoadedModel
    ) -> AttachSetResult:
        attachments = self._rooms.desk.state.attachments
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

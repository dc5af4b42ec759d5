"""Taking SAEs away: one by one while the model stays, or all of them because it has gone."""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine.actions.saes.context import Rooms
from engine.actions.saes.views import DetachResult, held_bytes
from engine.counting import in_mb
from engine.errors import MillmError, SaeNotAttached
from engine.events import SaeDetached, SaesChanged
from engine.library.records import SaeStatus
from engine.models.registry import LoadedModel

log = logging.getLogger(__name__)

DETACH_WAIT_SECONDS = 30.0
"""How long a detach waits for requests that run with the SAE."""


class Detacher:
    """Detaches. Blocks while requests run with the SAE; not for the engine thread or a window's.

    ``on_detached`` is told, under the steering lock, of each SAE that was taken away while the model stayed.
    """

    def __init__(self, rooms: Rooms, on_detached: Callable[[str], None]) -> None:
        self._rooms = rooms
        self._on_detached = on_detached

    def detach(self, sae_id: str) -> DetachResult:
        """Take an SAE away from every layer it is on, once no request runs with it or 30 seconds have gone by.

        Requests that follow the live steering go on without it. Raises :class:`SaeNotFound` and
        :class:`SaeNotAttached`.
        """
        rooms = self._rooms
        rooms.record(sae_id)
        self._require_attached(sae_id)
        unused = rooms.scheduler.wait_unused(sae_id, DETACH_WAIT_SECONDS)
        if not unused:
            log.error("requests still run with the SAE %s after %g s; it is detached", sae_id, DETACH_WAIT_SECONDS)
        with rooms.lock:
            layers, size = self._require_attached(sae_id)
            loaded = rooms.resident()
            last = all(each.sae_id == sae_id for each in rooms.desk.state.attachments)
            rooms.library.saes.set_status(sae_id, SaeStatus.CACHED)
            try:
                if last and rooms.settings.LOCK_ON_ATTACH:
                    rooms.unlock_models()

                def remove() -> None:
                    rooms.desk.detach(sae_id)
                    rooms.monitor.set_attachments(rooms.desk.state.attachments)
                    rooms.hook(loaded)

                rooms.on_model(loaded, remove)
            except BaseException:
                self._put_back(sae_id, loaded)
                raise
            from engine.models.hardware.devices import release_cached_memory

            release_cached_memory(loaded.backend.device)
            rooms.events.publish(SaeDetached(sae_id))
            rooms.events.publish(SaesChanged())
            self._tell(sae_id)
        return DetachResult("detached", sae_id, in_mb(size), layers, unused)

    def _tell(self, sae_id: str) -> None:
        try:
            self._on_detached(sae_id)
        except MillmError:
            # The SAE is gone all the same; who steered through it is put right at the next start at the latest.
            log.warning("what steered through the SAE %s could not be put right", sae_id, exc_info=True)

    def release_all(self) -> None:
        """The model is gone, and with it every attachment: put rows, lock and monitor right. Raises nothing."""
        rooms = self._rooms
        with rooms.lock:
            rooms.monitor.set_attachments(rooms.desk.state.attachments)
            try:
                here = {each.sae_id for each in rooms.desk.state.attachments}
                rows = [each.id for each in rooms.library.saes.list() if each.status is SaeStatus.ATTACHED]
                gone = [sae_id for sae_id in rows if sae_id not in here]
                rooms.library.saes.set_statuses(gone, SaeStatus.CACHED)
                if gone and not here and rooms.settings.LOCK_ON_ATTACH:
                    rooms.unlock_models()
            except MillmError:
                # The library is closed when the program ends; the next start puts the rows right.
                log.warning("the rows of SAEs that left with the model could not be put right", exc_info=True)
                return
            for sae_id in gone:
                rooms.events.publish(SaeDetached(sae_id))
            if gone:
                rooms.events.publish(SaesChanged())

    def _require_attached(self, sae_id: str) -> tuple[tuple[int, ...], int]:
        """The layers an SAE is on and the bytes it holds. Raises :class:`SaeNotAttached`."""
        attachments = self._rooms.desk.state.attachments
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
        if not any(each.sae_id == sae_id for each in self._rooms.desk.state.attachments):
            return
        try:
            self._rooms.library.saes.set_status(sae_id, SaeStatus.ATTACHED)
            if self._rooms.settings.LOCK_ON_ATTACH:
                self._rooms.lock_model(loaded.record.id)
        except MillmError:
            log.warning("the row of the SAE %s, which is still attached, could not be put back", sae_id, exc_info=True)

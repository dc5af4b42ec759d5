"""SAEs from the hub: one weight file with the configurations beside it, described by the same sniffers as an import."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from engine.actions.downloading.transfer import CANCELLED, Cancellation, Transfer, Wait
from engine.actions.downloading.workers import DownloadState, Workers
from engine.errors import DownloadCancelled, InvalidParameter, MillmError, ModelBusy
from engine.events import EventBus, SaeDownloadComplete, SaeDownloadError, SaeDownloadProgress, SaesChanged
from engine.library.database import Library
from engine.library.errors import SaeAlreadyExists
from engine.library.records import SaeRecord, SaeSource, SaeStatus
from engine.models.hub.client import MAIN, HubClient, HubFile, Repository, check_repo_id
from engine.saes.errors import SaeFormatUnknown
from engine.saes.ids import id_from_hub
from engine.saes.path_facts import (
    gemma_2_from_path,
    gemma_3_from_path,
    l0_from_path,
    layer_from_path,
    width_from_path,
)

log = logging.getLogger(__name__)

DOWNLOADING = ".downloading"
"""Beside the SAEs' own folders; what lies there is gone on with."""

WEIGHT_ENDINGS = frozenset({".safetensors", ".npz", ".pt", ".pth", ".bin", ".ckpt"})
BESIDE = frozenset({"sparsity.safetensors"})
"""Files with tensors that are no SAE and add to what is known about one."""

MAX_CONFIG_BYTES = 16_000_000
MAX_FILE_PATH = 500
LEVELS_UP = 2
"""Folders above the weights whose configurations some sources read too."""

REPORT_EVERY_S = 0.25
END_WAIT_S = 20.0

StartStatus = Literal["downloading", "already_downloading", "cached", "attached"]
Adopt = Callable[[str, Path, str, Mapping[str, str]], SaeRecord]


@dataclass(frozen=True)
class SaeStart:
    """What became of asking for an SAE."""

    sae_id: str
    status: StartStatus
    message: str


@dataclass(frozen=True)
class HubSaeFile:
    """One weight file of a repository; layer and width as its path names them."""

    path: str
    size_bytes: int
    layer: int | None
    width: str | None


@dataclass(frozen=True)
class SaePreview:
    """The SAEs in a repository, by layer and then by path. ``model_id`` is the model its name or card points to."""

    repository_id: str
    revision: str
    model_id: str | None
    files: tuple[HubSaeFile, ...]
    total_files: int


class SaeDownloads:
    """Fetches SAEs. All methods may be called from any thread; those that ask the hub say so.

    ``adopt`` gives files that are whole their place and describes them: an SAE's id, their folder, the path of the
    weight file in it, and the SHA-256 of those whose it is known.
    """

    def __init__(
        self,
        library: Library,
        events: EventBus,
        hub: HubClient,
        root: Path,
        workers: Workers,
        adopt: Adopt,
        *,
        wait: Wait = Cancellation.wait,
    ) -> None:
        self._library = library
        self._events = events
        self._hub = hub
        self._growing = root / DOWNLOADING
        self._workers = workers
        self._adopt = adopt
        self.wait = wait
        """How to wait between attempts."""
        self._starting = threading.Lock()
        self._last_report: dict[str, float] = {}

    def preview(self, repository_id: str, revision: str = MAIN, *, token: str | None = None) -> SaePreview:
        """The weight files of a repository. Asks the hub; raises what it refuses with."""
        repository = self._repository(repository_id, revision, token)
        files = [
            HubSaeFile(file.path, file.size, layer_from_path(file.path), width_from_path(file.path))
            for file in _weights(repository)
        ]
        files.sort(key=lambda each: (each.layer is None, each.layer or 0, each.path))
        return SaePreview(repository_id, revision, _model_of(repository_id), tuple(files), total_files=len(files))

    def start(
        self, repository_id: str, *, revision: str = MAIN, file_path: str | None = None, token: str | None = None
    ) -> SaeStart:
        """Begin to fetch an SAE: ``file_path`` is its weight file or folder, None the only one there. Asks the hub.

        Raises :class:`SaeFormatUnknown` with the choices, :class:`InvalidParameter`, :class:`InsufficientDisk` and what
        the hub refuses with.
        """
        repository = self._repository(repository_id, revision, token)
        weights = _choose(repository, file_path)
        sae_id = id_from_hub(repository_id, revision=revision, file_path=_place_of(repository, weights))
        files = _with_configs(repository, weights)
        with self._starting:
            there = self._library.saes.get(sae_id)
            if there is not None and there.status is SaeStatus.DOWNLOADING:
                return SaeStart(sae_id, "already_downloading", f"{sae_id} is being downloaded already.")
            if there is not None and there.status is not SaeStatus.ERROR:
                status: StartStatus = "attached" if there.status is SaeStatus.ATTACHED else "cached"
                return SaeStart(sae_id, status, f"{sae_id} is in the library already.")
            if not self._workers.wait(_job_key(sae_id), END_WAIT_S):
                raise ModelBusy(
                    f"The last download of {sae_id} is still coming to its end.",
                    remedy="Try again in some seconds.",
                    retry_after=5,
                )
            self._refuse_taken(sae_id, there)
            self._transfer(repository, files, sae_id, None, Cancellation(), lambda *_: None).prepare()
            self._library.saes.add(
                SaeRecord(
                    id=sae_id,
                    name=sae_id,
                    source=SaeSource.HUGGINGFACE,
                    repository_id=repository_id,
                    revision=revision,
                    trained_layer=layer_from_path(weights.path),
                    width=width_from_path(weights.path),
                    average_l0=l0_from_path(weights.path),
                    file_size_bytes=sum(file.size for file in files),
                    status=SaeStatus.DOWNLOADING,
                ),
                replace_failed=True,
            )
            self._workers.start(
                _job_key(sae_id),
                lambda cancellation: self._work(sae_id, repository, weights, files, token, cancellation),
                sum(file.size for file in files),
            )
        self._events.publish(SaesChanged())
        return SaeStart(sae_id, "downloading", f"{sae_id} is being downloaded.")

    def state(self, sae_id: str) -> DownloadState | None:
        """How far that download is, None when none is under way."""
        return self._workers.state(_job_key(sae_id))

    def cancel(self, sae_id: str) -> bool:
        """End a download; False when none is under way. The row is in ``error`` when this returns."""
        if not self._workers.cancel(_job_key(sae_id)):
            return False
        self._fail(sae_id, DownloadCancelled(CANCELLED))
        return True

    def forget(self, sae_id: str) -> None:
        """The row is about to be removed: end its download and remove what came of it."""
        self.cancel(sae_id)
        if self._workers.wait(_job_key(sae_id), END_WAIT_S):
            shutil.rmtree(self._growing / sae_id, ignore_errors=True)

    def wait_ended(self, sae_id: str, timeout: float = END_WAIT_S) -> bool:
        """Until that download holds no file any more."""
        return self._workers.wait(_job_key(sae_id), timeout)

    def sweep(self) -> list[str]:
        """Remove what grew for rows that are not there. For the start of the program."""
        if not self._growing.is_dir():
            return []
        wanted = {each.id for each in self._library.saes.list() if each.status is SaeStatus.ERROR}
        removed = [entry.name for entry in sorted(self._growing.iterdir()) if entry.name not in wanted]
        for name in removed:
            shutil.rmtree(self._growing / name, ignore_errors=True)
        return removed

    # --- on the download's thread -----------------------------------------------------------------------------------

    def _work(
        self,
        sae_id: str,
        repository: Repository,
        weights: HubFile,
        files: list[HubFile],
        token: str | None,
        cancellation: Cancellation,
    ) -> None:
        def progress(here: int, total: int, speed: float | None) -> None:
            self._report(sae_id, DownloadState(here, total, speed))

        try:
            self._transfer(repository, files, sae_id, token, cancellation, progress).run()
            cancellation.check()
            digests = {file.path: file.sha256 for file in files if file.sha256}
            self._adopt(sae_id, self._growing / sae_id, weights.path, digests)
        except MillmError as error:
            if isinstance(error, DownloadCancelled) and not cancellation.by_user:
                log.info("the download of %s stops with the program", sae_id)
                return
            self._fail(sae_id, error)
        except Exception as error:
            log.exception("the download of %s failed", sae_id)
            self._fail(sae_id, MillmError(f"The download failed: {error}"))
        else:
            self._events.publish(SaeDownloadComplete(sae_id))
            self._events.publish(SaesChanged())
        finally:
            self._last_report.pop(sae_id, None)

    def _transfer(
        self,
        repository: Repository,
        files: list[HubFile],
        sae_id: str,
        token: str | None,
        cancellation: Cancellation,
        progress: Callable[[int, int, float | None], None],
    ) -> Transfer:
        return Transfer(
            self._hub,
            repository,
            files,
            self._growing / sae_id,
            progress=progress,
            cancellation=cancellation,
            token=token,
            wait=self.wait,
        )

    def _report(self, sae_id: str, state: DownloadState) -> None:
        self._workers.report(_job_key(sae_id), state)
        now = time.monotonic()
        done = state.downloaded_bytes >= state.total_bytes
        if not done and now - self._last_report.get(sae_id, -REPORT_EVERY_S) < REPORT_EVERY_S:
            return
        self._last_report[sae_id] = now
        self._events.publish(
            SaeDownloadProgress(sae_id, state.percent, state.downloaded_bytes, state.total_bytes, state.speed_bps)
        )

    def _fail(self, sae_id: str, error: MillmError) -> None:
        try:
            row = self._library.saes.get(sae_id)
            if row is None or row.status is not SaeStatus.DOWNLOADING:
                return
            message = error.message if isinstance(error, DownloadCancelled) else error.one_line()
            self._library.saes.set_status(sae_id, SaeStatus.ERROR, error_message=message)
        except MillmError:
            # Removed meanwhile, or the library is closed because the program ends.
            log.warning("how the download of %s ended could not be recorded", sae_id)
            return
        self._events.publish(SaeDownloadError(sae_id, error.code, message))
        self._events.publish(SaesChanged())

    def _refuse_taken(self, sae_id: str, there: SaeRecord | None) -> None:
        """A folder of that name that is no row's is a person's own; said before anything is fetched."""
        place = self._growing.parent / sae_id
        if there is None and place.exists():
            raise SaeAlreadyExists(
                f"There is a folder {sae_id} in {place.parent} already, and no SAE in the library that it belongs to.",
                param="repository_id",
                details={"existing_sae_id": sae_id, "path": str(place)},
                remedy="Move that folder away, or import the SAE in it.",
            )

    def _repository(self, repository_id: str, revision: str, token: str | None) -> Repository:
        check_repo_id(repository_id, "repository_id")
        try:
            return self._hub.repository(repository_id, revision, token=token)
        except MillmError as error:
            if error.param == "repo_id":
                error.param = "repository_id"
            raise


def _job_key(sae_id: str) -> str:
    return f"sae-{sae_id}"


def _weights(repository: Repository) -> list[HubFile]:
    return [
        file
        for file in repository.files
        if PurePosixPath(file.path).suffix.lower() in WEIGHT_ENDINGS and PurePosixPath(file.path).name not in BESIDE
    ]


def _choose(repository: Repository, file_path: str | None) -> HubFile:
    candidates = _weights(repository)
    if file_path is not None:
        wanted = file_path.strip("/")
        exact = next((file for file in candidates if file.path == wanted), None)
        if exact is not None:
            return exact
        candidates = [file for file in candidates if file.path.startswith(f"{wanted}/")]
        if not candidates:
            raise InvalidParameter(
                f"{repository.repo_id} has no weight file {file_path[:120]!r}.",
                param="file_path",
                remedy="Preview the repository to see its files.",
            )
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise SaeFormatUnknown(
            f"{repository.repo_id} holds no weight file of an SAE.",
            param="repository_id",
            details={"endings": sorted(WEIGHT_ENDINGS)},
            remedy="Check the repository's name.",
        )
    names = [file.path for file in candidates]
    raise SaeFormatUnknown(
        f"{repository.repo_id} holds {len(names)} SAEs: {', '.join(names[:5])}{' …' if len(names) > 5 else ''}",
        param="file_path",
        details={"choices": names[:100]},
        remedy="Name the one you want by file_path.",
    )


def _place_of(repository: Repository, weights: HubFile) -> str:
    """The path an id is made from: the weight file's, with its own name as a folder where several share theirs."""
    path = PurePosixPath(weights.path)
    alike = [file for file in _weights(repository) if PurePosixPath(file.path).parent == path.parent]
    return path.as_posix() if len(alike) == 1 else (path.parent / path.stem / path.name).as_posix()


def _with_configs(repository: Repository, weights: HubFile) -> list[HubFile]:
    """The weight file and what is read with it: JSON files beside it and up to two folders above."""
    path = PurePosixPath(weights.path)
    folders = [path.parent, *list(path.parent.parents)[:LEVELS_UP]]
    chosen = [weights]
    for file in repository.files:
        other = PurePosixPath(file.path)
        config = other.suffix.lower() == ".json" and file.size <= MAX_CONFIG_BYTES and other.parent in folders
        if config or (other.name in BESIDE and other.parent == path.parent):
            chosen.append(file)
    return chosen


def _model_of(repository_id: str) -> str | None:
    second = gemma_2_from_path(repository_id)
    return gemma_3_from_path(repository_id) or (second[0] if second is not None else None)

"""Models from the hub: started once everything that can be refused was asked, gone on with after a cut, described when
they are here.

A row is ``downloading`` until it is ``ready`` or in ``error``. A download that failed or was cancelled is gone on with
by asking for the same thing again: the row keeps its id, and what is on the disk already is not fetched again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.actions.downloading.transfer import CANCELLED, Cancellation, Progress, Transfer, Wait
from engine.actions.downloading.workers import DownloadState, Workers
from engine.actions.models.importing import facts_of_checkpoint, facts_of_gguf
from engine.actions.models.model_files import ModelFolder, folder_key
from engine.actions.written import Note
from engine.errors import DownloadCancelled, MillmError, ModelAlreadyExists, ModelBusy, ModelNotFound
from engine.events import (
    EventBus,
    ModelDownloadComplete,
    ModelDownloadError,
    ModelDownloadProgress,
    ModelsChanged,
)
from engine.library.database import Library
from engine.library.records import EngineKind, ModelRecord, ModelSource, ModelStatus
from engine.models.hub.client import MAIN, HubClient, HubFile, Repository, check_repo_id
from engine.models.hub.repository_files import checkpoint_files, choose_gguf, gguf_quants, has_checkpoint, tag_of
from engine.models.inspection.checkpoint import inspect_checkpoint
from engine.models.inspection.gguf_file import coarse_level, inspect_gguf
from engine.models.inspection.names import check_custom_name, default_name

log = logging.getLogger(__name__)

REPORT_EVERY_S = 0.25
END_WAIT_S = 20.0
"""Longest wait for a download that was told to end: a socket may hang until it times out."""


@dataclass(frozen=True)
class DownloadRequest:
    """What is asked for.

    Attributes:
        quantization: Level at which a checkpoint is to be held; None: as it is stored.
        custom_name: None: the repository's own name, with the GGUF's label or the level behind a colon.
        token: For gated repositories; never stored.
        gguf_files: Files of one GGUF; with ``gguf_label`` alone, all files of that quantisation.
    """

    repo_id: str
    revision: str = MAIN
    quantization: str | None = None
    custom_name: str | None = None
    token: str | None = None
    gguf_files: Sequence[str] | None = None
    gguf_label: str | None = None
    trust_remote_code: bool = False


@dataclass(frozen=True)
class _Plan:
    """What is to be fetched, and the row about it."""

    repository: Repository
    files: Sequence[HubFile]
    key: str
    new: ModelRecord


class ModelDownloads:
    """Fetches models. All methods may be called from any thread; those that ask the hub say so."""

    def __init__(
        self,
        library: Library,
        events: EventBus,
        hub: HubClient,
        folder: ModelFolder,
        workers: Workers,
        *,
        wait: Wait = Cancellation.wait,
    ) -> None:
        self._library = library
        self._events = events
        self._hub = hub
        self._folder = folder
        self._workers = workers
        self.wait = wait
        """How to wait between attempts."""
        self._starting = threading.Lock()
        self._last_report: dict[int, float] = {}

    def start(self, asked: DownloadRequest) -> ModelRecord:
        """Begin a download; the row, ``downloading``, or ``ready`` where the files are here already. Asks the hub.

        Raises :class:`ModelAlreadyExists` (``details['existing_model_id']``), :class:`ModelBusy`,
        :class:`InvalidParameter`, :class:`CheckpointInvalid`, :class:`InsufficientDisk` and what the hub refuses with.
        """
        check_repo_id(asked.repo_id)
        if asked.custom_name is not None:
            check_custom_name(asked.custom_name)
        repository = self._hub.repository(asked.repo_id, asked.revision, token=asked.token)
        with self._starting:
            plan = self._plan(asked, repository)
            row = self._row(plan)
            transfer_key = _job_key(row.id)
            self._workers.start(
                transfer_key, lambda cancellation: self._work(row, plan, asked.token, cancellation), _size(plan)
            )
        self._events.publish(ModelsChanged())
        return row

    def state(self, model_id: int) -> DownloadState | None:
        """How far the download of that model is, None when none is under way."""
        return self._workers.state(_job_key(model_id))

    def cancel(self, model_id: int) -> bool:
        """End a download; False when none is under way. The row is in ``error`` when this returns."""
        if not self._workers.cancel(_job_key(model_id)):
            return False
        self._fail(model_id, DownloadCancelled(CANCELLED))
        return True

    def wait_ended(self, model_id: int, timeout: float = END_WAIT_S) -> bool:
        """Until the download of that model holds no file any more."""
        return self._workers.wait(_job_key(model_id), timeout)

    # --- deciding ---------------------------------------------------------------------------------------------------

    def _plan(self, asked: DownloadRequest, repository: Repository) -> _Plan:
        wants_gguf = asked.gguf_files is not None or asked.gguf_label is not None
        if not wants_gguf and not has_checkpoint(repository) and asked.quantization is None:
            wants_gguf = len(gguf_quants(repository)) == 1
        label: str | None = None
        level: str | None = asked.quantization
        files: Sequence[HubFile]
        if wants_gguf:
            chosen, files = choose_gguf(repository, asked.gguf_files, asked.gguf_label)
            # Where the names do not say it, the header will: docs/decisions/0008.
            label = tag_of(chosen, files[0])
            engine, level = EngineKind.LLAMACPP, None if label is None else coarse_level(label)
            key = folder_key(asked.repo_id, repository.commit, chosen)
            name = asked.custom_name or default_name(repo_id=asked.repo_id, gguf_label=label)
        else:
            files = checkpoint_files(repository, with_code=asked.trust_remote_code)
            engine = EngineKind.TRANSFORMERS
            key = folder_key(asked.repo_id, repository.commit)
            own = default_name(repo_id=asked.repo_id)
            name = asked.custom_name or (own if level is None else f"{own}:{level}")
        here = {self._key_of(row) for row in self._library.models.list() if row.source is ModelSource.HUGGINGFACE}
        key = self._folder.free_key(key, {each for each in here if each is not None})
        place = self._folder.place(key)
        new = ModelRecord(
            name=name,
            source=ModelSource.HUGGINGFACE,
            engine=engine,
            local_path=str(place / files[0].path if engine is EngineKind.LLAMACPP else place),
            repo_id=asked.repo_id,
            quantization=level,
            gguf_label=label,
            revision=repository.commit,
            pipeline_tag=repository.pipeline_tag,
            trust_remote_code=asked.trust_remote_code and engine is EngineKind.TRANSFORMERS,
            status=ModelStatus.DOWNLOADING,
        )
        return _Plan(repository, files, key, new)

    def _row(self, plan: _Plan) -> ModelRecord:
        """The row to work on: a new one, or that of an attempt that came to nothing."""
        new = plan.new
        rows = [each for each in self._library.models.list() if each.source is ModelSource.HUGGINGFACE]
        found = next((each for each in rows if each.repo_id == new.repo_id and self._alike(each, new)), None)
        for other in rows:
            # Two rows may stand for the same files at two levels; whoever came first fetches them.
            shared = other is not found and other.local_path == new.local_path
            if shared and (other.status is ModelStatus.DOWNLOADING or self.state(other.id) is not None):
                raise ModelBusy(
                    f"The files of {new.repo_id} are being downloaded for {other.name!r}.",
                    details={"model_id": other.id},
                    remedy="Wait until that is done: they are fetched once.",
                )
        if found is not None:
            return self._again(found, plan)
        self._prepare(plan)
        # From here on a removal sees that somebody uses the files, or the work sees that they are gone.
        with self._folder.changes:
            return self._library.models.add(new)

    def _again(self, row: ModelRecord, plan: _Plan) -> ModelRecord:
        if row.status is not ModelStatus.ERROR or row.context_length is not None:
            what = "is being downloaded" if row.status is ModelStatus.DOWNLOADING else "is in the library"
            raise ModelAlreadyExists(
                f"{row.repo_id} {what} already, as {row.name!r}.",
                param="repo_id",
                details={"existing_model_id": row.id, "existing_name": row.name},
                remedy="Use that model, or remove it first.",
            )
        if not self.wait_ended(row.id):
            raise ModelBusy(
                f"The last download of {row.name!r} is still coming to its end.",
                remedy="Try again in some seconds.",
                retry_after=5,
            )
        self._prepare(plan)
        with self._folder.changes:
            old = self._key_of(row)
            going: Note = {}
            if row.local_path != plan.new.local_path and old is not None:
                # The repository has moved on: nothing of the older commit is of use, unless to a row at another level.
                rows = [each for each in self._library.models.list() if each.id != row.id and self._key_of(each) == old]
                if not rows:
                    self._folder.discard_staging(old)
                if not any(self._folder.used_by(each) for each in rows):
                    going = self._folder.mark_going(row)
            updated = self._library.models.update(
                row.id,
                name=plan.new.name,
                local_path=plan.new.local_path,
                revision=plan.new.revision,
                pipeline_tag=plan.new.pipeline_tag,
                trust_remote_code=plan.new.trust_remote_code,
                status=ModelStatus.DOWNLOADING,
                error_message=None,
            )
            if going:
                self._folder.take_away(row, going)
            return updated

    def _prepare(self, plan: _Plan) -> None:
        """Refuse what has no room on the disk before a row says it is being downloaded."""
        if not self._folder.place(plan.key).is_dir():
            self._transfer(plan, None, Cancellation(), lambda *_: None).prepare()

    def _alike(self, row: ModelRecord, new: ModelRecord) -> bool:
        """Whether both are the same model of their repository, whatever its commit."""
        if row.engine is not new.engine:
            return False
        if new.engine is EngineKind.LLAMACPP and new.gguf_label is None:
            # What it is called after is known only once its header is here.
            return self._inside(row.local_path) == self._inside(new.local_path)
        return (row.quantization, row.gguf_label) == (new.quantization, new.gguf_label)

    def _inside(self, local_path: str | None) -> tuple[str, ...]:
        """The path of a file in its own folder, in parts."""
        place = Path(local_path or "")
        return place.relative_to(self._folder.root).parts[1:] if place.is_relative_to(self._folder.root) else ()

    def _key_of(self, row: ModelRecord) -> str | None:
        return None if row.local_path is None else self._folder.key_of(Path(row.local_path))

    # --- on the download's thread -----------------------------------------------------------------------------------

    def _work(self, row: ModelRecord, plan: _Plan, token: str | None, cancellation: Cancellation) -> None:
        try:
            place = self._folder.place(plan.key)
            if not place.is_dir():

                def progress(here: int, total: int, speed: float | None) -> None:
                    self._report(row, DownloadState(here, total, speed))

                self._transfer(plan, token, cancellation, progress).run()
                cancellation.check()
                digests = {file.path: file.sha256 for file in plan.files if file.sha256}
                with self._folder.changes:
                    place = self._folder.put(plan.key, digests)
            facts = self._facts(plan, place)
            cancellation.check()
            self._library.models.update(row.id, status=ModelStatus.READY, error_message=None, **facts)
            self._folder.settle(plan.key)
        except MillmError as error:
            if isinstance(error, DownloadCancelled) and not cancellation.by_user:
                log.info("the download of %s stops with the program", row.name)
                return
            self._fail(row.id, error)
        except Exception as error:
            log.exception("the download of %s failed", row.name)
            self._fail(row.id, MillmError(f"The download failed: {error}"))
        else:
            self._events.publish(ModelDownloadComplete(row.id, row.name))
            self._events.publish(ModelsChanged())
        finally:
            self._last_report.pop(row.id, None)

    def _facts(self, plan: _Plan, place: Path) -> dict[str, object]:
        """What the files say, now that they are here. Raises for files that are whole and still no model for us."""
        if plan.new.engine is EngineKind.LLAMACPP:
            report = inspect_gguf(place / plan.files[0].path)
            label = plan.new.gguf_label or report.label
            return {**facts_of_gguf(report), "gguf_label": label, "quantization": coarse_level(label)}
        return {**facts_of_checkpoint(inspect_checkpoint(place)), "quantization": plan.new.quantization}

    def _transfer(self, plan: _Plan, token: str | None, cancellation: Cancellation, progress: Progress) -> Transfer:
        return Transfer(
            self._hub,
            plan.repository,
            plan.files,
            self._folder.staging(plan.key),
            progress=progress,
            cancellation=cancellation,
            token=token,
            wait=self.wait,
        )

    def _report(self, row: ModelRecord, state: DownloadState) -> None:
        self._workers.report(_job_key(row.id), state)
        now = time.monotonic()
        done = state.downloaded_bytes >= state.total_bytes
        if not done and now - self._last_report.get(row.id, -REPORT_EVERY_S) < REPORT_EVERY_S:
            return
        self._last_report[row.id] = now
        self._events.publish(
            ModelDownloadProgress(
                row.id, row.name, state.percent, state.downloaded_bytes, state.total_bytes, state.speed_bps
            )
        )

    def _fail(self, model_id: int, error: MillmError) -> None:
        """Record how a download ended; the first to say so is right."""
        try:
            row = self._library.models.get(model_id)
            if row is None or row.status is not ModelStatus.DOWNLOADING:
                return
            message = error.message if isinstance(error, DownloadCancelled) else error.one_line()
            self._library.models.set_status(model_id, ModelStatus.ERROR, error_message=message)
        except ModelNotFound:
            return  # removed meanwhile
        except MillmError:
            # The library is closed when the program ends; the row is put right at the next start.
            log.warning("how the download of model %d ended could not be recorded", model_id)
            return
        self._events.publish(ModelDownloadError(model_id, row.name, error.code, message))
        self._events.publish(ModelsChanged())


def _job_key(model_id: int) -> str:
    return f"model-{model_id}"


def _size(plan: _Plan) -> int:
    return sum(file.size for file in plan.files)

"""The model shelf: what there is, what is in memory and what it takes, and every way a model comes in or goes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil
from PySide6.QtCore import QTimer

from engine.errors import DownloadCancelled, ModelAlreadyExists, ModelLocked
from engine.events import (
    Event,
    ModelDownloadComplete,
    ModelDownloadError,
    ModelDownloadProgress,
    ModelLoadComplete,
    ModelLoadError,
    ModelLoadProgress,
    ModelsChanged,
    ModelUnloadComplete,
    SaeAttached,
    SaeDetached,
    SaesChanged,
)
from engine.public.downloads import DownloadRequest, FetchedPair, KnownPair, ModelPreview
from engine.public.library import EngineKind
from engine.public.models import (
    BLOCK,
    DiskUse,
    EngineState,
    LoadedModel,
    LoadEstimate,
    LocalModel,
    ModelView,
    UnusedGpu,
    gguf_engine,
    unused_gpu,
)
from ui.context.page_context import PageContext
from ui.kit import shelf_text as words
from ui.kit.basics import Button, Notice
from ui.kit.text import describe_error, megabytes
from ui.shelf.add_models import FILES, FOUND, AddModels
from ui.shelf.memory_card import MemoryCard
from ui.shelf.model_row import ModelShelfRow
from ui.shelf.shelf_page import ShelfPage

PULSE_MS = 2000
CANCELLED = "download_cancelled"
EMPTY = "Nothing is here yet. Add a model below."


class Copying:
    """A copy into the data folder that is under way: how far it is, and whether to go on. Asked between blocks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bytes = 0
        self.cancelled = False

    def check(self) -> None:
        """Count a block. Raises :class:`DownloadCancelled` once it shall end."""
        if self.cancelled:
            raise DownloadCancelled(f"The copy of {self.name} was cancelled.")
        self.bytes += BLOCK

    def in_words(self) -> str:
        """How far it is."""
        return f"Copying {self.name}: {words.size(self.bytes)} are here"


class ModelsPage(ShelfPage):
    """Joins the cards to the engine's models."""

    FOLLOWS = (
        ModelLoadProgress,
        ModelLoadComplete,
        ModelLoadError,
        ModelUnloadComplete,
        ModelDownloadProgress,
        ModelDownloadComplete,
        ModelDownloadError,
        ModelsChanged,
        SaesChanged,
        SaeAttached,
        SaeDetached,
    )

    def __init__(self, frame: PageContext) -> None:
        super().__init__(
            "Models",
            "One model is in memory at a time; the others wait on the disk.",
            empty=EMPTY,
        )
        self._engine = frame.engine
        self._bridge = frame.bridge
        self._frame = frame
        self.rows: dict[int, ModelShelfRow] = {}
        self.views: list[ModelView] = []
        self.gguf = gguf_engine()
        self.missing = Notice(closable=False)
        self.idle_gpu = Notice(closable=False)
        self.memory = MemoryCard()
        self.add = AddModels()
        self._copying: Copying | None = None
        self._reading = self._again = False
        self._lay_out(self.add, self.memory, self.idle_gpu, self.missing)
        self.add.preview_wanted.connect(self.preview)
        self.add.search_wanted.connect(self.search)
        self.add.pairs.fetch.connect(self.fetch_pair)
        self.add.download.connect(self.download)
        self.add.look.connect(self.look_around)
        self.add.take.connect(self.import_path)
        self.add.cancel_copy.connect(self._cancel_copy)
        self.add.pick_folder.connect(lambda: self._pick_folder("Choose a folder with a checkpoint", self.look_at))
        self.add.pick_file.connect(lambda: self._pick_file("Choose a GGUF file", ["GGUF files (*.gguf)"], self.look_at))
        self.add.tabs.idClicked.connect(self._on_tab)
        self._pulse = QTimer(self)
        self._pulse.setInterval(PULSE_MS)
        self._pulse.timeout.connect(self._on_pulse)
        self._pulse.start()
        self._bridge.run_in_background(unused_gpu, self.show_unused_gpu, self._on_error, owner=self)
        self.refresh()

    def show_unused_gpu(self, found: UnusedGpu | None) -> None:
        """Say that a card of this machine lies idle, and the way to the build that can use it."""
        if found is None:
            self.idle_gpu.hide()
        else:
            self.idle_gpu.show_words(found.in_words(), "warn")

    def on_event(self, event: Event) -> None:
        """Follow what happens to models, whoever began it."""
        match event:
            case ModelLoadProgress():
                row = self.rows.get(event.model_id)
                if row is None or row.progress.isHidden():
                    self.refresh()
                else:
                    row.show_progress(event.progress, event.stage)
            case ModelDownloadProgress():
                if (row := self.rows.get(event.model_id)) is not None:
                    row.show_transfer(event.downloaded_bytes, event.total_bytes, event.speed_bps)
            case ModelDownloadComplete():
                self._say(f"{event.model_name} is here.", self._load_button(event.model_id))
                self.refresh()
            case ModelDownloadError() if event.code != CANCELLED:
                self.notice.show_words(event.message)
                self.refresh()
            case ModelLoadError() if event.code == ModelLocked.code:
                self.notice.show_words(event.message)
                self.refresh()
            case (
                ModelsChanged() | ModelLoadComplete() | ModelUnloadComplete() | ModelLoadError() | ModelDownloadError()
            ):
                self.refresh()
            case SaesChanged() | SaeAttached() | SaeDetached():
                self._show_memory()
                self._read_disk()

    # --- showing ----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the shelf anew; calls that come meanwhile are answered by one more reading."""
        if self._reading:
            self._again = True
            return
        self._reading = True
        self._bridge.run_in_background(
            lambda: (self._engine.models.list(), gguf_engine()), self._on_views, self._on_list_error, owner=self
        )

    def _on_views(self, found: tuple[list[ModelView], EngineState]) -> None:
        self._reading = False
        views, self.gguf = found
        self.show_views(views)
        self._read_disk()
        if self._again:
            self._again = False
            self.refresh()

    def _on_list_error(self, error: Exception) -> None:
        self._reading = self._again = False
        self._on_error(error)

    def show_views(self, views: Sequence[ModelView]) -> None:
        """Show these: the loaded one first, what is under way next, then by name."""
        order = {"loaded": 0, "loading": 0, "downloading": 1}
        self.views = sorted(views, key=lambda each: (order.get(each.status, 2), each.name.casefold(), each.id))
        by_id = {view.id: view for view in self.views}
        self._arrange(self.rows, by_id, lambda number: self._make_row(by_id[number]))
        loading = self._engine.shelf.loading
        wants_gguf = False
        for view in self.views:
            gguf = view.engine == EngineKind.LLAMACPP.value
            wants_gguf = wants_gguf or gguf
            lacking = self.gguf.problem if gguf else None
            self.rows[view.id].show_view(view, loading, lacking=lacking, busy=loading is not None)
        if self.gguf.usable:
            self.missing.hide()
        else:
            self.missing.show_words(self.gguf.in_words(), "warn" if wants_gguf else "info")
        self._show_memory()

    def _make_row(self, view: ModelView) -> ModelShelfRow:
        row = ModelShelfRow(view)
        row.load.connect(self.load)
        row.unload.connect(self._unload)
        row.cancel_load.connect(lambda _id: self._run(self._engine.models.cancel_load))
        row.pause.connect(lambda number: self._run(lambda: self._engine.models.cancel(number)))
        row.resume.connect(self.resume)
        row.lock.connect(self._lock)
        row.asked.connect(self.ask_memory)
        row.delete.connect(self.ask_delete)
        row.locate.connect(self.ask_place)
        return row

    def _on_pulse(self) -> None:
        self._show_memory()
        if self._copying is not None:
            self.add.show_copying(self._copying.in_words())
        # Events come with bytes; a download that stands still sends none.
        for number, row in self.rows.items():
            if row.view.status == "downloading" and (state := self._engine.models.downloads.state(number)) is not None:
                row.show_transfer(state.downloaded_bytes, state.total_bytes, state.speed_bps)

    def _show_memory(self) -> None:
        if not self.isVisible():
            return
        resident = self._engine.shelf.resident
        saes = self._engine.attachments.all()
        rows = [
            ("Model", words.size(resident.info.memory_bytes) if resident is not None else "none"),
            (
                f"SAEs ({saes.count})" if saes.count else "SAEs",
                megabytes(saes.total_memory_usage_mb) if saes.count else "none",
            ),
            ("The program in all", words.size(psutil.Process().memory_info().rss)),
            ("Free on this computer", words.size(psutil.virtual_memory().available)),
        ]
        self.memory.now.show_rows(rows)

    def _read_disk(self) -> None:
        self._bridge.run_in_background(self._engine.models.disk_use, self._on_disk, self._on_error, owner=self)

    def _on_disk(self, use: DiskUse) -> None:
        self.memory.disk.show_rows(
            [
                ("Models kept here", words.size(use.models_bytes)),
                ("SAEs kept here", words.size(use.saes_bytes)),
                ("Files elsewhere", words.size(use.elsewhere_bytes)),
                ("Free on the disk", words.size(use.free_bytes)),
            ]
        )

    def ask_memory(self, model_id: int) -> None:
        """Say what a load of that model would take."""
        view = next((each for each in self.views if each.id == model_id), None)
        if view is None:
            return
        models, name = self._engine.models, view.name
        self.memory.show_asking(name)

        def done(found: LoadEstimate) -> None:
            if self.memory.asked_name.text() == name:
                self.memory.show_estimate(words.estimate_rows(found), fits=found.fits)

        self._bridge.run_in_background(
            lambda: models.estimate(model_id),
            done,
            lambda error: self.memory.show_problem(describe_error(error)),
            owner=self,
        )

    # --- memory in and out ------------------------------------------------------------------------------------------

    def load(self, model_id: int) -> None:
        """Load a model; where that takes SAEs away, once the person has agreed. Progress comes by itself."""
        if asked := words.detaching(self._engine, model_id):
            self._ask(asked, "Load it", lambda: self._load_now(model_id))
        else:
            self._load_now(model_id)

    def _load_now(self, model_id: int) -> None:
        self.notice.hide()

        def started(future: Future[LoadedModel]) -> None:
            self.refresh()
            self._bridge.when_done(future, None, self._on_load_error, owner=self)

        models = self._engine.models
        self._bridge.run_once(
            ("load", model_id), lambda: models.begin_load(model_id), started, self._on_error, owner=self
        )

    def _on_load_error(self, error: Exception) -> None:
        # What is wrong with the model stands in its row; only what is not about it is said over the shelf.
        if isinstance(error, ModelLocked):
            self.notice.show_words(describe_error(error))
        self.refresh()

    def _unload(self, model_id: int) -> None:
        self.rows[model_id].unload_button.setEnabled(False)

        def done(_view: object = None) -> None:
            if (row := self.rows.get(model_id)) is not None:
                row.unload_button.setEnabled(True)
            self.refresh()

        def failed(error: Exception) -> None:
            done()
            self._on_error(error)

        self._bridge.run_once(
            ("unload", model_id), lambda: self._engine.models.unload(model_id), done, failed, owner=self
        )

    def _lock(self, model_id: int, locked: bool) -> None:
        models = self._engine.models
        self._run(lambda: models.lock(model_id) if locked else models.unlock(model_id))

    # --- away -------------------------------------------------------------------------------------------------------

    def ask_delete(self, model_id: int) -> None:
        """Ask before a model is removed, saying what goes and what stays."""
        view = next((each for each in self.views if each.id == model_id), None)
        if view is None:
            return
        verb = (
            "Cancel the download" if view.status == "downloading" else "Delete it" if view.disk_bytes else "Remove it"
        )
        asked = (
            f"Cancel the download of {view.name}? What has come so far is deleted. To go on later, pause it instead."
            if view.status == "downloading"
            else words.deletion(view)
        )
        self._ask(asked, verb, lambda: self._delete(model_id, view.name))

    def _delete(self, model_id: int, name: str) -> None:
        def done(freed: int) -> None:
            room = f" {words.size(freed)} are free again." if freed else ""
            self._say(f"{name} is gone from the shelf.{room}")
            self.refresh()

        self._bridge.run_once(
            ("delete model", model_id), lambda: self._engine.models.delete(model_id), done, self._on_error, owner=self
        )

    # --- files that were moved ----------------------------------------------------------------------------------------

    def ask_place(self, model_id: int) -> None:
        """Have the file or folder chosen where a model's files are now."""
        view = next((each for each in self.views if each.id == model_id), None)
        if view is None:
            return

        def chosen(path: str) -> None:
            self.locate(model_id, path)

        if view.engine == EngineKind.LLAMACPP.value:
            self._pick_file(f"Choose the file of {view.name}", ["GGUF files (*.gguf)"], chosen)
        else:
            self._pick_folder(f"Choose the folder of {view.name}", chosen)

    def locate(self, model_id: int, path: str) -> None:
        """The files of that model are at ``path`` now."""
        self._say(f"Looking at {path}…")

        def done(view: ModelView) -> None:
            self._say(f"{view.name} is found again.", self._load_button(view.id))
            self.refresh()

        models = self._engine.models
        self._bridge.run_once(
            ("locate", model_id), lambda: models.locate(model_id, Path(path)), done, self._on_coming_in, owner=self
        )

    # --- coming in --------------------------------------------------------------------------------------------------

    def search(self, words: str) -> None:
        """Search the hub."""
        self.add.show_looking()
        self._bridge.run_in_background(
            lambda: self._engine.hub.search(words, kind="models"),
            self.add.show_search,
            lambda error: self.add.show_hub_error(describe_error(error)),
            owner=self,
        )

    def fetch_pair(self, pair: KnownPair) -> None:
        """Begin to fetch a model and the SAE that belongs to it."""
        self.add.notice.hide()
        self.add.pairs.setEnabled(False)

        def ended() -> None:
            self.add.pairs.setEnabled(True)
            self.refresh()

        def begun(found: FetchedPair) -> None:
            model = "is here or on its way already" if found.model is None else "is being downloaded"
            self._say(f"{pair.model_repo} {model}; its SAE: {found.sae.message}")
            ended()

        def failed(error: Exception) -> None:
            self.add.show_hub_error(describe_error(error))
            ended()

        self._bridge.run_once(
            ("fetch pair", pair.key), lambda: self._engine.hub.fetch_pair(pair.key), begun, failed, owner=self
        )

    def preview(self, repo_id: str, revision: str) -> None:
        """Ask the hub what a repository holds."""
        self.add.show_looking()

        def task() -> ModelPreview:
            return self._engine.models.preview(repo_id, revision)

        self._bridge.run_once(
            ("preview model", repo_id, revision),
            task,
            self.add.show_preview,
            lambda error: self.add.show_hub_error(describe_error(error)),
            owner=self,
        )

    def download(self, asked: DownloadRequest) -> None:
        """Begin a download."""
        self.add.notice.hide()

        def begun(view: ModelView) -> None:
            self._say(f"{view.name} is being downloaded; it is on the shelf above.")
            self.refresh()

        self._bridge.run_once(
            ("download model", asked),
            lambda: self._engine.models.download(asked),
            begun,
            self._on_coming_in,
            owner=self,
        )

    def resume(self, model_id: int) -> None:
        """Go on with a download that stopped."""
        view = next((each for each in self.views if each.id == model_id), None)
        if view is None or view.repo_id is None:
            return
        gguf = view.engine == EngineKind.LLAMACPP.value
        asked = DownloadRequest(
            view.repo_id,
            view.revision or "main",
            quantization=None if gguf else view.quantization,
            custom_name=view.name,
            gguf_label=view.gguf_label if gguf else None,
            trust_remote_code=view.trust_remote_code,
        )
        self.notice.hide()
        self._bridge.run_once(
            ("download model", asked),
            lambda: self._engine.models.download(asked),
            lambda _view: self.refresh(),
            self._on_coming_in,
            owner=self,
        )

    def look_around(self) -> None:
        """Look for models that other programs keep."""
        self.add.show_looking_around()
        self._bridge.run_once(
            "look around", self._engine.models.find_on_disk, self.add.show_found, self._on_coming_in, owner=self
        )

    def look_at(self, path: str) -> None:
        """Say what lies at ``path``, before it is put on the shelf."""
        self._say(f"Looking at {path}…")
        self.add.show_local(None)

        def done(found: LocalModel) -> None:
            self.notice.hide()
            self.add.show_local(found)
            self.add.show_tab(FILES)

        self._bridge.run_in_background(
            lambda: self._engine.models.look_at(Path(path)), done, self._on_coming_in, owner=self
        )

    def import_path(self, path: str, copy: bool = False) -> None:
        """Put a checkpoint folder or a GGUF file on the shelf: where it lies, or as a copy in the data folder."""
        if copy and self._copying is not None:
            self.notice.show_words("A copy is under way; cancel it, or wait until it is done.", "warn")
            return
        copying = Copying(Path(path).name)
        if copy:
            self._copying = copying
            self.add.show_copying(copying.in_words())
        else:
            self._say(f"Looking at {path}…")

        def done(view: ModelView) -> None:
            self._say(f"{view.name} is on the shelf.", self._load_button(view.id))
            self.add.show_local(None)
            self.refresh()
            if self.add.found:
                self.look_around()

        def ended(then: Callable[[Any], None]) -> Callable[[Any], None]:
            def and_then(outcome: Any) -> None:
                if self._copying is copying:
                    self._copying = None
                    self.add.show_copying(None)
                then(outcome)

            return and_then

        self._bridge.run_once(
            ("import model", path, copy),
            lambda: self._engine.models.import_local(Path(path), copy=copy, check=copying.check),
            ended(done),
            ended(self._on_coming_in),
            owner=self,
        )

    def _cancel_copy(self) -> None:
        if self._copying is not None:
            self._copying.cancelled = True

    def _on_tab(self, place: int) -> None:
        if place == FOUND and not self.add.found:
            self.look_around()

    def arrive(self, *, add: bool = False, files: Sequence[Path] = (), model: int | None = None) -> None:
        """Another page may lead to the ways a model comes in, or to the row of a ``model``; ``files`` were dropped on
        the window.
        """
        self._show_memory()
        if files:
            # What comes of them is told at the top, which may have been scrolled away.
            self.verticalScrollBar().setValue(0)
        if model in self.rows:
            self.ensureWidgetVisible(self.rows[model])
        for path in files:
            self.import_path(str(path))
        if add:
            self.add.show_tab(FILES)
            self.ensureWidgetVisible(self.add)

    def prepare_to_close(self) -> None:
        """What is being copied is not wanted any more."""
        self._cancel_copy()

    # --- messages ---------------------------------------------------------------------------------------------------

    def _load_button(self, model_id: int) -> Button:
        return Button("Load it", on_click=lambda: self.load(model_id))

    def _run(self, task: Callable[[], Any], key: Hashable | None = None) -> None:
        """Carry out ``task``; one with a key is not begun while it is under way."""
        self._bridge.run_once(
            object() if key is None else key, task, lambda _done: self.refresh(), self._on_error, owner=self
        )

    def _on_coming_in(self, error: Exception) -> None:
        expected = isinstance(error, ModelAlreadyExists | DownloadCancelled)
        tone = "info" if expected else "bad"
        self.notice.show_words(describe_error(error), tone)
        self.ensureWidgetVisible(self.notice)

    def _on_error(self, error: Exception) -> None:
        self.notice.show_words(describe_error(error))
        self.refresh_rows()

    def refresh_rows(self) -> None:
        """Show the rows as the shelf stands, without reading it."""
        self.show_views(self.views)

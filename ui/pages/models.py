"""The model shelf: what there is, what is in memory and what it takes, and every way a model comes in or goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil
from PySide6.QtCore import QTimer
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFileDialog, QWidget

from engine.actions.downloading.models import DownloadRequest
from engine.actions.downloading.preview import ModelPreview
from engine.actions.models import DiskUse, ModelView
from engine.errors import LoadCancelled, ModelAlreadyExists
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
from engine.library.records import EngineKind
from engine.models.llamacpp.availability import REMEDY as GGUF_REMEDY
from engine.models.llamacpp.availability import is_installed
from engine.models.shelf import LoadedModel
from ui import shelf_words as words
from ui import theme
from ui.frame import Frame
from ui.widgets.add_models import FILES, FOUND, AddModels
from ui.widgets.basics import Button, Card, Notice, column, label
from ui.widgets.file_door import FileDoor
from ui.widgets.memory_card import MemoryCard
from ui.widgets.model_row import ModelRow
from ui.widgets.scroll_page import ScrollPage
from ui.words import describe_error

TWO_COLUMNS = 900
PULSE_MS = 2000
CANCELLED = "download_cancelled"
DROP_WORDS = "Drop a checkpoint folder or a GGUF file to put it on the shelf"


def may_be_model(path: Path) -> bool:
    """Whether a dropped path is worth looking at: a folder, or a GGUF file."""
    return path.is_dir() or path.suffix.lower() == ".gguf"


class ModelsPage(ScrollPage):
    """Joins the cards to the engine's models."""

    def __init__(self, frame: Frame) -> None:
        super().__init__("Models", "One model is in memory at a time; the others wait on the disk.")
        self._engine = frame.engine
        self._bridge = frame.bridge
        self._frame = frame
        self.rows: dict[int, ModelRow] = {}
        self.views: list[ModelView] = []
        self.gguf = is_installed()
        self.notice = Notice()
        self.shelf = Card("On the shelf")
        self.empty = label("Nothing is here yet. Add a model below.", "muted", wrap=True)
        self.missing = Notice(closable=False)
        self.memory = MemoryCard()
        self.add = AddModels()
        self.dialog: QFileDialog | None = None
        self.door = FileDoor(self, DROP_WORDS, may_be_model)
        self._list = column(spacing=2)
        self._reading = self._again = False
        self._build()
        self.door.dropped.connect(self._on_dropped)
        self.add.preview_wanted.connect(self.preview)
        self.add.download.connect(self.download)
        self.add.look.connect(self.look_around)
        self.add.take.connect(self.import_path)
        self.add.pick_folder.connect(lambda: self._pick(folder=True))
        self.add.pick_file.connect(lambda: self._pick(folder=False))
        self.add.tabs.idClicked.connect(self._on_tab)
        self._pulse = QTimer(self)
        self._pulse.setInterval(PULSE_MS)
        self._pulse.timeout.connect(self._on_pulse)
        self._pulse.start()
        self.refresh()

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
            case ModelLoadError() if event.code != LoadCancelled.code:
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
        self._bridge.run_in_background(self._engine.models.list, self._on_views, self._on_list_error, owner=self)

    def _on_views(self, views: list[ModelView]) -> None:
        self._reading = False
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
        kept = {view.id for view in views}
        for gone in [number for number in self.rows if number not in kept]:
            row = self.rows.pop(gone)
            self._list.removeWidget(row)
            row.hide()
            row.deleteLater()
        loading = self._engine.shelf.loading
        for place, view in enumerate(self.views):
            row = self.rows.get(view.id) or self._make_row(view)
            if self._list.indexOf(row) != place:
                self._list.removeWidget(row)
                self._list.insertWidget(place, row)
            runnable = self.gguf or view.engine != EngineKind.LLAMACPP.value
            row.show_view(view, loading, runnable=runnable, busy=loading is not None)
        self.empty.setVisible(not views)
        lacking = not self.gguf and any(view.engine == EngineKind.LLAMACPP.value for view in views)
        if lacking:
            self.missing.show_words(f"GGUF files are run by llama.cpp, which is not installed. {GGUF_REMEDY}", "warn")
        else:
            self.missing.hide()
        self._show_memory()

    def _make_row(self, view: ModelView) -> ModelRow:
        row = self.rows[view.id] = ModelRow(view)
        self._list.addWidget(row)
        row.load.connect(self.load)
        row.unload.connect(self._unload)
        row.cancel_load.connect(lambda _id: self._run(self._engine.loader.cancel))
        row.pause.connect(lambda number: self._run(lambda: self._engine.models.cancel(number)))
        row.resume.connect(self.resume)
        row.lock.connect(self._lock)
        row.asked.connect(self.ask_memory)
        row.delete.connect(self.ask_delete)
        return row

    def _on_pulse(self) -> None:
        self._show_memory()
        # Events come with bytes; a download that stands still sends none.
        for number, row in self.rows.items():
            if row.view.status == "downloading" and (state := self._engine.models.downloads.state(number)) is not None:
                row.show_transfer(state.downloaded_bytes, state.total_bytes, state.speed_bps)

    def _show_memory(self) -> None:
        if not self.isVisible():
            return
        resident = self._engine.shelf.resident
        saes = self._engine.saes.attachments_view()
        rows = [
            ("Model", words.size(resident.info.memory_bytes) if resident is not None else "none"),
            (
                f"SAEs ({saes.count})" if saes.count else "SAEs",
                words.size(saes.total_memory_usage_mb * 2**20) if saes.count else "none",
            ),
            ("The program in all", words.size(psutil.Process().memory_info().rss)),
            ("Free on this computer", words.size(psutil.virtual_memory().available)),
        ]
        self.memory.now.show_rows(rows)

    def _read_disk(self) -> None:
        self._bridge.run_in_background(self._engine.models.disk_use, self._on_disk, self._on_error, owner=self)

    def _on_disk(self, use: DiskUse) -> None:
        models = sum(each.bytes for each in use.items if each.kind == "model" and each.ours)
        saes = sum(each.bytes for each in use.items if each.kind == "sae" and each.ours)
        elsewhere = sum(each.bytes for each in use.items if not each.ours)
        self.memory.disk.show_rows(
            [
                ("Models kept here", words.size(models)),
                ("SAEs kept here", words.size(saes)),
                ("Files elsewhere", words.size(elsewhere)),
                ("Free on the disk", words.size(use.free_bytes)),
            ]
        )

    def ask_memory(self, model_id: int) -> None:
        """Say what a load of that model would take."""
        record = self._engine.shelf.get(model_id)
        settings, resident = self._engine.settings, self._engine.shelf.resident
        freed = resident.info.memory_bytes if resident is not None else 0
        self.memory.show_asking(record.name)

        def task() -> tuple[list[tuple[str, str]], bool]:
            from engine.models.estimate import estimate

            found = estimate(record, settings, freed=freed)
            return words.estimate_rows(found), found.fits

        def done(outcome: tuple[list[tuple[str, str]], bool]) -> None:
            if self.memory.asked_name.text() == record.name:
                self.memory.show_estimate(outcome[0], fits=outcome[1])

        self._bridge.run_in_background(
            task, done, lambda error: self.memory.show_problem(describe_error(error)), owner=self
        )

    # --- memory in and out ------------------------------------------------------------------------------------------

    def load(self, model_id: int) -> None:
        """Load a model; progress comes by itself."""
        self.notice.hide()

        def started(future: Future[LoadedModel]) -> None:
            self.refresh()
            self._bridge.when_done(future, None, self._on_load_error, owner=self)

        loader = self._engine.loader
        self._bridge.run_in_background(lambda: loader.load(model_id), started, self._on_error, owner=self)

    def _on_load_error(self, error: Exception) -> None:
        if not isinstance(error, LoadCancelled):
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

        self._bridge.run_in_background(lambda: self._engine.models.unload(model_id), done, failed, owner=self)

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
        self.notice.show_words(
            asked,
            "warn",
            Button(verb, "primary", on_click=lambda: self._delete(model_id, view.name)),
            Button("Keep it", on_click=self.notice.hide),
        )
        self.ensureWidgetVisible(self.notice)

    def _delete(self, model_id: int, name: str) -> None:
        self.notice.hide()

        def done(freed: int) -> None:
            room = f" {words.size(freed)} are free again." if freed else ""
            self._say(f"{name} is gone from the shelf.{room}")
            self.refresh()

        self._bridge.run_in_background(lambda: self._engine.models.delete(model_id), done, self._on_error, owner=self)

    # --- coming in --------------------------------------------------------------------------------------------------

    def preview(self, repo_id: str, revision: str) -> None:
        """Ask the hub what a repository holds."""
        self.add.show_looking()

        def task() -> ModelPreview:
            return self._engine.models.preview(repo_id, revision)

        self._bridge.run_in_background(
            task, self.add.show_preview, lambda error: self.add.show_hub_error(describe_error(error)), owner=self
        )

    def download(self, asked: DownloadRequest) -> None:
        """Begin a download."""
        self.add.notice.hide()

        def begun(view: ModelView) -> None:
            self._say(f"{view.name} is being downloaded; it is on the shelf above.")
            self.refresh()

        self._bridge.run_in_background(
            lambda: self._engine.models.download(asked), begun, self._on_coming_in, owner=self
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
        self._run(lambda: self._engine.models.download(asked))

    def look_around(self) -> None:
        """Look for models that other programs keep."""
        self.add.show_looking_around()
        self._bridge.run_in_background(
            self._engine.models.find_on_disk, self.add.show_found, self._on_coming_in, owner=self
        )

    def import_path(self, path: str) -> None:
        """Put a checkpoint folder or a GGUF file on the shelf, by reference."""
        self.notice.show_words(f"Looking at {path}…", "info")

        def done(view: ModelView) -> None:
            self._say(f"{view.name} is on the shelf.", self._load_button(view.id))
            self.refresh()
            if self.add.found:
                self.look_around()

        self._bridge.run_in_background(
            lambda: self._engine.models.import_local(Path(path)), done, self._on_coming_in, owner=self
        )

    def _on_dropped(self, paths: list[Path]) -> None:
        for path in paths:
            self.import_path(str(path))

    def _on_tab(self, place: int) -> None:
        if place == FOUND and not self.add.found:
            self.look_around()

    def _pick(self, *, folder: bool) -> None:
        dialog = QFileDialog(self, "Choose a folder with a checkpoint" if folder else "Choose a GGUF file")
        if folder:
            dialog.setFileMode(QFileDialog.FileMode.Directory)
            dialog.setOption(QFileDialog.Option.ShowDirsOnly, True)
        else:
            dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
            dialog.setNameFilters(["GGUF files (*.gguf)", "All files (*)"])
        dialog.fileSelected.connect(self.import_path)
        dialog.finished.connect(dialog.deleteLater)
        self.dialog = dialog
        dialog.open()

    def arrive(self, *, add: bool = False) -> None:
        """Another page may lead to the ways a model comes in."""
        self._show_memory()
        if add:
            self.add.show_tab(FILES)
            self.ensureWidgetVisible(self.add)

    # --- messages ---------------------------------------------------------------------------------------------------

    def _say(self, said: str, *actions: QWidget) -> None:
        self.notice.show_words(said, "info", *actions)

    def _load_button(self, model_id: int) -> Button:
        return Button("Load it", on_click=lambda: self.load(model_id))

    def _run(self, task: Callable[[], Any]) -> None:
        self._bridge.run_in_background(task, lambda _done: self.refresh(), self._on_error, owner=self)

    def _on_coming_in(self, error: Exception) -> None:
        tone = "info" if isinstance(error, ModelAlreadyExists) else "bad"
        self.notice.show_words(describe_error(error), tone)
        self.ensureWidgetVisible(self.notice)

    def _on_error(self, error: Exception) -> None:
        self.notice.show_words(describe_error(error))
        self.refresh_rows()

    def refresh_rows(self) -> None:
        """Show the rows as the shelf stands, without reading it."""
        self.show_views(self.views)

    # --- layout -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        self.shelf.body.addWidget(self.missing)
        self.shelf.body.addWidget(self.empty)
        self.shelf.body.addLayout(self._list)
        self.shelf.body.addStretch(1)
        self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._columns.setSpacing(theme.L)
        left, right = column(spacing=theme.L), column(spacing=0)
        left.addWidget(self.shelf)
        left.addWidget(self.add)
        left.addStretch(1)
        right.addWidget(self.memory)
        right.addStretch(1)
        self._columns.addLayout(left, 5)
        self._columns.addLayout(right, 2)
        self.inside.addWidget(self.notice)
        self.inside.addLayout(self._columns)
        self.inside.addStretch(1)
        self.empty.hide()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Side by side where there is room, one under the other where there is not."""
        super().resizeEvent(event)
        wide = self.width() >= TWO_COLUMNS
        self._columns.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)

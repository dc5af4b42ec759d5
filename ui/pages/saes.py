"""The SAE shelf: what there is and how good it is, what is attached, sets, and the ways SAEs come in and go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from PySide6.QtCore import QTimer
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFileDialog

from engine.actions.downloading.saes import SaeStart
from engine.actions.saes.views import AttachResult, AttachSetResult, Compatibility, DetachResult, LabelsResult
from engine.events import (
    Event,
    ModelLoadComplete,
    ModelUnloadComplete,
    SaeAttached,
    SaeDetached,
    SaeDownloadComplete,
    SaeDownloadError,
    SaeDownloadProgress,
    SaesChanged,
)
from engine.library.records import AttachSetRecord, SaeRecord, SaeStatus
from ui import shelf_words as words
from ui import theme
from ui.frame import Frame
from ui.pages.saes_shelf import Shelf, file_of, may_be_sae, read_shelf
from ui.widgets.add_saes import AddSaes
from ui.widgets.attach_sets import AttachSets
from ui.widgets.basics import Button, Card, Notice, column, label
from ui.widgets.file_door import FileDoor
from ui.widgets.sae_row import SaeLine
from ui.widgets.scroll_page import ScrollPage
from ui.words import count, describe_error

TWO_COLUMNS = 900
PULSE_MS = 1000
CANCELLED = "download_cancelled"
DROP_WORDS = "Drop the folder of an SAE to import it"


class SaesPage(ScrollPage):
    """Joins the cards to the engine's SAEs."""

    def __init__(self, frame: Frame) -> None:
        super().__init__(
            "SAEs",
            "A sparse autoencoder (SAE) takes one layer of its model apart into features. Attached, it reads that "
            "layer and can steer it.",
        )
        self._frame = frame
        self._engine = frame.engine
        self._bridge = frame.bridge
        self.rows: dict[str, SaeLine] = {}
        self.shelf_state = Shelf((), {}, ())
        self.notice = Notice()
        self.shelf = Card("On the shelf")
        self.empty = label("Nothing is here yet. Add SAEs below; they must be made for your model.", "muted", wrap=True)
        self.sets = AttachSets()
        self.add = AddSaes()
        self.dialog: QFileDialog | None = None
        self.door = FileDoor(self, DROP_WORDS, may_be_sae)
        self._list = column(spacing=2)
        self._working = 0
        self._reading = self._again = False
        self._asked: dict[str, str] = {}
        self._build()
        self.door.dropped.connect(self._on_dropped)
        self.add.preview_wanted.connect(self.preview)
        self.add.download.connect(self.download)
        self.add.pick_folder.connect(self._pick_folder)
        self.sets.attach.connect(self.attach_set)
        self.sets.delete.connect(self.ask_delete_set)
        self.sets.save.connect(self._save_set)
        self._pulse = QTimer(self)
        self._pulse.setInterval(PULSE_MS)
        self._pulse.timeout.connect(self._show_transfers)
        self._pulse.start()
        self.refresh()

    def on_event(self, event: Event) -> None:
        """Follow what happens to SAEs, whoever began it."""
        match event:
            case SaeDownloadProgress():
                if (row := self.rows.get(event.sae_id)) is not None:
                    row.show_transfer(event.downloaded_bytes, event.total_bytes, event.speed_bps)
            case SaeDownloadComplete():
                self._say(f"{event.sae_id} is here.")
                self.refresh()
            case SaeDownloadError() if event.code != CANCELLED:
                self.notice.show_words(event.message)
                self.refresh()
            case (
                SaesChanged()
                | SaeAttached()
                | SaeDetached()
                | SaeDownloadError()
                | ModelLoadComplete()
                | ModelUnloadComplete()
            ):
                self.refresh()

    # --- showing ----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the shelf anew; calls that come meanwhile are answered by one more reading."""
        self._show_rows()
        if self._reading:
            self._again = True
            return
        self._reading = True
        self._bridge.run_in_background(
            lambda: read_shelf(self._engine), self._on_shelf, self._on_read_error, owner=self
        )

    def _on_shelf(self, found: Shelf) -> None:
        self._reading = False
        self.shelf_state = found
        self._show_rows()
        if self._again:
            self._again = False
            self.refresh()

    def _on_read_error(self, error: Exception) -> None:
        self._reading = self._again = False
        self.notice.show_words(describe_error(error))

    def _show_rows(self) -> None:
        view = self._engine.saes.attachments_view()
        places: dict[str, list[int]] = {}
        memory: dict[str, float] = {}
        for each in view.entries:
            places.setdefault(each.sae_id, []).append(each.layer)
            memory[each.sae_id] = each.memory_usage_mb
        loaded, busy = self._engine.shelf.resident is not None, self._working > 0
        records = sorted(
            self.shelf_state.records,
            key=lambda each: (each.id not in places, each.trained_layer is None, each.trained_layer or 0, each.id),
        )
        kept = {record.id for record in records}
        for gone in [sae_id for sae_id in self.rows if sae_id not in kept]:
            row = self.rows.pop(gone)
            self._list.removeWidget(row)
            row.hide()
            row.deleteLater()
        for place, record in enumerate(records):
            row = self.rows.get(record.id) or self._make_row(record)
            if self._list.indexOf(row) != place:
                self._list.removeWidget(row)
                self._list.insertWidget(place, row)
            row.show_record(
                record,
                places.get(record.id, []),
                memory_mb=memory.get(record.id),
                labels=self.shelf_state.labels.get(record.id, 0),
                loaded=loaded,
                busy=busy,
            )
        self.empty.setVisible(not records)
        self.sets.show_attached(view)
        self.sets.show_sets(self.shelf_state.sets, able=loaded and not busy)
        self._show_transfers()

    def _make_row(self, record: SaeRecord) -> SaeLine:
        row = self.rows[record.id] = SaeLine(record)
        self._list.addWidget(row)
        row.attach.connect(self.attach)
        row.check.connect(self.check)
        row.detach.connect(self.detach)
        row.pause.connect(lambda sae_id: self._run(lambda: self._engine.sae_downloads.cancel(sae_id)))
        row.resume.connect(self.resume)
        row.measure.connect(self.measure)
        row.labels.connect(self.pick_labels)
        row.delete.connect(self.ask_delete)
        return row

    def _show_transfers(self) -> None:
        # Events come with bytes; a download that stands still or waits for its turn sends none.
        for sae_id, row in self.rows.items():
            if row.record.status is SaeStatus.DOWNLOADING:
                state = self._engine.sae_downloads.state(sae_id)
                if state is not None:
                    row.show_transfer(state.downloaded_bytes, state.total_bytes, state.speed_bps)

    # --- attaching --------------------------------------------------------------------------------------------------

    def check(self, sae_id: str, layer: int) -> None:
        """Say whether an SAE can be attached at another layer than its own."""

        def done(found: Compatibility) -> None:
            row = self.rows.get(sae_id)
            if row is not None and row.layer.value() == layer:
                said = " ".join((*found.errors, *found.warnings))
                row.show_verdict(said or f"It can be attached at layer {layer}.", fits=found.compatible)

        def failed(error: Exception) -> None:
            if (row := self.rows.get(sae_id)) is not None:
                row.show_verdict(describe_error(error), fits=False)

        saes = self._engine.saes
        self._bridge.run_in_background(lambda: saes.compatibility(sae_id, layer), done, failed, owner=self)

    def attach(self, sae_id: str, layer: int | None) -> None:
        """Attach an SAE, at its own layer where ``layer`` is None."""

        def done(result: AttachResult) -> None:
            if result.warnings:
                self.notice.show_words(" ".join(result.warnings), "warn")

        self._work(lambda: self._engine.saes.attach(sae_id, layer), done)

    def detach(self, sae_id: str) -> None:
        """Detach an SAE from every layer."""

        def done(result: DetachResult) -> None:
            if not result.unused:
                self._say(f"{sae_id} is detached; an answer that still runs with it finishes first.")

        self._work(lambda: self._engine.saes.detach(sae_id), done)

    def attach_set(self, name: str) -> None:
        """Attach a saved set: all of it, or nothing."""

        def done(result: AttachSetResult) -> None:
            warnings = [warning for entry in result.entries for warning in entry.warnings]
            if warnings:
                self.notice.show_words(" ".join(dict.fromkeys(warnings)), "warn")
            else:
                self._say(f"{name} is attached: {count(result.attached_count)} SAEs.")

        self._work(lambda: self._engine.saes.attach_saved_set(name), done)

    def _save_set(self, name: str) -> None:
        def done(_record: AttachSetRecord) -> None:
            self.sets.name.clear()
            self.sets.notice.hide()

        self._bridge.run_in_background(lambda: self._engine.saes.save_set(name), done, self._on_set_error, owner=self)

    def ask_delete_set(self, name: str) -> None:
        """Ask before a set is forgotten."""
        self.sets.notice.show_words(
            f"Forget the set {name}? Its SAEs stay.",
            "warn",
            Button("Forget it", "primary", on_click=lambda: self._delete_set(name)),
            Button("Keep it", on_click=self.sets.notice.hide),
        )

    def _delete_set(self, name: str) -> None:
        self.sets.notice.hide()
        self._bridge.run_in_background(lambda: self._engine.saes.delete_set(name), None, self._on_set_error, owner=self)

    def _on_set_error(self, error: Exception) -> None:
        self.sets.notice.show_words(describe_error(error))

    def measure(self, sae_id: str) -> None:
        """Measure L0 and variance explained on the loaded model."""
        self._say(f"Measuring {sae_id}…")

        def done(record: SaeRecord) -> None:
            self._say(f"{record.id} was measured.")

        self._work(lambda: self._engine.saes.measure(sae_id), done)

    # --- away -------------------------------------------------------------------------------------------------------

    def ask_delete(self, sae_id: str) -> None:
        """Ask before an SAE is removed, saying what goes and what stays."""
        row = self.rows.get(sae_id)
        if row is None:
            return
        under_way = row.record.status is SaeStatus.DOWNLOADING
        asked = (
            f"Cancel the download of {sae_id}? What has come so far is deleted. To go on later, pause it instead."
            if under_way
            else words.sae_deletion(row.record, self.shelf_state.labels.get(sae_id, 0))
        )
        verb = "Cancel the download" if under_way else "Delete it" if row.record.copied else "Remove it"
        self.notice.show_words(
            asked,
            "warn",
            Button(verb, "primary", on_click=lambda: self._delete(sae_id)),
            Button("Keep it", on_click=self.notice.hide),
        )
        self.ensureWidgetVisible(self.notice)

    def _delete(self, sae_id: str) -> None:
        self.notice.hide()
        self._run(lambda: self._engine.saes.delete(sae_id))

    # --- coming in --------------------------------------------------------------------------------------------------

    def import_folder(self, path: str) -> None:
        """Add the SAE at ``path``, by reference; it is measured where the model fits."""
        self._say(f"Reading {path}…")

        def done(outcome: tuple[SaeRecord, bool]) -> None:
            record, new = outcome
            said = f"{record.id} is imported." if new else f"{record.id} is here already."
            if record.assumed:
                said += f" Assumed, since its files do not say: {', '.join(record.assumed)}"
            self._say(said)

        self._work(lambda: self._engine.saes.import_local(Path(path)), done)

    def _on_dropped(self, paths: list[Path]) -> None:
        for path in paths:
            self.import_folder(str(path))

    def pick_labels(self, sae_id: str) -> None:
        """Ask for a file with labels of an SAE's features."""
        dialog = QFileDialog(self, f"Choose the labels of {sae_id}")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setNameFilters(["Labels (*.json *.jsonl *.csv *.gz)", "All files (*)"])
        dialog.fileSelected.connect(lambda name: self.import_labels(sae_id, name))
        self._open(dialog)

    def import_labels(self, sae_id: str, path: str) -> None:
        """Read a file of labels."""

        def done(result: LabelsResult) -> None:
            left = f"; {count(result.skipped)} rows had none" if result.skipped else ""
            self._say(f"{count(result.imported)} labels of {sae_id} were read{left}.")

        self._work(lambda: self._engine.saes.import_label_file(sae_id, Path(path)), done)

    def _pick_folder(self) -> None:
        dialog = QFileDialog(self, "Choose the folder of an SAE")
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly, True)
        dialog.fileSelected.connect(self.import_folder)
        self._open(dialog)

    def _open(self, dialog: QFileDialog) -> None:
        dialog.finished.connect(dialog.deleteLater)
        self.dialog = dialog
        dialog.open()

    def preview(self, repo: str, revision: str) -> None:
        """Ask the hub what a repository holds."""
        self.add.show_looking()

        def failed(error: Exception) -> None:
            self.add.show_error(describe_error(error))

        downloads = self._engine.sae_downloads
        self._bridge.run_in_background(
            lambda: downloads.preview(repo, revision), self.add.show_preview, failed, owner=self
        )

    def download(self, repo: str, revision: str, paths: Sequence[str]) -> None:
        """Begin to fetch the SAEs at ``paths``."""
        self.add.notice.hide()
        self.add.download_button.setEnabled(False)
        downloads = self._engine.sae_downloads

        def task() -> list[SaeStart]:
            return [downloads.start(repo, revision=revision, file_path=path) for path in paths]

        def done(started: list[SaeStart]) -> None:
            self.add.download_button.setEnabled(True)
            self._asked |= dict(zip((each.sae_id for each in started), paths, strict=True))
            begun = [each for each in started if each.status == "downloading"]
            others = [each.message for each in started if each.status != "downloading"]
            first = f"{count(len(begun))} SAEs are being downloaded; they are on the shelf above." if begun else ""
            self._say(" ".join([first, *others]).strip())

        def failed(error: Exception) -> None:
            self.add.download_button.setEnabled(True)
            self.add.notice.show_words(describe_error(error))

        self._bridge.run_in_background(task, done, failed, owner=self)

    def resume(self, sae_id: str) -> None:
        """Go on with a download that stopped. Which file it was is looked for on the hub where it is not known."""
        record = self.rows[sae_id].record
        downloads, known = self._engine.sae_downloads, self._asked.get(sae_id)
        self.notice.hide()

        def task() -> SaeStart:
            assert record.repository_id is not None
            revision = record.revision or "main"
            path = known or file_of(sae_id, downloads.preview(record.repository_id, revision))
            return downloads.start(record.repository_id, revision=revision, file_path=path)

        self._run(task)

    # --- work and messages ------------------------------------------------------------------------------------------

    def _work(self, task: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Carry out what attaches, reads or measures, one row's buttons off meanwhile."""
        self._working += 1
        self._show_rows()

        def ended(result: Any) -> None:
            self._working -= 1
            done(result)
            self.refresh()

        def failed(error: Exception) -> None:
            self._working -= 1
            self.notice.show_words(describe_error(error))
            self.refresh()

        self._bridge.run_in_background(task, ended, failed, owner=self)

    def _run(self, task: Callable[[], Any]) -> None:
        def failed(error: Exception) -> None:
            self.notice.show_words(describe_error(error))
            self.refresh()

        self._bridge.run_in_background(task, lambda _done: self.refresh(), failed, owner=self)

    def _say(self, said: str) -> None:
        self.notice.show_words(said, "info")

    # --- layout -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        self.shelf.body.addWidget(self.empty)
        self.shelf.body.addLayout(self._list)
        self.shelf.body.addStretch(1)
        self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._columns.setSpacing(theme.L)
        left, right = column(spacing=theme.L), column(spacing=0)
        left.addWidget(self.shelf)
        left.addWidget(self.add)
        left.addStretch(1)
        right.addWidget(self.sets)
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

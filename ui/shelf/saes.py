"""The SAE shelf: what there is and how good it is, what is attached, sets, and the ways SAEs come in and go."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

from PySide6.QtCore import QTimer

from engine.checked import there
from engine.errors import NotFound
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
from engine.public.downloads import FetchedPair, KnownPair, SaeStart
from engine.public.library import AttachSetRecord, SaeRecord, SaeStatus
from engine.public.saes import AttachResult, AttachSetResult, Compatibility, DetachResult, LabelsResult
from ui.context.page_context import PageContext
from ui.kit import shelf_text as words
from ui.kit.basics import Button
from ui.kit.text import counted, describe_error
from ui.shelf.add_saes import AddSaes
from ui.shelf.attach_sets import AttachSets
from ui.shelf.sae_row import SaeLine
from ui.shelf.saes_shelf import SaesOnShelf, file_of, read_shelf
from ui.shelf.shelf_page import ShelfPage

PULSE_MS = 1000
CANCELLED = "download_cancelled"
EMPTY = "Nothing is here yet. Add SAEs below; they must be made for your model."


class SaesPage(ShelfPage):
    """Joins the cards to the engine's SAEs."""

    FOLLOWS = (
        SaeDownloadProgress,
        SaeDownloadComplete,
        SaeDownloadError,
        SaesChanged,
        SaeAttached,
        SaeDetached,
        ModelLoadComplete,
        ModelUnloadComplete,
    )

    def __init__(self, frame: PageContext) -> None:
        super().__init__(
            "SAEs",
            "A sparse autoencoder (SAE) takes one layer of its model apart into features. Attached, it reads that "
            "layer and can steer it.",
            empty=EMPTY,
        )
        self._frame = frame
        self._engine = frame.engine
        self._bridge = frame.bridge
        self.rows: dict[str, SaeLine] = {}
        self.shelf_state = SaesOnShelf((), {}, ())
        self.sets = AttachSets()
        self.add = AddSaes()
        self._working = 0
        self._reading = self._again = False
        self._asked: dict[str, str] = {}
        self._lay_out(self.add, self.sets)
        self.add.preview_wanted.connect(self.preview)
        self.add.search_wanted.connect(self.search)
        self.add.pairs.fetch.connect(self.fetch_pair)
        self.add.download.connect(self.download)
        self.add.pick_folder.connect(lambda: self._pick_folder("Choose the folder of an SAE", self.import_folder))
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

    def _on_shelf(self, found: SaesOnShelf) -> None:
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
        view = self._engine.attachments.all()
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
        by_id = {record.id: record for record in records}
        self._arrange(self.rows, by_id, lambda sae_id: self._make_row(by_id[sae_id]))
        for record in records:
            self.rows[record.id].show_record(
                record,
                places.get(record.id, []),
                memory_mb=memory.get(record.id),
                labels=self.shelf_state.labels.get(record.id, 0),
                loaded=loaded,
                busy=busy,
            )
        self.sets.show_attached(view)
        self.sets.show_sets(self.shelf_state.sets, able=loaded and not busy)
        self._show_transfers()

    def _make_row(self, record: SaeRecord) -> SaeLine:
        row = SaeLine(record)
        row.attach.connect(self.attach)
        row.check.connect(self.check)
        row.detach.connect(self.detach)
        row.pause.connect(
            lambda sae_id: self._run(("pause SAE", sae_id), lambda: self._engine.sae_downloads.cancel(sae_id))
        )
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

        attachments = self._engine.attachments
        self._bridge.run_in_background(lambda: attachments.compatibility(sae_id, layer), done, failed, owner=self)

    def attach(self, sae_id: str, layer: int | None) -> None:
        """Attach an SAE, at its own layer where ``layer`` is None."""

        def done(result: AttachResult) -> None:
            if result.warnings:
                self.notice.show_words(" ".join(result.warnings), "warn")

        self._work(("attach", sae_id, layer), lambda: self._engine.attachments.attach(sae_id, layer), done)

    def detach(self, sae_id: str) -> None:
        """Detach an SAE from every layer."""

        def done(result: DetachResult) -> None:
            if not result.unused:
                self._say(f"{sae_id} is detached; an answer that still runs with it finishes first.")

        self._work(("detach", sae_id), lambda: self._engine.attachments.detach(sae_id), done)

    def attach_set(self, name: str) -> None:
        """Attach a saved set: all of it, or nothing."""

        def done(result: AttachSetResult) -> None:
            warnings = [warning for entry in result.entries for warning in entry.warnings]
            if warnings:
                self.notice.show_words(" ".join(dict.fromkeys(warnings)), "warn")
            else:
                self._say(f"{name} is attached: {counted(result.attached_count, 'SAE')}.")

        self._work(("attach set", name), lambda: self._engine.attachments.attach_saved_set(name), done)

    def _save_set(self, name: str) -> None:
        def done(_record: AttachSetRecord) -> None:
            self.sets.name.clear()
            self.sets.notice.hide()

        self._bridge.run_once(
            ("save set", name), lambda: self._engine.attachments.save_set(name), done, self._on_set_error, owner=self
        )

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
        self._bridge.run_once(
            ("delete set", name), lambda: self._engine.attachments.delete_set(name), None, self._on_set_gone, owner=self
        )

    def _on_set_gone(self, error: Exception) -> None:
        # Where it was forgotten meanwhile, by a program, there is nothing left to say.
        if isinstance(error, NotFound):
            self.refresh()
        else:
            self._on_set_error(error)

    def _on_set_error(self, error: Exception) -> None:
        self.sets.notice.show_words(describe_error(error))

    def measure(self, sae_id: str) -> None:
        """Measure L0 and variance explained on the loaded model."""
        self._say(f"Measuring {sae_id}…")

        def done(record: SaeRecord) -> None:
            self._say(f"{record.id} was measured.")

        self._work(("measure", sae_id), lambda: self._engine.measurer.measure(sae_id), done)

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
        self._ask(asked, verb, lambda: self._delete(sae_id))

    def _delete(self, sae_id: str) -> None:
        self._run(("delete SAE", sae_id), lambda: self._engine.saes.delete(sae_id))

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

        self._work(("import SAE", path), lambda: self._engine.saes.import_local(Path(path)), done)

    def arrive(self, *, files: Sequence[Path] = ()) -> None:
        """Come to the front; ``files`` were dropped on the window."""
        if files:
            # What comes of them is told at the top, which may have been scrolled away.
            self.verticalScrollBar().setValue(0)
        for path in files:
            self.import_folder(str(path))

    def pick_labels(self, sae_id: str) -> None:
        """Ask for a file with labels of an SAE's features."""
        self._pick_file(
            f"Choose the labels of {sae_id}",
            ["Labels (*.json *.jsonl *.csv *.tsv *.gz)"],
            lambda name: self.import_labels(sae_id, name),
        )

    def import_labels(self, sae_id: str, path: str) -> None:
        """Read a file of labels."""

        def done(result: LabelsResult) -> None:
            left = f"; {counted(result.skipped, 'row')} had none" if result.skipped else ""
            was = "was" if result.imported == 1 else "were"
            self._say(f"{counted(result.imported, 'label')} of {sae_id} {was} read{left}.")

        self._work(("labels", sae_id, path), lambda: self._engine.saes.import_label_file(sae_id, Path(path)), done)

    def search(self, words: str) -> None:
        """Search the hub."""
        self.add.show_looking()
        self._bridge.run_in_background(
            lambda: self._engine.hub.search(words, kind="saes"),
            self.add.show_search,
            lambda error: self.add.show_error(describe_error(error)),
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
            self.add.show_error(describe_error(error))
            ended()

        self._bridge.run_once(
            ("fetch pair", pair.key), lambda: self._engine.hub.fetch_pair(pair.key), begun, failed, owner=self
        )

    def preview(self, repo: str, revision: str) -> None:
        """Ask the hub what a repository holds."""
        self.add.show_looking()

        def failed(error: Exception) -> None:
            self.add.show_error(describe_error(error))

        downloads = self._engine.sae_downloads
        self._bridge.run_once(
            ("preview SAEs", repo, revision),
            lambda: downloads.preview(repo, revision),
            self.add.show_preview,
            failed,
            owner=self,
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
            first = (
                f"{counted(len(begun), 'SAE is', 'SAEs are')} being downloaded; see the shelf above." if begun else ""
            )
            self._say(" ".join([first, *others]).strip())

        def failed(error: Exception) -> None:
            self.add.download_button.setEnabled(True)
            self.add.notice.show_words(describe_error(error))

        self._bridge.run_once(("download SAEs", repo, revision, *paths), task, done, failed, owner=self)

    def resume(self, sae_id: str) -> None:
        """Go on with a download that stopped. Which file it was is looked for on the hub where it is not known."""
        record = self.rows[sae_id].record
        downloads, known = self._engine.sae_downloads, self._asked.get(sae_id)
        self.notice.hide()

        def task() -> SaeStart:
            repository = there(record.repository_id)
            revision = record.revision or "main"
            path = known or file_of(sae_id, downloads.preview(repository, revision))
            return downloads.start(repository, revision=revision, file_path=path)

        self._run(("resume SAE", sae_id), task)

    # --- work and messages ------------------------------------------------------------------------------------------

    def _work(self, key: Hashable, task: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Carry out what attaches, reads or measures, once, one row's buttons off meanwhile."""

        def ended(result: Any) -> None:
            self._working -= 1
            done(result)
            self.refresh()

        def failed(error: Exception) -> None:
            self._working -= 1
            self.notice.show_words(describe_error(error))
            self.refresh()

        if self._bridge.run_once(key, task, ended, failed, owner=self):
            self._working += 1
            self._show_rows()

    def _run(self, key: Hashable, task: Callable[[], Any]) -> None:
        def failed(error: Exception) -> None:
            self.notice.show_words(describe_error(error))
            self.refresh()

        self._bridge.run_once(key, task, lambda _done: self.refresh(), failed, owner=self)

"""One model of the shelf: badges, facts, progress, and what can be done with it."""

from __future__ import annotations

from PySide6.QtCore import Signal

from engine.public.models import LoadingState, ModelView
from ui.kit import shelf_text as words
from ui.kit.basics import Button, IconButton, label
from ui.kit.plain_text import as_letters
from ui.shelf.shelf_row import ShelfRow


class ModelShelfRow(ShelfRow):
    """Shows a view; says what the person wants with signals that carry the model's id."""

    load = Signal(int)
    unload = Signal(int)
    cancel_load = Signal(int)
    pause = Signal(int)
    resume = Signal(int)
    lock = Signal(int, bool)
    asked = Signal(int)
    """What a load would take."""
    delete = Signal(int)
    locate = Signal(int)
    """Its files were moved; it is to be said where they are."""

    def __init__(self, view: ModelView) -> None:
        super().__init__()
        self.view = view
        self.load_button = Button("Load", on_click=lambda: self.load.emit(self.view.id))
        self.unload_button = Button("Unload", on_click=lambda: self.unload.emit(self.view.id))
        self.locate_button = Button("Choose it again…", on_click=lambda: self.locate.emit(self.view.id))
        self.pause_button = Button("Pause", on_click=lambda: self.pause.emit(self.view.id))
        self.resume_button = Button("Go on", on_click=lambda: self.resume.emit(self.view.id))
        self.cancel_button = Button("Cancel", on_click=self._cancel)
        self.lock_button = IconButton("lock", "", lambda: self.lock.emit(self.view.id, not self.view.locked))
        self.lock_button.setCheckable(True)
        self.info_button = IconButton("info", "", lambda: self.asked.emit(self.view.id))
        self.delete_button = IconButton("bin", "", lambda: self.delete.emit(self.view.id))
        self.abilities = label("", "small", wrap=True)
        self._lay_out(
            (self.facts, self.abilities, self.error, self.stage, self.progress),
            (
                self.locate_button,
                self.load_button,
                self.unload_button,
                self.pause_button,
                self.resume_button,
                self.cancel_button,
                self.lock_button,
                self.info_button,
                self.delete_button,
            ),
        )

    def show_view(self, view: ModelView, loading: LoadingState | None, *, lacking: str | None, busy: bool) -> None:
        """Show how it stands. ``lacking``: why it cannot be run here; ``busy``: a model is on its way into memory."""
        self.view = view
        mine = loading if loading is not None and loading.model_id == view.id else None
        loaded = view.memory_footprint is not None and mine is None
        downloading = view.status == "downloading"
        unfinished = words.is_unfinished(view)
        self.name.set_text(view.name)
        self.facts.setText(words.facts(view))
        self.abilities.setText(words.abilities(view.capabilities))
        self.abilities.setVisible(not unfinished and not downloading and not view.files_missing)
        self._show_badges(words.badges(view, runnable=lacking is None))
        gone = view.files_missing and mine is None and not loaded
        error = words.files_gone(view) if gone else view.error_message or ""
        self.error.setText(error)
        self.error.setVisible(bool(error) and not words.is_paused(view) and mine is None)
        self.stage.setVisible(mine is not None or downloading)
        self.progress.setVisible(mine is not None or downloading)
        if mine is not None:
            self.show_progress(mine.progress, mine.stage)
        elif downloading:
            self.show_transfer(view.downloaded_bytes, view.total_bytes, view.download_speed_bps)
        idle = mine is None and not downloading
        self.locate_button.setVisible(gone and idle)
        self.load_button.setVisible(idle and not loaded and not unfinished and not gone)
        self.load_button.setEnabled(lacking is None and not busy)
        self.load_button.setToolTip(as_letters(lacking or ""))
        self.unload_button.setVisible(loaded)
        self.cancel_button.setVisible(not idle)
        self.pause_button.setVisible(downloading)
        self.resume_button.setVisible(unfinished)
        self.lock_button.setVisible(loaded)
        self.lock_button.setChecked(view.locked)
        self.info_button.setVisible(idle and not unfinished)
        self.delete_button.setVisible(idle)
        self.delete_button.setEnabled(not loaded)
        unlock, lock = "Let requests load other models again", "Keep requests from loading another model"
        self._name_actions(
            view.name,
            {
                self.lock_button: unlock if view.locked else lock,
                self.info_button: f"What {view.name} needs in memory",
                self.delete_button: "Unload it first" if loaded else f"Remove {view.name}",
            },
            {
                self.locate_button: "Choose again where the files are of",
                self.load_button: "Load",
                self.unload_button: "Unload",
                self.pause_button: "Pause",
                self.resume_button: "Go on with",
                self.cancel_button: "Cancel",
            },
        )

    def _cancel(self) -> None:
        if self.view.status == "downloading":
            self.delete.emit(self.view.id)
        else:
            self.cancel_load.emit(self.view.id)

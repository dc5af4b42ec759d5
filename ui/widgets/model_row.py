"""One model of the shelf: badges, facts, progress, and what can be done with it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QProgressBar, QWidget

from engine.actions.models import ModelView
from engine.models.shelf import LoadingState
from ui import shelf_words as words
from ui import theme
from ui.widgets.basics import Button, ElidedLabel, IconButton, column, label, line, pill


class ModelRow(QFrame):
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

    def __init__(self, view: ModelView) -> None:
        super().__init__()
        self.setObjectName("row")
        self.view = view
        self._badges = line(spacing=theme.XS)
        self.badges: list[tuple[str, str]] = []
        self.name = ElidedLabel(view.name, "strong")
        self.facts = label("", "small", wrap=True)
        self.error = label("", "bad", wrap=True)
        self.stage = ElidedLabel("", "small")
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.load_button = Button("Load", on_click=lambda: self.load.emit(self.view.id))
        self.unload_button = Button("Unload", on_click=lambda: self.unload.emit(self.view.id))
        self.cancel_button = Button("Cancel", on_click=self._cancel)
        self.pause_button = Button("Pause", on_click=lambda: self.pause.emit(self.view.id))
        self.resume_button = Button("Go on", on_click=lambda: self.resume.emit(self.view.id))
        self.lock_button = IconButton("lock", "", lambda: self.lock.emit(self.view.id, not self.view.locked))
        self.lock_button.setCheckable(True)
        self.info_button = IconButton("info", "", lambda: self.asked.emit(self.view.id))
        self.delete_button = IconButton("bin", "", lambda: self.delete.emit(self.view.id))
        texts = column(spacing=2)
        head = line(spacing=theme.S)
        head.addWidget(self.name, 1)
        head.addLayout(self._badges)
        texts.addLayout(head)
        for part in (self.facts, self.error, self.stage, self.progress):
            texts.addWidget(part)
        layout = line(spacing=theme.S)
        layout.setContentsMargins(theme.S, theme.S, theme.S, theme.S)
        layout.addLayout(texts, 1)
        for button in self._buttons():
            layout.addWidget(button)
        self.setLayout(layout)

    def show_view(self, view: ModelView, loading: LoadingState | None, *, runnable: bool, busy: bool) -> None:
        """Show how it stands. ``busy``: another model is on its way into memory."""
        self.view = view
        mine = loading if loading is not None and loading.model_id == view.id else None
        loaded = view.memory_footprint is not None and mine is None
        downloading = view.status == "downloading"
        unfinished = words.is_unfinished(view)
        self.name.set_text(view.name)
        self.facts.setText(words.facts(view))
        self._show_badges(words.badges(view, runnable=runnable))
        self.error.setText(view.error_message or "")
        self.error.setVisible(bool(view.error_message) and not words.is_paused(view) and mine is None)
        self.stage.setVisible(mine is not None or downloading)
        self.progress.setVisible(mine is not None or downloading)
        if mine is not None:
            self.show_progress(mine.progress, mine.stage)
        elif downloading:
            self.show_transfer(view.downloaded_bytes, view.total_bytes, view.download_speed_bps)
        idle = mine is None and not downloading
        self.load_button.setVisible(idle and not loaded and not unfinished)
        self.load_button.setEnabled(runnable and not busy)
        self.load_button.setToolTip("" if runnable else "llama.cpp, which runs GGUF files, is not installed")
        self.unload_button.setVisible(loaded)
        self.cancel_button.setVisible(not idle)
        self.pause_button.setVisible(downloading)
        self.resume_button.setVisible(unfinished)
        self.lock_button.setVisible(loaded)
        self.lock_button.setChecked(view.locked)
        self.info_button.setVisible(idle and not unfinished)
        self.delete_button.setVisible(idle)
        self.delete_button.setEnabled(not loaded)
        name = view.name
        for button, tip in (
            (
                self.lock_button,
                "Let requests load other models again" if view.locked else "Keep requests from loading another model",
            ),
            (self.info_button, f"What {name} needs in memory"),
            (self.delete_button, "Unload it first" if loaded else f"Remove {name}"),
        ):
            button.setToolTip(tip)
            button.setAccessibleName(tip)
        for plain, verb in (
            (self.load_button, "Load"),
            (self.unload_button, "Unload"),
            (self.cancel_button, "Cancel"),
            (self.pause_button, "Pause"),
            (self.resume_button, "Go on with"),
        ):
            plain.setAccessibleName(f"{verb} {name}")

    def show_progress(self, percent: float, stage: str) -> None:
        """How far a load is."""
        self.stage.set_text(stage)
        self.progress.setValue(round(percent))

    def show_transfer(self, here: int | None, total: int | None, speed: float | None) -> None:
        """How far a download is."""
        self.stage.set_text(words.transfer(here, total, speed))
        self.progress.setValue(round(100 * (here or 0) / total) if total else 0)

    def _cancel(self) -> None:
        if self.view.status == "downloading":
            self.delete.emit(self.view.id)
        else:
            self.cancel_load.emit(self.view.id)

    def _show_badges(self, badges: list[tuple[str, str]]) -> None:
        if badges == self.badges:
            return
        self.badges = badges
        while (item := self._badges.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        for text, tone in badges:
            self._badges.addWidget(pill(text, tone))

    def _buttons(self) -> tuple[QWidget, ...]:
        return (
            self.load_button,
            self.unload_button,
            self.pause_button,
            self.resume_button,
            self.cancel_button,
            self.lock_button,
            self.info_button,
            self.delete_button,
        )

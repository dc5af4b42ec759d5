"""The card about the model: which is loaded and on what, how a load goes, and which models there are to choose from."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QProgressBar, QScrollArea, QSizePolicy, QWidget

from engine.checked import there
from engine.public.library import EngineKind, ModelRecord, ModelSource, ModelStatus
from engine.public.models import LoadedModel, LoadingState, can_run
from ui.kit import theme
from ui.kit.basics import Button, Card, ElidedLabel, Notice, column, keep_place, label, line, pill, rule, set_pill
from ui.kit.facts import Facts
from ui.kit.text import count, counted, device_name, megabytes, number_format, parameters

ROWS_SHOWN = 4


def facts_of(loaded: LoadedModel) -> list[tuple[str, str]]:
    """What a person may want to know about a resident model."""
    info = loaded.info
    return [
        ("Parameters", parameters(info.num_parameters)),
        ("Context window", counted(info.context_length, "token")),
        ("Memory", megabytes(info.memory_bytes / 1e6)),
        ("Runs on", device_name(info.device)),
        ("Numbers", number_format(info.dtype)),
        ("Shape", f"{counted(info.n_layers, 'layer')} × {count(info.d_model)}"),
    ]


class ModelCardRow(QFrame):
    """One model of the shelf with its button."""

    load = Signal(int)

    def __init__(self, record: ModelRecord, *, resident: bool, loading: bool, busy: bool, first: bool) -> None:
        super().__init__()
        self.setObjectName("row")
        self.record = record
        words = [parameters(record.params)] if record.params else []
        words.append("GGUF" if record.engine is EngineKind.LLAMACPP else "transformers")
        if record.disk_size_mb is not None:
            words.append(megabytes(record.disk_size_mb))
        if not can_run(record.engine):
            words.append("llama.cpp is not installed")
        elif record.status is ModelStatus.ERROR:
            words.append("could not be loaded last time")
        text = column(spacing=1)
        text.addWidget(ElidedLabel(record.name, "strong"))
        text.addWidget(ElidedLabel(" · ".join(words), "small"))
        layout = line(spacing=theme.M)
        layout.setContentsMargins(theme.S, theme.S - 2, theme.S, theme.S - 2)
        layout.addLayout(text, 1)
        self.button: Button | None = None
        if resident:
            layout.addWidget(pill("loaded", "good"))
        elif loading:
            layout.addWidget(pill("loading", "info"))
        elif can_run(record.engine):
            self.button = Button("Load", "primary" if first else "plain", on_click=lambda: self.load.emit(record.id))
            self.button.setAccessibleName(f"Load {record.name}")
            self.button.setEnabled(not busy)
            layout.addWidget(self.button)
        self.setLayout(layout)


class ModelCard(Card):
    """Shows; says what the person wants with signals."""

    load = Signal(int)
    unload = Signal()
    cancel = Signal()
    add_folder = Signal()
    install_demo = Signal()

    def __init__(self) -> None:
        super().__init__("Model", with_pill=True)
        self.name = ElidedLabel("", "title")
        self.unload_button = Button("Unload", on_click=self.unload.emit)
        self.unload_button.setToolTip("Free the memory the model takes")
        self.facts = Facts()
        self.idle = label("", "muted", wrap=True)
        self.stage = label("", "muted", wrap=True)
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.cancel_button = Button("Cancel", on_click=self.cancel.emit)
        self.notice = Notice()
        self.shelf_head = label("On the shelf", "group")
        self.rows: list[ModelCardRow] = []
        self._rows_layout = column(spacing=2)
        rows_body = QWidget()
        rows_body.setObjectName("scrollBody")
        rows_body.setLayout(self._rows_layout)
        self._scroll = QScrollArea()
        self._scroll.setWidgetResizable(True)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setWidget(rows_body)
        self._scroll.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.add_button = Button("Add a model folder…", "plain", "folder", self.add_folder.emit)
        self.demo_button = Button("Install the demo model", "primary", "download", self.install_demo.emit)
        self.demo_stage = label("", "muted", wrap=True)
        self.demo_progress = QProgressBar()
        self.demo_progress.setTextVisible(False)
        self._records: list[ModelRecord] = []
        self._resident: LoadedModel | None = None
        self._loading: LoadingState | None = None
        self._installing = False
        self.body.addLayout(line(self.name, None, self.unload_button, self.cancel_button))
        # Above the shelf, where it stays in view when rows come.
        bar = (self.demo_stage, self.demo_progress)
        for part in (self.idle, self.facts, self.stage, self.progress, *bar, self.notice):
            self.body.addWidget(part)
        self.body.addStretch(1)
        self._rule = rule()
        self.body.addWidget(self._rule)
        self.body.addWidget(self.shelf_head)
        self.body.addWidget(self._scroll)
        self.body.addLayout(line(self.demo_button, self.add_button, None))
        self._refresh()

    def show_models(self, records: list[ModelRecord]) -> None:
        """The models on the shelf."""
        self._records = records
        self._refresh()

    def show_state(self, resident: LoadedModel | None, loading: LoadingState | None) -> None:
        """What is in memory and what is on its way there."""
        changed = resident is not self._resident or (loading is None) != (self._loading is None)
        self._resident, self._loading = resident, loading
        if changed:
            self._refresh()
        elif loading is not None:
            self._show_progress(loading)

    def show_install(self, progress: float | None, stage: str) -> None:
        """How the demo's installation goes, the load that follows included; None when none is under way."""
        installing = progress is not None
        self.demo_progress.setValue(round(progress or 0))
        self.demo_stage.setText(stage)
        if installing != self._installing:
            self._installing = installing
            self._refresh()
        self._refresh_demo()

    def _show_progress(self, loading: LoadingState) -> None:
        self.stage.setText(loading.stage)
        self.progress.setValue(round(loading.progress))

    def _refresh(self) -> None:
        resident, loading = self._resident, self._loading
        mark = there(self.pill)
        if loading is not None:
            set_pill(mark, "loading", "info")
            self.name.set_text(loading.model_name)
            self._show_progress(loading)
        elif resident is not None:
            set_pill(mark, "loaded", "good")
            self.name.set_text(resident.record.name)
            self.facts.show_facts(facts_of(resident))
        else:
            set_pill(mark, "not loaded", "quiet")
            self.name.set_text("No model is loaded")
            self.idle.setText(
                "Choose one below; it takes memory only while it is loaded."
                if self._records
                else "The demo model is being installed; it is loaded by itself when it is here."
                if self._installing
                else "Install the demo model to try things out: it is small, about 370 MB on disk. "
                "Or add a folder with a transformers checkpoint you have."
            )
        self.unload_button.setVisible(loading is None and resident is not None)
        self.facts.setVisible(loading is None and resident is not None)
        self.idle.setVisible(loading is None and resident is None)
        self.cancel_button.setVisible(loading is not None)
        for part in (self.stage, self.progress):
            # While the demo is installed its load is the second part of that one bar.
            part.setVisible(loading is not None and not self._installing)
        self._refresh_rows()
        self._refresh_demo()

    def _refresh_rows(self) -> None:
        for row in self.rows:
            self._rows_layout.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.rows = []
        idle = self._resident is None and self._loading is None
        runnable = [record for record in self._records if can_run(record.engine)]
        for record in self._records:
            row = ModelCardRow(
                record,
                resident=self._loading is None and self._resident is not None and self._resident.record.id == record.id,
                loading=self._loading is not None and self._loading.model_id == record.id,
                busy=self._loading is not None,
                first=idle and record is runnable[0] if runnable else False,
            )
            row.load.connect(self.load)
            self.rows.append(row)
            self._rows_layout.addWidget(row)
        any_row = bool(self.rows)
        for part in (self._rule, self.shelf_head, self._scroll):
            part.setVisible(any_row)
        if any_row:
            height = max(row.sizeHint().height() for row in self.rows)
            shown = min(len(self.rows), ROWS_SHOWN)
            self._scroll.setFixedHeight(shown * height + (shown - 1) * 2 + 2)

    def _refresh_demo(self) -> None:
        there = any(record.source is ModelSource.DEMO for record in self._records)
        keep_place(self.demo_button, not there and self._installing)
        self.demo_button.setVisible(not there and not self._installing)
        # The next step while the shelf is empty; one way among others afterwards.
        self.demo_button.set_look("plain" if self._records else "primary")
        for part in (self.demo_stage, self.demo_progress):
            part.setVisible(self._installing)

"""The card about SAEs: which there are, how good they are, and which are attached."""

from __future__ import annotations

from collections.abc import Collection

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QProgressBar

from engine.public.library import SaeRecord, SaeStatus
from engine.public.steering import AttachmentKey
from ui.kit import theme
from ui.kit.basics import Button, Card, ElidedLabel, Notice, column, inset_text, label, line, pill
from ui.kit.number_field import WholeField
from ui.kit.steering_text import sae_facts, sae_figures

SPIN_WIDTH = 64


class SaeShelfRow(QFrame):
    """One SAE with its button."""

    attach = Signal(str, object)
    detach = Signal(str)

    def __init__(self, record: SaeRecord, layers: list[int], *, working: bool, busy: bool, loaded: bool) -> None:
        super().__init__()
        self.setObjectName("row")
        self.record = record
        self.figures = label(sae_figures(record), "small", wrap=True)
        self.layer: WholeField | None = None
        self.button: Button | None = None
        text = column(spacing=1)
        text.addWidget(ElidedLabel(record.name or record.id, "strong", Qt.TextElideMode.ElideMiddle))
        text.addWidget(ElidedLabel(sae_facts(record), "small"))
        text.addWidget(self.figures)
        if record.error_message:
            text.addWidget(label(record.error_message, "bad", wrap=True))
        layout = line(spacing=theme.M)
        layout.setContentsMargins(theme.S, theme.S - 2, theme.S, theme.S - 2)
        layout.addLayout(text, 1)
        if working:
            layout.addWidget(pill("working…", "info"))
        elif layers:
            self.button = Button("Detach", on_click=lambda: self.detach.emit(record.id))
            self.button.setAccessibleName(f"Detach {record.id}")
            self.button.setEnabled(not busy)
            layout.addWidget(self.button)
        elif record.status is not SaeStatus.ERROR:
            if record.trained_layer is None:
                self.layer = WholeField()
                self.layer.setPrefix("layer ")
                self.layer.setFixedWidth(SPIN_WIDTH + 16)
                self.layer.setAccessibleName(f"Layer for {record.id}")
                inset_text(self.layer)
                layout.addWidget(self.layer)
            self.button = Button("Attach", on_click=self._attach)
            self.button.setAccessibleName(f"Attach {record.id}")
            self.button.setEnabled(loaded and not busy)
            self.button.setToolTip("" if loaded else "Load a model first")
            layout.addWidget(self.button)
        self.setLayout(layout)

    def _attach(self) -> None:
        self.attach.emit(self.record.id, None if self.layer is None else self.layer.value())


class SaeShelf(Card):
    """Shows the SAEs; says what the person wants with signals."""

    attach = Signal(str, object)
    """(SAE, layer or None for its own)."""
    detach = Signal(str)
    add_folder = Signal()

    def __init__(self) -> None:
        super().__init__("SAEs", with_pill=False)
        self.rows: list[SaeShelfRow] = []
        self.hint = label("", "muted", wrap=True)
        self.notice = Notice()
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.progress.setRange(0, 0)
        self.progress.hide()
        self.add_button = Button("Import an SAE folder…", "plain", "folder", self.add_folder.emit)
        self._list = column(spacing=2)
        self._records: list[SaeRecord] = []
        self._places: tuple[AttachmentKey, ...] = ()
        self._working: str | None = None
        self._loaded = False
        for part in (self.hint, self.notice):
            self.body.addWidget(part)
        self.body.addLayout(self._list)
        self.body.addWidget(self.progress)
        self.body.addLayout(line(self.add_button, None))
        self._refresh()

    def show_saes(self, records: list[SaeRecord]) -> None:
        """The SAEs of the library."""
        self._records = records
        self._refresh()

    def show_state(self, places: Collection[AttachmentKey], *, loaded: bool) -> None:
        """What is attached where, and whether a model is loaded."""
        if (tuple(places), loaded) != (self._places, self._loaded):
            self._places, self._loaded = tuple(places), loaded
            self._refresh()

    def show_work(self, sae_id: str | None) -> None:
        """Work on an SAE (empty: on one that is new) is under way; None when it is done."""
        self._working = sae_id
        self.progress.setVisible(sae_id is not None)
        self.add_button.setEnabled(sae_id is None)
        self._refresh()

    def row(self, sae_id: str) -> SaeShelfRow | None:
        """The row of an SAE."""
        return next((row for row in self.rows if row.record.id == sae_id), None)

    def _refresh(self) -> None:
        for row in self.rows:
            self._list.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.rows = []
        for record in self._records:
            row = SaeShelfRow(
                record,
                [layer for sae_id, layer in self._places if sae_id == record.id],
                working=self._working == record.id,
                busy=self._working is not None,
                loaded=self._loaded,
            )
            row.attach.connect(self.attach)
            row.detach.connect(self.detach)
            self.rows.append(row)
            self._list.addWidget(row)
        if not self._records:
            self.hint.setText(
                "A sparse autoencoder (SAE) names directions inside a model. Import the folder of one that was made "
                "for your model; its files stay where they are."
            )
        self.hint.setVisible(not self._records)

"""One SAE of the shelf: where it belongs, how good it is, what it takes, and what can be done with it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QProgressBar, QSpinBox, QWidget

from engine.library.records import SaeRecord, SaeStatus
from ui import shelf_words as words
from ui import theme
from ui.steering_words import sae_facts, sae_figures
from ui.widgets.basics import Button, ElidedLabel, IconButton, column, inset_text, label, line, pill
from ui.words import count, megabytes

LAYER_WIDTH = 96


class SaeLine(QFrame):
    """Shows an SAE; says what the person wants with signals that carry its id."""

    attach = Signal(str, object)
    """(SAE, layer; None for its own)."""
    check = Signal(str, object)
    detach = Signal(str)
    pause = Signal(str)
    resume = Signal(str)
    measure = Signal(str)
    labels = Signal(str)
    delete = Signal(str)

    def __init__(self, record: SaeRecord) -> None:
        super().__init__()
        self.setObjectName("row")
        self.record = record
        self.badges: list[tuple[str, str]] = []
        self._badges = line(spacing=theme.XS)
        self.name = ElidedLabel("", "strong", Qt.TextElideMode.ElideMiddle)
        self.facts = label("", "small", wrap=True)
        self.figures = label("", "small", wrap=True)
        self.error = label("", "bad", wrap=True)
        self.verdict = label("", "small", wrap=True)
        self.stage = ElidedLabel("", "small")
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.layer = QSpinBox()
        self.layer.setRange(-1, 999)
        self.layer.setSpecialValueText("layer?")
        self.layer.setPrefix("layer ")
        self.layer.setFixedWidth(LAYER_WIDTH)
        inset_text(self.layer)
        self.layer.valueChanged.connect(self._on_layer)
        self.attach_button = Button("Attach", on_click=self._attach)
        self.detach_button = Button("Detach", on_click=lambda: self.detach.emit(self.record.id))
        self.pause_button = Button("Pause", on_click=lambda: self.pause.emit(self.record.id))
        self.resume_button = Button("Go on", on_click=lambda: self.resume.emit(self.record.id))
        self.cancel_button = Button("Cancel", on_click=lambda: self.delete.emit(self.record.id))
        self.measure_button = IconButton("dials", "", lambda: self.measure.emit(self.record.id))
        self.labels_button = IconButton("text", "", lambda: self.labels.emit(self.record.id))
        self.delete_button = IconButton("bin", "", lambda: self.delete.emit(self.record.id))
        texts = column(spacing=2)
        head = line(spacing=theme.S)
        head.addWidget(self.name, 1)
        head.addLayout(self._badges)
        texts.addLayout(head)
        for part in (self.facts, self.figures, self.verdict, self.error, self.stage, self.progress):
            texts.addWidget(part)
        layout = line(spacing=theme.S)
        layout.setContentsMargins(theme.S, theme.S, theme.S, theme.S)
        layout.addLayout(texts, 1)
        for control in self._controls():
            layout.addWidget(control)
        self.setLayout(layout)
        self._own_layer()

    def show_record(
        self, record: SaeRecord, layers: list[int], *, memory_mb: float | None, labels: int, loaded: bool, busy: bool
    ) -> None:
        """Show how it stands. ``memory_mb``: what it takes while attached, in MB of 2²⁰ bytes."""
        trained_elsewhere = record.trained_layer != self.record.trained_layer
        self.record = record
        if trained_elsewhere:
            self._own_layer()
        downloading = record.status is SaeStatus.DOWNLOADING
        unfinished = words.sae_can_resume(record)
        state = words.sae_state(record, layers)
        self.name.set_text(record.name or record.id)
        parts = [sae_facts(record)]
        if record.width and record.d_sae is None:
            parts.append(f"width {record.width}")
        parts.append(
            f"{words.size(record.file_size_bytes)} on disk" if record.copied else words.size(record.file_size_bytes)
        )
        if memory_mb is not None:
            parts.append(f"{megabytes(memory_mb * 2**20 / words.MB)} in memory")
        parts.append(f"{count(labels)} labels" if labels else "no labels")
        self.facts.setText(" · ".join(parts))
        self.figures.setText(sae_figures(record))
        self.figures.setVisible(not downloading and not unfinished)
        self._show_badges([state])
        self.error.setText(record.error_message or "")
        self.error.setVisible(bool(record.error_message) and state[0] != "paused")
        self.stage.setVisible(downloading)
        self.progress.setVisible(downloading)
        usable = not layers and not downloading and record.status is not SaeStatus.ERROR
        self.layer.setVisible(usable)
        self.layer.setEnabled(loaded and not busy)
        self.attach_button.setVisible(usable)
        self.attach_button.setEnabled(loaded and not busy and self.layer.value() >= 0)
        self.attach_button.setToolTip("" if loaded else "Load a model first")
        self.detach_button.setVisible(bool(layers))
        self.detach_button.setEnabled(not busy)
        self.pause_button.setVisible(downloading)
        self.cancel_button.setVisible(downloading)
        self.resume_button.setVisible(unfinished)
        self.measure_button.setVisible(not downloading and not unfinished)
        self.measure_button.setEnabled(loaded and not busy)
        self.labels_button.setVisible(not downloading and not unfinished)
        self.delete_button.setVisible(not downloading)
        self.delete_button.setEnabled(not layers and not busy)
        self.verdict.setVisible(bool(self.verdict.text()) and usable)
        self._name_controls(record.id, bool(layers))

    def show_transfer(self, here: int | None, total: int | None, speed: float | None) -> None:
        """How far a download is."""
        self.stage.set_text(words.transfer(here, total, speed))
        self.progress.setValue(round(100 * (here or 0) / total) if total else 0)

    def show_verdict(self, text: str, *, fits: bool) -> None:
        """Whether it can be attached at the layer that is set; empty takes that away."""
        self.verdict.setText(text)
        self.verdict.setProperty("look", "small" if fits else "bad")
        self.verdict.style().unpolish(self.verdict)
        self.verdict.style().polish(self.verdict)
        self.verdict.setVisible(bool(text))

    @property
    def wanted_layer(self) -> int | None:
        """The layer that is set; None for the one it was trained on."""
        value = self.layer.value()
        return None if value < 0 or value == self.record.trained_layer else value

    def _own_layer(self) -> None:
        self.layer.blockSignals(True)
        self.layer.setValue(-1 if self.record.trained_layer is None else self.record.trained_layer)
        self.layer.blockSignals(False)

    def _on_layer(self, value: int) -> None:
        self.attach_button.setEnabled(self.layer.isEnabled() and value >= 0)
        if value < 0 or value == self.record.trained_layer:
            self.show_verdict("", fits=True)
        else:
            self.check.emit(self.record.id, value)

    def _attach(self) -> None:
        self.attach.emit(self.record.id, self.wanted_layer)

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

    def _controls(self) -> tuple[QWidget, ...]:
        return (
            self.layer,
            self.attach_button,
            self.detach_button,
            self.pause_button,
            self.resume_button,
            self.cancel_button,
            self.measure_button,
            self.labels_button,
            self.delete_button,
        )

    def _name_controls(self, sae_id: str, attached: bool) -> None:
        for button, tip in (
            (self.measure_button, f"Measure {sae_id} on the loaded model"),
            (self.labels_button, f"Import labels for {sae_id}"),
            (self.delete_button, "Detach it first" if attached else f"Remove {sae_id}"),
        ):
            button.setToolTip(tip)
            button.setAccessibleName(tip)
        self.layer.setAccessibleName(f"Layer for {sae_id}")
        for plain, verb in (
            (self.attach_button, "Attach"),
            (self.detach_button, "Detach"),
            (self.pause_button, "Pause"),
            (self.resume_button, "Go on with"),
            (self.cancel_button, "Cancel"),
        ):
            plain.setAccessibleName(f"{verb} {sae_id}")

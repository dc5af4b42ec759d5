"""One SAE of the shelf: where it belongs, how good it is, what it takes, and what can be done with it."""

from __future__ import annotations

from PySide6.QtCore import Signal

from engine.public.library import SaeRecord, SaeStatus
from ui.kit import shelf_text as words
from ui.kit.basics import Button, IconButton, inset_text, label, set_property
from ui.kit.number_field import WholeField
from ui.kit.steering_text import sae_facts, sae_figures
from ui.kit.text import counted, megabytes
from ui.shelf.shelf_row import ShelfRow

LAYER_WIDTH = 96


class SaeLine(ShelfRow):
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
        self.record = record
        self.figures = label("", "small", wrap=True)
        self.verdict = label("", "small", wrap=True)
        self.layer = WholeField()
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
        self._lay_out(
            (self.facts, self.figures, self.verdict, self.error, self.stage, self.progress),
            (
                self.layer,
                self.attach_button,
                self.detach_button,
                self.pause_button,
                self.resume_button,
                self.cancel_button,
                self.measure_button,
                self.labels_button,
                self.delete_button,
            ),
        )
        self._own_layer()

    def show_record(
        self, record: SaeRecord, layers: list[int], *, memory_mb: float | None, labels: int, loaded: bool, busy: bool
    ) -> None:
        """Show how it stands. ``memory_mb``: what it takes while attached, in MB of 10⁶ bytes."""
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
        if record.file_size_bytes is not None:
            parts.append(words.size(record.file_size_bytes) + (" on disk" if record.copied else ""))
        if memory_mb is not None:
            parts.append(f"{megabytes(memory_mb)} in memory")
        if not downloading:
            parts.append(counted(labels, "label") if labels else "no labels")
        self.facts.setText(words.in_line(parts))
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
        self.layer.setAccessibleName(f"Layer for {record.id}")
        self._name_actions(
            record.id,
            {
                self.measure_button: f"Measure {record.id} on the loaded model",
                self.labels_button: f"Import labels for {record.id}",
                self.delete_button: "Detach it first" if layers else f"Remove {record.id}",
            },
            {
                self.attach_button: "Attach",
                self.detach_button: "Detach",
                self.pause_button: "Pause",
                self.resume_button: "Go on with",
                self.cancel_button: "Cancel",
            },
        )

    def show_verdict(self, text: str, *, fits: bool) -> None:
        """Whether it can be attached at the layer that is set; empty takes that away."""
        self.verdict.setText(text)
        set_property(self.verdict, "look", "small" if fits else "bad")
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

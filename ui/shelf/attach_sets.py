"""The card about what is attached: memory of each and in all, and sets that are attached with one click."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QLineEdit

from engine.counting import plural
from engine.public.library import AttachSetRecord
from engine.public.saes import AttachmentsView
from ui.kit import theme
from ui.kit.basics import Button, Card, ElidedLabel, IconButton, Notice, column, label, line, rule
from ui.kit.plain_text import as_letters
from ui.kit.text import counted, megabytes
from ui.shelf.memory_card import Sums


def set_words(record: AttachSetRecord, problems: Sequence[str]) -> str:
    """What a set holds, in layers, and what speaks against attaching it."""
    layers = sorted({item.layer for item in record.items})
    number = len(record.items)
    held = f"{counted(number, 'SAE')} on {plural(len(layers), 'layer')} {', '.join(map(str, layers))}"
    return f"{held}. {' '.join(problems)}" if problems else held


class SetRow(QFrame):
    """One saved set."""

    attach = Signal(str)
    delete = Signal(str)

    def __init__(self, record: AttachSetRecord, problems: Sequence[str], *, able: bool) -> None:
        super().__init__()
        self.setObjectName("row")
        self.record = record
        self.about = label(set_words(record, problems), "bad" if problems else "small", wrap=True)
        self.button = Button("Attach", on_click=lambda: self.attach.emit(record.name))
        self.button.setAccessibleName(f"Attach the set {record.name}")
        self.button.setEnabled(able and not problems)
        self.bin = IconButton("bin", f"Delete the set {record.name}", lambda: self.delete.emit(record.name))
        self.setToolTip(as_letters("\n".join(f"{item.sae_id} @ layer {item.layer}" for item in record.items)))
        layout = column(spacing=1, margins=(0, theme.XS, 0, theme.XS))
        layout.addWidget(ElidedLabel(record.name, "strong"))
        layout.addWidget(self.about)
        layout.addLayout(line(self.button, self.bin, None, spacing=theme.S))
        self.setLayout(layout)


class AttachSets(Card):
    """Shows; says what the person wants with signals."""

    attach = Signal(str)
    delete = Signal(str)
    save = Signal(str)

    def __init__(self) -> None:
        super().__init__("Attached")
        self.sums = Sums()
        self.none = label("No SAE is attached.", "muted", wrap=True)
        self.warning = label("", "warn", wrap=True)
        self.notice = Notice()
        self.rows: list[SetRow] = []
        self._sets = column(spacing=2)
        self.hint = label("What is attached together can be saved as a set.", "small", wrap=True)
        self.name = QLineEdit()
        self.name.setPlaceholderText("Name of the set")
        self.name.setAccessibleName("Name of the set")
        self.name.setMaxLength(100)
        self.name.returnPressed.connect(self._save)
        self.save_button = Button("Save what is attached", on_click=self._save)
        for part in (self.none, self.sums, self.warning):
            self.body.addWidget(part)
        self.body.addWidget(rule())
        self.body.addWidget(label("Sets", "group"))
        self.body.addWidget(self.hint)
        self.body.addLayout(self._sets)
        self.body.addWidget(self.notice)
        self.body.addWidget(self.name)
        self.body.addLayout(line(self.save_button, None))
        self.body.addStretch(1)

    def show_attached(self, view: AttachmentsView) -> None:
        """Which SAEs are attached and what they take."""
        rows = [(f"layer {each.layer} · {each.sae_id}", megabytes(each.memory_usage_mb)) for each in view.entries]
        if rows:
            rows.append(("In all", megabytes(view.total_memory_usage_mb)))
        self.sums.show_rows(rows)
        self.sums.setVisible(bool(rows))
        self.none.setVisible(not rows)
        self.warning.setText(
            f"That is more than the {megabytes(view.vram_envelope_mb)} set as MULTISAE_VRAM_ENVELOPE_MB."
            if view.vram_warning
            else ""
        )
        self.warning.setVisible(view.vram_warning)
        self.name.setEnabled(bool(rows))
        self.save_button.setEnabled(bool(rows))

    def show_sets(self, sets: Sequence[tuple[AttachSetRecord, Sequence[str]]], *, able: bool) -> None:
        """The saved sets, each with what speaks against it; ``able``: something can be attached now."""
        for row in self.rows:
            self._sets.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.rows = []
        for record, problems in sets:
            row = SetRow(record, problems, able=able)
            row.attach.connect(self.attach)
            row.delete.connect(self.delete)
            self.rows.append(row)
            self._sets.addWidget(row)
        self.hint.setVisible(not sets)

    def _save(self) -> None:
        if (name := self.name.text().strip()) and self.save_button.isEnabled():
            self.save.emit(name)

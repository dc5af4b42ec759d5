"""Finding a feature of an SAE by the words of its label or by its number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit, QWidget

from engine.engine import Engine
from engine.public.library import FeatureLabel
from ui.bridge import Bridge
from ui.kit import theme
from ui.kit.basics import column, label
from ui.kit.rows_table import Column, RowsTable
from ui.kit.text import counted, describe_error

MOST_FOUND = 200
"""Features listed at most; more words narrow them down."""
PAUSE_MS = 150
"""A search begins when nothing was typed for this long."""
NO_LABEL = "no label"
_NUMBER = re.compile(r"#?\s*(\d{1,18})")


@dataclass(frozen=True)
class Found:
    """What a search gave: the features, and how many labels the SAE has."""

    features: tuple[FeatureLabel, ...]
    labelled: int


def density_words(share: float | None) -> str:
    """How often a feature fires: 0.21 %."""
    return "–" if share is None else f"{share * 100:.2g} %"


def confidence_words(value: float | None) -> str:
    """How sure the source is of a label, 0 to 1."""
    return "–" if value is None else f"{value:.2f}"


def number_words(value: float | None) -> str:
    """A figure of an activation, short."""
    return "–" if value is None else f"{value:.3g}"


_INDEX: Column[FeatureLabel] = Column(
    "#", lambda row: str(row.feature_idx), 66, right=True, muted=True, sort=lambda row: row.feature_idx
)
_LABEL: Column[FeatureLabel] = Column("Label", lambda row: row.label or NO_LABEL, sort=lambda row: row.label)
_DENSITY: Column[FeatureLabel] = Column(
    "Density",
    lambda row: density_words(row.density),
    72,
    right=True,
    muted=True,
    tip="Share of tokens at which it fires",
    sort=lambda row: row.density or 0.0,
)
_CONFIDENCE: Column[FeatureLabel] = Column(
    "Confidence",
    lambda row: confidence_words(row.confidence),
    96,
    right=True,
    muted=True,
    tip="How sure the source of the label is, 0 to 1",
    sort=lambda row: row.confidence or 0.0,
)
_MAXIMUM: Column[FeatureLabel] = Column(
    "Max act.",
    lambda row: number_words(row.max_activation),
    72,
    right=True,
    muted=True,
    tip="The strongest activation its source saw",
    sort=lambda row: row.max_activation or 0.0,
)
_TOKENS: Column[FeatureLabel] = Column(
    "Top tokens", lambda row: " ".join(row.top_tokens[:8]), muted=True, tip="Tokens at which it fires most"
)
NARROW = (_INDEX, _LABEL, _DENSITY, _CONFIDENCE)
WIDE = (_INDEX, _LABEL, _DENSITY, _MAXIMUM, _CONFIDENCE, _TOKENS)


class FeaturePicker(QWidget):
    """A search box over a list; typing searches, Enter or a click picks. ``wide`` shows all that is known of each.

    Searches run in the background; an answer to an older search is dropped.
    """

    picked = Signal(str, int, int)
    """(SAE, layer, feature)."""

    def __init__(self, engine: Engine, bridge: Bridge, *, wide: bool = False) -> None:
        super().__init__()
        self._engine = engine
        self._bridge = bridge
        self._place: tuple[str, int, int] | None = None
        self._search = 0
        self.field = QLineEdit()
        self.field.setPlaceholderText("Search labels, or a feature's number")
        self.field.setAccessibleName("Search features")
        self.field.setClearButtonEnabled(True)
        self.field.installEventFilter(self)
        self.table: RowsTable[FeatureLabel] = RowsTable(WIDE if wide else NARROW, "Features found", sortable=wide)
        self.table.chosen.connect(self._pick)
        self.words = label("", "small", wrap=True)
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(PAUSE_MS)
        self._pause.timeout.connect(self.refresh)
        self.field.textChanged.connect(lambda _text: self._pause.start())
        self.field.returnPressed.connect(self._pick_first)
        layout = column(spacing=theme.S)
        layout.addWidget(self.field)
        layout.addWidget(self.table, 1)
        layout.addWidget(self.words)
        self.setLayout(layout)
        self.setFocusProxy(self.field)

    def set_place(self, sae_id: str, layer: int, width: int) -> None:
        """Search the ``width`` features of this SAE."""
        if self._place != (sae_id, layer, width):
            self._place = (sae_id, layer, width)
            self.table.set_rows(())
            self.refresh()

    @property
    def place(self) -> tuple[str, int] | None:
        """Which SAE is searched, at which layer."""
        return None if self._place is None else self._place[:2]

    def refresh(self) -> None:
        """Search anew: the words or the labels may be others."""
        self._pause.stop()
        self._search += 1
        if self._place is None:
            return
        (sae_id, _layer, width), text, asked = self._place, self.field.text(), self._search
        engine = self._engine
        self._bridge.run_in_background(
            lambda: search(engine, sae_id, width, text),
            lambda found: self._show(found, asked),
            lambda error: self._show_error(error, asked),
            owner=self,
        )

    def shown(self) -> Sequence[FeatureLabel]:
        """What is listed now, from the top."""
        return self.table.rows.rows

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Down goes from the box into the list."""
        if (
            watched is self.field
            and isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.KeyPress
            and event.key() == Qt.Key.Key_Down
            and self.shown()
        ):
            self.table.setFocus()
            self.table.selectRow(0)
            return True
        return super().eventFilter(watched, event)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _show(self, found: Found, asked: int) -> None:
        if asked != self._search:
            return
        self.table.set_rows(found.features)
        if len(found.features) == MOST_FOUND:
            words = f"The first {MOST_FOUND} are listed; more words narrow them down."
        elif found.features:
            words = ""
        elif not found.labelled:
            words = "No feature of this SAE has a label yet. Type a feature's number, or import labels."
        else:
            words = f"None of the {counted(found.labelled, 'label')} holds these words."
        self.words.setText(words)
        self.words.setVisible(bool(words))

    def _show_error(self, error: Exception, asked: int) -> None:
        if asked == self._search:
            self.table.set_rows(())
            self.words.setText(describe_error(error))
            self.words.setVisible(True)

    def _pick_first(self) -> None:
        match = _NUMBER.fullmatch(self.field.text().strip())
        if match is not None and self._place is not None and int(match[1]) < self._place[2]:
            # A number says all there is to say; the list need not have come yet.
            self.picked.emit(self._place[0], self._place[1], int(match[1]))
        elif self.shown() and not self._pause.isActive():
            self._pick(self.shown()[0])

    def _pick(self, row: FeatureLabel) -> None:
        if self._place is not None:
            self.picked.emit(self._place[0], self._place[1], row.feature_idx)


def search(engine: Engine, sae_id: str, width: int, text: str) -> Found:
    """Features whose label holds ``text``; a number within ``width`` first, labelled or not. Reads the library."""
    labels = engine.library.labels
    found = labels.search(sae_id, text, limit=MOST_FOUND)
    match = _NUMBER.fullmatch(text.strip())
    if match is not None and int(match[1]) < width:
        index = int(match[1])
        named = labels.get(sae_id, index) or FeatureLabel(index, "")
        found = [named, *(each for each in found if each.feature_idx != index)][:MOST_FOUND]
    return Found(tuple(found), labels.count(sae_id))

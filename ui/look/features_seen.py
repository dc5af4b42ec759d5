"""What fired most in this session, on the Features page: the live monitor's memory of strongest tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QWidget

from engine.engine import Engine
from engine.public.saes import Attachment
from ui.bridge import Bridge
from ui.kit import theme
from ui.kit.basics import Button, Notice, column, label, line
from ui.kit.rows_table import Column, RowsTable
from ui.kit.text import describe_error
from ui.look.feature_facts import SeenToken, seen_tokens, visible

LISTED = 100
REFRESH_MS = 1000


@dataclass(frozen=True)
class SeenFeature:
    """A feature with its strongest token."""

    index: int
    words: str
    best: SeenToken
    others: str


_COLUMNS: tuple[Column[SeenFeature], ...] = (
    Column("#", lambda row: str(row.index), 66, right=True, muted=True),
    Column("Label", lambda row: row.words),
    Column("Strongest", lambda row: f"{row.best.value:.2f}", 92, right=True),
    Column("Token", lambda row: visible(row.best.token), 110, mono=True),
    Column("Before it", lambda row: visible(row.best.before)),
    Column("Also at", lambda row: row.others, muted=True),
)


class SeenTab(QWidget):
    """Lists features by the strongest token they fired at; refreshed while it is on screen."""

    feature_picked = Signal(int)
    monitor_wanted = Signal()

    def __init__(self, engine: Engine, bridge: Bridge) -> None:
        super().__init__()
        self._engine = engine
        self._bridge = bridge
        self._place: Attachment | None = None
        self._asking = False
        self._cleared = 0
        self.words = label("", "small", wrap=True)
        self.monitor_button = Button("Go to Monitor", "plain", on_click=self.monitor_wanted.emit)
        self.clear_button = Button("Clear", "quiet", on_click=self.clear)
        self.clear_button.setToolTip("Forget all tokens seen so far")
        self.notice = Notice()
        self.table: RowsTable[SeenFeature] = RowsTable(_COLUMNS, "Features seen this session")
        self.table.chosen.connect(lambda row: self.feature_picked.emit(row.index))
        self._timer = QTimer(self)
        self._timer.setInterval(REFRESH_MS)
        self._timer.timeout.connect(self.refresh)
        head = line()
        head.addWidget(self.words, 1)
        head.addWidget(self.monitor_button)
        head.addWidget(self.clear_button)
        inside = column(spacing=theme.S)
        inside.addLayout(head)
        inside.addWidget(self.notice)
        inside.addWidget(self.table, 1)
        self.setLayout(inside)
        self._show((), self._engine.monitor.state().enabled)

    def set_place(self, place: Attachment | None) -> None:
        """List the features of this SAE."""
        if place is not self._place:
            self._place = place
            self.table.set_rows(())
            self.refresh()

    def refresh(self) -> None:
        """Read the memory anew; one reading at a time."""
        place, engine = self._place, self._engine
        if self._asking or place is None:
            return
        self._asking = True
        cleared = self._cleared

        def read() -> tuple[list[SeenFeature], bool]:
            return seen_of(engine, place), engine.monitor.state().enabled

        def shown(found: tuple[list[SeenFeature], bool]) -> None:
            self._asking = False
            if self._cleared != cleared:
                self.refresh()
            elif self._place is place:
                self._show(*found)

        def failed(error: Exception) -> None:
            self._asking = False
            self.notice.show_words(describe_error(error))

        self._bridge.run_in_background(read, shown, failed, owner=self)

    def clear(self) -> None:
        """Forget all tokens."""

        def cleared(_number: int) -> None:
            self._cleared += 1
            self.table.set_rows(())
            self.refresh()

        # What waits to be encoded is encoded first, which takes a while: not on the window's thread.
        self._bridge.run_once(
            ("forget seen tokens",),
            self._engine.monitor.clear_peaks,
            cleared,
            lambda error: self.notice.show_words(describe_error(error)),
            owner=self,
        )

    def showEvent(self, event: QShowEvent) -> None:
        """Follow the monitor while on screen."""
        super().showEvent(event)
        self.refresh()
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        """Rest while nobody looks."""
        super().hideEvent(event)
        self._timer.stop()

    def _show(self, rows: Sequence[SeenFeature], watching: bool) -> None:
        found = list(rows)
        if found != list(self.table.rows.rows):
            self.table.set_rows(found)
        self.clear_button.setEnabled(bool(found))
        words = "The tokens at which features fired most while the monitor watched. Only the token and a few before it "
        words += "are kept, in memory, until the program ends."
        if not watching:
            words += " The monitor is off: nothing new is seen."
        self.words.setText(words)


def seen_of(engine: Engine, place: Attachment) -> list[SeenFeature]:
    """The features of an SAE by their strongest token. Reads the library; for a background thread."""
    peaks = engine.monitor.peaks(place.sae_id, place.layer, limit=LISTED)
    labels = engine.library.labels.of(place.sae_id, [each.feature_idx for each in peaks])
    found = []
    for each in peaks:
        tokens = seen_tokens(engine, each.peaks)
        if tokens:
            index = each.feature_idx
            others = dict.fromkeys(visible(token.token).strip() for token in tokens[1:6])
            words = labels[index].label if index in labels else "no label"
            found.append(SeenFeature(index, words, tokens[0], "  ".join(others)))
    return found

"""How sure anyone is about a circuit: the evidence phrase of its rung, word for word."""

from __future__ import annotations

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QLabel, QSizePolicy

from engine.public.documents import PERSISTENCE_SENTENCE, TESTED_ELSEWHERE, TOP_RUNG, evidence_words, rung_next_step
from ui.kit.basics import label, set_pill
from ui.kit.plain_text import as_letters

RUNG_TONES = ("quiet", "warn", "info", "good")
"""The tone of a pill, and of an edge in a drawing, for rungs 0 to 3."""


def next_words(rung: int) -> str:
    """What would lift a circuit from ``rung``, and where that is done; it never spells a phrase that is not earned."""
    if rung >= TOP_RUNG:
        return "This is the top rung."
    return f"To reach rung {rung + 1}: {rung_next_step(rung)}. {TESTED_ELSEWHERE}"


class RungBadge(QLabel):
    """A pill with the phrase of a rung; without a rung it shows nothing, since that is not rung 0."""

    def __init__(self, rung: int | None = None) -> None:
        super().__init__()
        made = label("", "pill")
        self.setTextFormat(made.textFormat())
        self.setProperty("look", "pill")
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Maximum)
        self._rung: int | None = None
        self.show_rung(rung)

    @property
    def rung(self) -> int | None:
        """Which rung is shown."""
        return self._rung

    def show_rung(self, rung: int | None, only_persistence: bool = False) -> None:
        """Show the phrase of rung 0 to 3, and whether it is for persistence only; nothing for None."""
        self._rung = rung
        words = "" if rung is None else evidence_words(rung, only_persistence)
        more = f" {PERSISTENCE_SENTENCE}" if only_persistence else ""
        set_pill(self, words, "quiet" if rung is None else RUNG_TONES[rung])
        told = "" if rung is None else f"Evidence rung {rung} of {TOP_RUNG}.{more} {next_words(rung)}"
        self.setToolTip(as_letters(told))
        self.setAccessibleName("" if rung is None else f"Evidence: {words}")
        self._obey()

    def changeEvent(self, event: QEvent) -> None:
        """Come into sight once there is a parent to be seen in."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ParentChange:
            self._obey()

    def _obey(self) -> None:
        if self._rung is None:
            self.hide()
        elif self.parentWidget() is not None:
            self.show()

"""Choosing one of the attached SAEs."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox

from engine.public.saes import Attachment
from ui.kit.choice import Choice
from ui.kit.plain_text import as_letters

WIDTH = 260


class PlaceBox(Choice):
    """Lists the attached SAEs and keeps the choice while others come and go."""

    place_chosen = Signal(object)
    """The :class:`Attachment`, or None."""

    def __init__(self, *, everything: str | None = None) -> None:
        """``everything``: what stands for all of them, as the first entry."""
        super().__init__(Qt.TextElideMode.ElideMiddle)
        self.setAccessibleName("Attached SAE")
        self.setMinimumWidth(WIDTH)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self._everything = everything
        self._places: tuple[Attachment, ...] = ()
        self.currentIndexChanged.connect(lambda _index: self.place_chosen.emit(self.place))

    def show_places(self, places: Sequence[Attachment]) -> None:
        """Offer these; says :attr:`place_chosen` where that changes the choice."""
        if tuple(places) == self._places:
            return
        before = self.place
        self._places = tuple(places)
        self.blockSignals(True)
        self.clear()
        if self._everything is not None:
            self.addItem(self._everything)
        for each in self._places:
            self.addItem(f"layer {each.layer} · {each.sae_id}")
        kept = before if before in self._places else None
        offset = 0 if self._everything is None else 1
        if kept is not None:
            self.setCurrentIndex(self._places.index(kept) + offset)
        elif self.count():
            self.setCurrentIndex(0)
        self.blockSignals(False)
        self.setToolTip(as_letters(self.currentText()))
        if self.place is not before:
            self.place_chosen.emit(self.place)

    @property
    def place(self) -> Attachment | None:
        """The one that is chosen; None for all of them, and where there is none."""
        index = self.currentIndex() - (0 if self._everything is None else 1)
        return self._places[index] if 0 <= index < len(self._places) else None

    def choose(self, sae_id: str, layer: int) -> bool:
        """Choose an attachment by its name; False where it is not there."""
        for index, each in enumerate(self._places):
            if (each.sae_id, each.layer) == (sae_id, layer):
                self.setCurrentIndex(index + (0 if self._everything is None else 1))
                return True
        return False

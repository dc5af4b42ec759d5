"""Fields for numbers: they read a point and a comma, and say in words why something is not taken."""

from __future__ import annotations

from PySide6.QtCore import QLocale, QPoint, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QValidator
from PySide6.QtWidgets import QDoubleSpinBox, QSpinBox, QToolTip

from engine.checked import of_kind
from engine.errors import InvalidParameter
from ui.kit.numbers import is_begun, read_number
from ui.kit.plain_text import as_letters
from ui.kit.steady import NumberBox, WholeBox

_State = QValidator.State


class _ReadsNumbers:
    """What both kinds of field share; mixed into Qt's spin boxes.

    What cannot be taken may be typed and pasted all the same: it is answered in words when the field is left or Return
    is pressed, and the former number comes back. A key that did nothing would say nothing.
    """

    _whole = False
    _refused = ""
    _before: float | None = None
    """The number there was before a person began to type."""

    @property
    def _box(self) -> QSpinBox | QDoubleSpinBox:
        """The field itself, as the spin box it is."""
        if not isinstance(self, QSpinBox | QDoubleSpinBox):
            raise TypeError("only Qt's spin boxes read numbers")
        return self

    def _begin(self) -> None:
        box = self._box
        # One spelling for the whole window, whatever the system's is.
        box.setLocale(QLocale.c())
        box.setGroupSeparatorShown(False)
        # Told before the field reads what is typed.
        box.lineEdit().textEdited.connect(self._on_edited)
        box.editingFinished.connect(self._on_finished)

    def _on_edited(self) -> None:
        if self._before is None:
            self._before = self._box.value()

    def _on_finished(self) -> None:
        self._before = None

    def _read(self, text: str) -> float:
        return read_number(self._bare(text), self._box.minimum(), self._box.maximum(), whole=self._whole)

    def _bare(self, text: str) -> str:
        words = text.strip()
        return words.removeprefix(self._box.prefix().strip()).removesuffix(self._box.suffix().strip())

    def validate(self, text: str, pos: int) -> tuple[_State, str, int]:
        """Take what reads as a number in range; let the rest stand until it is finished."""
        special = self._box.specialValueText()
        if special and text == special:
            return _State.Acceptable, text, pos
        try:
            self._read(text)
        except InvalidParameter:
            return _State.Intermediate, text, pos
        return _State.Acceptable, text, pos

    def _refuse(self, text: str) -> None:
        """Keep the words for :meth:`_tell`; nothing is said of a field that was left empty. The number is that of
        before, not the last that could be read on the way.
        """
        try:
            self._read(text)
        except InvalidParameter as error:
            self._refused = "" if is_begun(self._bare(text)) else error.one_line()
        if self._before is not None:
            self._box.setValue(self._before)  # type: ignore[arg-type]

    def _tell(self) -> None:
        words, self._refused = self._refused, ""
        if words:
            field = of_kind(WholeField, self) if self._whole else of_kind(DecimalField, self)
            QToolTip.showText(field.mapToGlobal(QPoint(0, field.height())), as_letters(words), field)
            field.refused.emit(words)


class DecimalField(_ReadsNumbers, NumberBox):
    """A number with a fraction."""

    refused = Signal(str)
    """Why what was typed is not taken."""

    def __init__(self) -> None:
        super().__init__()
        self._begin()

    def valueFromText(self, text: str) -> float:
        """The number that is typed."""
        return self._read(text)

    def fixup(self, text: str) -> str:
        """What is left unfinished is answered, and the former number comes back."""
        self._refuse(text)
        return self.textFromValue(self.value())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Say what Return has refused."""
        super().keyPressEvent(event)
        self._tell()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Say what leaving has refused."""
        super().focusOutEvent(event)
        self._tell()


class WholeField(_ReadsNumbers, WholeBox):
    """A number without a fraction."""

    refused = Signal(str)
    """Why what was typed is not taken."""
    _whole = True

    def __init__(self) -> None:
        super().__init__()
        self._begin()

    def valueFromText(self, text: str) -> int:
        """The number that is typed."""
        return int(self._read(text))

    def fixup(self, text: str) -> str:
        """What is left unfinished is answered, and the former number comes back."""
        self._refuse(text)
        return self.textFromValue(self.value())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Say what Return has refused."""
        super().keyPressEvent(event)
        self._tell()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Say what leaving has refused."""
        super().focusOutEvent(event)
        self._tell()

"""Fields for numbers: they read a point and a comma, and say in words why something is not taken."""

from __future__ import annotations

import re

from PySide6.QtCore import QLocale, QPoint, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QValidator
from PySide6.QtWidgets import QDoubleSpinBox, QSpinBox, QToolTip

from engine.checked import of_kind
from engine.errors import InvalidParameter
from ui.kit.plain_text import as_letters
from ui.kit.steady import NumberBox, WholeBox

_PLAIN = re.compile(r"[+-]?(?:\d{1,12}(?:[.,]\d{0,20})?|[.,]\d{1,20})", re.ASCII)
_BEGUN = re.compile(r"[+-]?[.,]?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}", re.ASCII)
_TWO_MARKS = re.compile(r"[+-]?[\d.,'’ \u00a0\u202f]+", re.ASCII)


def tidy(text: str) -> str:
    """``text`` without blanks around it, and with a plain minus sign."""
    return text.strip().replace("−", "-")


def is_begun(text: str) -> bool:
    """Whether ``text`` may still become a number: nothing, a sign, a mark."""
    return _BEGUN.fullmatch(tidy(text)) is not None


def read_number(text: str, low: float, high: float, *, whole: bool = False) -> float:
    """The number that ``text`` says, from ``low`` to ``high``; a comma is read as a point.

    Raises :class:`InvalidParameter` in words for what is no number, what can be read in two ways (``1,000`` where both
    one and a thousand may be meant, ``1.000,5``), and what is out of range.
    """
    words = tidy(text)
    kind = "whole number" if whole else "number"
    if not _PLAIN.fullmatch(words):
        if _TWO_MARKS.fullmatch(words) and any(mark.isdigit() for mark in words):
            raise _unclear(text, whole)
        raise _refused(f"“{_short(text)}” is no {kind}.", f"Write one from {low:g} to {high:g}.")
    value = float(words.replace(",", "."))
    if _THOUSANDS.fullmatch(words):
        thousands = float(words.replace(",", "").replace(".", ""))
        # A field shows its own numbers with a point, so a point is one; a comma may be either, and so may both marks
        # where only whole numbers are taken.
        if (whole or "," in words) and low <= thousands <= high:
            raise _unclear(text, whole)
    if whole and value != int(value):
        raise _refused(f"“{_short(text)}” is no whole number.", f"Write one from {low:g} to {high:g}.")
    if not low <= value <= high:
        raise _refused(f"{value:g} is outside what can be set here: {low:g} to {high:g}.", "")
    return value


def _unclear(text: str, whole: bool) -> InvalidParameter:
    way = (
        "without any mark between its digits" if whole else "with one point or comma before its fraction, and no other"
    )
    return _refused(f"“{_short(text)}” can be read in more than one way.", f"Write it {way}.")


def _refused(words: str, remedy: str) -> InvalidParameter:
    return InvalidParameter(words, param="number", remedy=remedy or None)


def _short(text: str) -> str:
    return text.strip()[:40]


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

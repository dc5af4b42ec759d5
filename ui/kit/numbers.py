"""Numbers as a person types or pastes them, with a point or a comma. Pure functions."""

from __future__ import annotations

import re

from engine.errors import InvalidParameter

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

"""CSV as programs and spreadsheets read it: one head, one row for each thing, nothing else. Pure functions.

``pandas.read_csv(file)`` and ``csv.DictReader`` take it as it is. Figures have all their digits, what is not known is
an empty cell, and a text that a spreadsheet would run as a formula begins with an apostrophe.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence

Cell = str | int | float | None
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a cell begins with that a spreadsheet takes for a formula, or skips before one."""


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """``rows`` under ``head``; lines end as RFC 4180 wants, and the text is to be written as UTF-8 as it is."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(head)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Cell) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return _text(value)
    return repr(value)


def _text(value: str) -> str:
    # A NUL ends a cell for some readers, and half a pair of surrogates cannot be written at all.
    clean = value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return f"'{clean}" if clean.startswith(FORMULA) else clean

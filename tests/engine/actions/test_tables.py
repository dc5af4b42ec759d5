"""CSV that spreadsheets and programs read in one call."""

from __future__ import annotations

import csv
import io

import pytest

from engine.actions.tables import csv_text


def test_a_head_and_rows_and_nothing_else() -> None:
    text = csv_text(("name", "figure", "count"), [("plain", 0.1 + 0.2, 3), ('two\nlines, "quoted"', None, 0)])
    assert text == 'name,figure,count\r\nplain,0.30000000000000004,3\r\n"two\nlines, ""quoted""",,0\r\n'
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert float(rows[0]["figure"]) == 0.1 + 0.2 and rows[1]["name"] == 'two\nlines, "quoted"'


@pytest.mark.parametrize("start", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"])
def test_no_text_is_a_formula(start: str) -> None:
    ((cell,),) = list(csv.reader(io.StringIO(csv_text(("label",), [(start,)]), newline="")))[1:]
    assert cell == f"'{start}"


def test_numbers_keep_their_sign_and_what_is_not_known_is_empty() -> None:
    assert csv_text(("a", "b", "c"), [(-1.5, float("nan"), float("inf"))]).splitlines()[1] == "-1.5,,inf"


def test_what_cannot_be_written_is_replaced() -> None:
    text = csv_text(("a",), [("nul \0 half \ud800 é 漢",)])
    assert text.encode("utf-8").decode("utf-8").splitlines()[1] == "nul \ufffd half ? é 漢"

"""Numbers as people write them: a comma is read as a point, and what is not taken is answered in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PySide6.QtCore import QLocale, Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from engine.errors import InvalidParameter
from ui.kit.number_field import DecimalField, WholeField, read_number

UI = Path(__file__).parents[2] / "ui"


@pytest.mark.parametrize(
    ("text", "high", "value"),
    [
        ("0,8", 2.0, 0.8),
        ("0.8", 2.0, 0.8),
        (" 1,25 ", 2.0, 1.25),
        (",5", 2.0, 0.5),
        ("1,", 2.0, 1.0),
        ("−0,5", 2.0, -0.5),
        ("+1", 2.0, 1.0),
        # A thousand is out of reach, so this is one.
        ("1,000", 2.0, 1.0),
        ("0,125", 5000.0, 0.125),
        ("1.500", 5000.0, 1.5),
    ],
)
def test_what_is_read(text: str, high: float, value: float) -> None:
    assert read_number(text, -2.0, high) == value


@pytest.mark.parametrize(
    ("text", "whole", "words"),
    [
        ("1.000,5", False, "can be read in more than one way"),
        ("1,000.5", False, "can be read in more than one way"),
        ("1,000", False, "can be read in more than one way"),
        ("1 000", False, "can be read in more than one way"),
        ("1.2.3", False, "can be read in more than one way"),
        ("1.000", True, "can be read in more than one way"),
        ("0,8", True, "is no whole number"),
        ("abc", False, "is no number"),
        ("1e3", False, "is no number"),
        ("nan", False, "is no number"),
        ("", False, "is no number"),
        ("٣", False, "is no number"),
        ("5001", False, "outside what can be set here: 0 to 5000"),
        ("-1", False, "outside what can be set here: 0 to 5000"),
    ],
)
def test_what_is_refused_says_why(text: str, whole: bool, words: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        read_number(text, 0.0, 5000.0, whole=whole)
    assert words in caught.value.message


def test_a_comma_is_typed_and_pasted(qtbot: QtBot) -> None:
    field = DecimalField()
    qtbot.addWidget(field)
    field.setRange(0.0, 2.0)
    field.show()
    field.selectAll()
    qtbot.keyClicks(field, "0,8")
    assert field.value() == 0.8
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert (field.value(), field.text()) == (0.8, "0.80")
    QGuiApplication.clipboard().setText("1,25")
    field.selectAll()
    qtbot.keyClick(field, Qt.Key.Key_V, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert (field.value(), field.text()) == (1.25, "1.25")


@pytest.mark.parametrize("text", ["1.000,5", "seven", "3"])
def test_what_is_not_taken_is_answered_and_the_former_number_stays(qtbot: QtBot, text: str) -> None:
    field = DecimalField()
    qtbot.addWidget(field)
    field.setRange(0.0, 2.0)
    field.setValue(0.5)
    field.show()
    told: list[str] = []
    field.refused.connect(told.append)
    field.selectAll()
    QGuiApplication.clipboard().setText(text)
    qtbot.keyClick(field, Qt.Key.Key_V, Qt.KeyboardModifier.ControlModifier)
    assert told == []
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert len(told) == 1 and text.split()[0] in told[0]
    assert (field.value(), field.text()) == (0.5, "0.50")


def test_numbers_on_the_way_to_what_is_not_taken_do_not_stay(qtbot: QtBot) -> None:
    field = DecimalField()
    qtbot.addWidget(field)
    field.setRange(0.0, 2.0)
    field.setValue(0.5)
    field.show()
    ended: list[float] = []
    field.editingFinished.connect(lambda: ended.append(field.value()))
    field.selectAll()
    qtbot.keyClicks(field, "1.000,5")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert (field.value(), field.text(), ended) == (0.5, "0.50", [0.5])
    # What a program sets meanwhile is the number to go back to.
    field.setValue(1.5)
    field.selectAll()
    qtbot.keyClicks(field, "x")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert field.value() == 1.5


def test_a_field_with_words_around_its_number(qtbot: QtBot) -> None:
    field = WholeField()
    qtbot.addWidget(field)
    field.setRange(0, 1_000_000)
    field.setSpecialValueText("Automatic")
    field.setSuffix(" tokens")
    field.show()
    told: list[str] = []
    field.refused.connect(told.append)
    field.selectAll()
    qtbot.keyClicks(field, "1,024")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert (field.value(), field.text()) == (0, "Automatic")
    assert "without any mark between its digits" in told[0]
    field.selectAll()
    qtbot.keyClicks(field, "1024")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert (field.value(), field.text()) == (1024, "1024 tokens")
    # Left empty, it is what it was, and nothing is said.
    field.lineEdit().clear()
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert (field.value(), len(told)) == (1024, 1)


def test_the_systems_own_spelling_changes_nothing(qtbot: QtBot) -> None:
    before = QLocale()
    QLocale.setDefault(QLocale(QLocale.Language.German))
    try:
        field = DecimalField()
        qtbot.addWidget(field)
        field.setRange(0.0, 2.0)
        for text in ("0,8", "0.8"):
            field.setValue(0.0)
            field.selectAll()
            qtbot.keyClicks(field, text)
            qtbot.keyClick(field, Qt.Key.Key_Return)
            assert (field.value(), field.text()) == (0.8, "0.80")
    finally:
        QLocale.setDefault(before)


def test_every_number_field_of_the_window_is_one_of_these() -> None:
    made = [
        f"{path.relative_to(UI)}: {line.strip()}"
        for path in UI.rglob("*.py")
        if path.name != "number_field.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"Q(Double)?SpinBox\(", line) and "isinstance" not in line
    ]
    assert made == []

"""The dial: range, marks, and a person's turn told apart from the program's."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from pytestqt.qtbot import QtBot

from tests.ui.look import until
from ui.kit.intensity_dial import IntensityDial


class Told:
    """What a dial said."""

    def __init__(self, dial: IntensityDial) -> None:
        self.moved: list[float] = []
        self.settled: list[float] = []
        dial.moved.connect(self.moved.append)
        dial.settled.connect(self.settled.append)


@pytest.fixture
def dial(qtbot: QtBot) -> IntensityDial:
    made = IntensityDial("Intensity of Sea")
    qtbot.addWidget(made)
    made.resize(420, 60)
    made.show()
    made.activateWindow()
    until(qtbot, made.isActiveWindow)
    return made


def test_what_the_program_sets_is_not_told(dial: IntensityDial) -> None:
    told = Told(dial)
    dial.set_range(0.25, 1.75, default=1.0)
    dial.set_value(0.8125)
    assert dial.value() == 0.8125
    assert dial.field.value() == 0.81 and dial.track.value() == 81
    assert told.moved == [] and told.settled == []


def test_zero_is_always_on_the_dial_and_the_rest_is_kept_in_range(dial: IntensityDial) -> None:
    dial.set_range(0.25, 1.75)
    assert (dial.track.minimum(), dial.track.maximum()) == (0, 175)
    dial.set_value(9.0)
    assert dial.value() == 1.75
    dial.set_value(-1.0)
    assert dial.value() == 0.0
    dial.set_value(1.5)
    dial.set_range(0.0, 1.0)
    assert dial.value() == 1.0 and dial.field.value() == 1.0


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (float("nan"), 1.0), (0.0, float("inf")), (0.5, -1.0)])
def test_an_empty_range_is_refused(dial: IntensityDial, low: float, high: float) -> None:
    with pytest.raises(ValueError, match="no range"):
        dial.set_range(low, high)


def test_a_drag_is_told_while_it_lasts_and_once_it_ends(qtbot: QtBot, dial: IntensityDial) -> None:
    dial.set_value(1.0)
    told = Told(dial)
    middle = QPoint(dial.track.width() // 2, dial.track.height() // 2)
    qtbot.mousePress(dial.track, Qt.MouseButton.LeftButton, pos=middle)
    qtbot.mouseMove(dial.track, middle + QPoint(40, 0))
    assert told.moved and told.settled == []
    # Nothing pulls the handle away meanwhile.
    held = dial.value()
    dial.set_value(0.1)
    assert dial.value() == held
    qtbot.mouseMove(dial.track, middle + QPoint(80, 0))
    qtbot.mouseRelease(dial.track, Qt.MouseButton.LeftButton, pos=middle + QPoint(80, 0))
    assert told.settled == [dial.value()] and told.moved[-1] == dial.value()
    assert dial.value() > held > 1.0
    # In steps of 0.05.
    assert all(abs(each * 20 - round(each * 20)) < 1e-6 for each in told.moved)


def test_keys_turn_by_a_twentieth_and_settle_together(qtbot: QtBot, dial: IntensityDial) -> None:
    dial.set_value(1.0)
    told = Told(dial)
    dial.track.setFocus()
    for _press in range(3):
        qtbot.keyClick(dial.track, Qt.Key.Key_Right)
    assert told.moved == [1.05, 1.1, 1.15]
    until(qtbot, lambda: told.settled)
    assert told.settled == [1.15]
    qtbot.keyClick(dial.track, Qt.Key.Key_Home)
    dial.field.setFocus()
    assert told.settled == [1.15, 0.0]


def test_a_typed_number_is_settled_by_enter_or_by_leaving(qtbot: QtBot, dial: IntensityDial) -> None:
    dial.set_value(1.0)
    told = Told(dial)
    dial.field.setFocus()
    dial.field.selectAll()
    qtbot.keyClicks(dial.field, "0.6")
    # On its way to 0.6 it says 0, which is not meant.
    assert told.moved == told.settled == []
    qtbot.keyClick(dial.field, Qt.Key.Key_Return)
    assert told.moved == told.settled == [0.6]
    dial.field.selectAll()
    qtbot.keyClicks(dial.field, "1,2")
    dial.track.setFocus()
    assert told.settled == [0.6, 1.2]
    assert dial.track.value() == 120
    qtbot.keyClick(dial.field, Qt.Key.Key_Up)
    assert told.moved[-1] == 1.25


def test_marks_are_named_where_there_is_room(dial: IntensityDial) -> None:
    dial.set_range(0.0, 2.0, default=1.0, onset=0.2, sweet_spot=1.0, cliff=1.8)
    # The default is where the sweet spot is: one word for both.
    assert [(mark.word, mark.value) for mark in dial.marks.marks] == [
        ("onset", 0.2),
        ("sweet spot", 1.0),
        ("cliff", 1.8),
    ]
    assert [word for _left, word in dial.marks.shown_words()] == ["onset", "sweet spot", "cliff"]
    dial.set_range(0.0, 2.0, onset=0.95, sweet_spot=1.0, cliff=1.05)
    assert [word for _left, word in dial.marks.shown_words()] == ["sweet spot"]
    assert dial.track.cliff == 1.05
    dial.set_range(0.0, 2.0)
    assert dial.marks.sizeHint().height() == 0 and dial.track.cliff is None
    # A mark beyond the range has no place on it.
    dial.set_range(0.0, 1.0, cliff=1.4)
    assert dial.marks.marks == () and dial.track.cliff is None


def test_a_mark_is_a_place_to_go_to(qtbot: QtBot, dial: IntensityDial) -> None:
    dial.set_range(0.0, 2.0, default=0.5, onset=0.2, sweet_spot=1.125, cliff=1.8)
    dial.set_value(0.0)
    told = Told(dial)
    by_mouse: list[None] = []
    dial.released.connect(lambda: by_mouse.append(None))
    word = next(left for left, word in dial.marks.shown_words() if word == "sweet spot")
    qtbot.mouseClick(dial.marks, Qt.MouseButton.LeftButton, pos=QPoint(round(word) + 4, 10))
    # Exactly where it was measured, not on the nearest step.
    assert dial.value() == 1.125 and told.moved == told.settled == [1.125] and len(by_mouse) == 1
    tick = QPoint(round(dial.track.place(0.2)) + 3, 1)
    qtbot.mouseClick(dial.marks, Qt.MouseButton.LeftButton, pos=tick)
    assert told.settled == [1.125, 0.2]
    # Between two marks there is nothing to click.
    qtbot.mouseClick(dial.marks, Qt.MouseButton.LeftButton, pos=QPoint(round(dial.track.place(1.5)), 1))
    qtbot.mouseClick(dial.marks, Qt.MouseButton.RightButton, pos=tick)
    assert told.settled == [1.125, 0.2] and len(by_mouse) == 2


def test_the_way_back_to_the_sweet_spot(qtbot: QtBot, dial: IntensityDial) -> None:
    dial.set_range(0.0, 2.0, default=0.5, sweet_spot=1.125)
    dial.set_value(1.125)
    assert dial.home.isVisible() and not dial.home.isEnabled()
    assert dial.home.accessibleName() == "Back to the sweet spot, λ 1.125"
    dial.set_value(0.0)
    told = Told(dial)
    # By the keyboard, which stays on the dial: the button has nothing more to do.
    dial.home.setFocus()
    qtbot.keyClick(dial.home, Qt.Key.Key_Space)
    assert told.settled == [1.125] and dial.track.hasFocus()
    assert not dial.home.isEnabled()
    dial.set_range(0.0, 2.0, default=0.5)
    assert dial.home.accessibleName() == "Back to the document's own, λ 0.5"
    dial.home.click()
    assert told.settled == [1.125, 0.5]
    # Where nothing was measured or set there is no way back.
    dial.set_range(0.0, 2.0)
    assert not dial.home.isVisible()


def test_the_mouse_says_when_it_is_done(qtbot: QtBot, dial: IntensityDial) -> None:
    dial.set_value(1.0)
    told = Told(dial)
    by_mouse: list[None] = []
    dial.released.connect(lambda: by_mouse.append(None))
    # Beside the handle, too.
    qtbot.mouseClick(
        dial.track, Qt.MouseButton.LeftButton, pos=QPoint(dial.track.width() - 12, dial.track.height() // 2)
    )
    assert len(by_mouse) == 1 and told.settled == [dial.value()]
    qtbot.keyClick(dial.track, Qt.Key.Key_Left)
    assert len(by_mouse) == 1


def test_it_has_a_name(dial: IntensityDial) -> None:
    assert {part.accessibleName() for part in (dial, dial.track, dial.field)} == {"Intensity of Sea"}

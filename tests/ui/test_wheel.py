"""The wheel changes nothing that was not chosen before, and goes on scrolling the page. Events come as from a mouse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractSlider,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QDoubleSpinBox,
    QScrollArea,
    QScrollBar,
    QSpinBox,
    QTabBar,
    QWidget,
)
from pytestqt.qtbot import QtBot

from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.full import PAGES, full_stage, open_page, settle
from tests.ui.look import until
from tests.ui.stage import Stage
from ui.context.page_context import CHAT, SETTINGS
from ui.kit.choice import Choice
from ui.kit.steady import NumberBox, Slider, Steady, WholeBox

CONTROLS = (QComboBox, QAbstractSpinBox, QAbstractSlider, QTabBar)
UI = Path(__file__).parents[2] / "ui"


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path) -> Stage:
    made = full_stage(make_stage, make_engine(), tmp_path / "saes", "Harbour")
    made.window.activateWindow()
    return made


def controls(page: QWidget) -> list[QWidget]:
    return [
        each
        for kind in CONTROLS
        for each in page.findChildren(kind)
        if not isinstance(each, QScrollBar) and each.isVisible() and each.isEnabled()
    ]


def value_of(control: QWidget) -> object:
    if isinstance(control, QComboBox | QTabBar):
        return control.currentIndex()
    if isinstance(control, QSpinBox | QDoubleSpinBox | QAbstractSlider):
        return control.value()
    raise AssertionError(control)


def bring_into_view(control: QWidget) -> None:
    QApplication.processEvents()
    above = control.parentWidget()
    while above is not None:
        if isinstance(above, QScrollArea):
            above.ensureWidgetVisible(control)
        above = above.parentWidget()
    QApplication.processEvents()


def turn(control: QWidget, steps: int = -1) -> None:
    """The wheel, by a notch a step, with the pointer in the middle of ``control``: as the window system brings it."""
    window = control.window()
    for _ in range(abs(steps)):
        spot = control.mapTo(window, control.rect().center())
        if not window.rect().contains(spot):
            # The page was scrolled, as it should be.
            bring_into_view(control)
            spot = control.mapTo(window, control.rect().center())
        delta = QPoint(0, 120 if steps > 0 else -120)
        QTest.wheelEvent(window.windowHandle(), spot, delta)
        QApplication.processEvents()


@pytest.mark.parametrize("key", PAGES)
def test_the_wheel_over_what_was_not_chosen_changes_nothing(qtbot: QtBot, stage: Stage, key: str) -> None:
    page = open_page(stage, qtbot, key)
    if key in (CHAT, SETTINGS, "sweep", "steering"):
        until(qtbot, lambda: controls(page))  # a page fills itself after it is in front
    found = controls(page)
    for control in found:
        bring_into_view(control)
        before = value_of(control)
        if isinstance(control, QComboBox):
            # So that there is something to turn to on both sides.
            assert control.focusPolicy() != Qt.FocusPolicy.WheelFocus
        turn(control, -2)
        turn(control, 2)
        turn(control, -1)
        assert value_of(control) == before, (key, control.accessibleName())
        assert not control.hasFocus(), (key, control.accessibleName())
        assert isinstance(control, Steady)
    if key in (CHAT, SETTINGS, "sweep", "steering"):
        assert found, key


@pytest.mark.parametrize("key", PAGES)
def test_the_keyboard_given_by_the_page_is_no_choice(qtbot: QtBot, stage: Stage, key: str) -> None:
    page = open_page(stage, qtbot, key)
    for control in controls(page):
        bring_into_view(control)
        control.setFocus(Qt.FocusReason.OtherFocusReason)
        before = value_of(control)
        turn(control, -2)
        turn(control, 1)
        assert value_of(control) == before, (key, control.accessibleName())


def test_the_page_scrolls_under_a_control(qtbot: QtBot, stage: Stage) -> None:
    stage.window.resize(900, 480)
    page = open_page(stage, qtbot, SETTINGS)
    assert isinstance(page, QScrollArea)
    bar = page.verticalScrollBar()
    for control in controls(page):
        bar.setValue(0)
        bring_into_view(control)
        bar.setValue(max(0, bar.value() - 60))
        before = bar.value()
        if bar.value() == bar.maximum():
            continue
        settle(stage)
        turn(control)
        assert bar.value() > before, control.accessibleName()


class Shelf(QScrollArea):
    """A page with one control of each kind on it, higher than its window."""

    def __init__(self) -> None:
        super().__init__()
        inside = QWidget()
        inside.setFixedSize(300, 1200)
        self.whole, self.number, self.slider, self.choice = WholeBox(), NumberBox(), Slider(), Choice()
        self.choice.addItems(["one", "two", "three"])
        for place, each in enumerate((self.whole, self.number, self.slider, self.choice)):
            each.setParent(inside)
            each.setGeometry(10, 10 + 40 * place, 200, 30)
        self.whole.setValue(5)
        self.number.setValue(5.0)
        self.slider.setValue(5)
        self.choice.setCurrentIndex(1)
        self.setWidget(inside)
        self.resize(340, 300)


@pytest.mark.parametrize("name", ["whole", "number", "slider", "choice"])
@pytest.mark.parametrize("way", ["click", "tab"])
def test_what_a_person_chose_is_turned(qtbot: QtBot, name: str, way: str) -> None:
    page = Shelf()
    qtbot.addWidget(page)
    page.show()
    page.activateWindow()
    qtbot.waitActive(page)
    control = getattr(page, name)
    before = value_of(control)
    turn(control)
    assert value_of(control) == before and page.verticalScrollBar().value() > 0
    page.verticalScrollBar().setValue(0)
    if way == "tab":
        page.setFocus()
        control.setFocus(Qt.FocusReason.TabFocusReason)
    elif name == "choice":
        # A click opens the list; Esc closes it again.
        qtbot.mouseClick(control, Qt.MouseButton.LeftButton)
        qtbot.keyClick(control.view(), Qt.Key.Key_Escape)
        qtbot.waitUntil(lambda: not control.view().isVisible())
        page.activateWindow()
        qtbot.waitUntil(control.hasFocus)
    else:
        qtbot.mouseClick(control.childAt(control.rect().center()) or control, Qt.MouseButton.LeftButton)
        before = value_of(control)
    turn(control)
    assert value_of(control) != before
    assert page.verticalScrollBar().value() == 0
    page.setFocus()
    after = value_of(control)
    turn(control)
    assert value_of(control) == after and page.verticalScrollBar().value() > 0


def test_no_control_is_made_another_way() -> None:
    """A control that is not steady would be changed by scrolling past it."""
    raw = re.compile(r"\b(QComboBox|QSpinBox|QDoubleSpinBox|QSlider|QDial|QTabBar|QTabWidget|QDateEdit)\(")
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted(UI.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if raw.search(line) and not line.startswith("class ")
    ]
    assert found == []

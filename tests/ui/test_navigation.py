"""The navigation with all its pages: whole at the usual size, scrolled in a low window, reached by key."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint
from pytestqt.qtbot import QtBot

from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from ui.context.page_context import GROUPS, HOME, SETTINGS

KEYS = [spec.key for _group, specs in GROUPS for spec in specs]


def test_every_page_is_seen_at_the_usual_size(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    window = make_stage(make_engine(folder=None)).window
    assert window.size().toTuple() == (1280, 800)
    until(qtbot, lambda: window.navigation._scroll.verticalScrollBar().maximum() == 0)
    for key in KEYS:
        assert not window.navigation.button(key).visibleRegion().isEmpty(), key


@pytest.mark.parametrize("size", [(1280, 500), (640, 440)])
def test_a_low_window_scrolls_to_the_page_that_is_open(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, size: tuple[int, int]
) -> None:
    window = make_stage(make_engine(folder=None)).window
    window.resize(*size)
    assert window.size().toTuple() == size
    navigation = window.navigation
    until(qtbot, lambda: navigation._scroll.verticalScrollBar().maximum() > 0)
    for key in (SETTINGS, HOME):
        window.show_page(key)
        button = navigation.button(key)
        middle = button.mapTo(navigation._scroll.viewport(), QPoint(0, button.height() // 2)).y()
        assert 0 < middle < navigation._scroll.viewport().height(), key

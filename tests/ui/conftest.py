"""Fixtures of the window's tests: real engines, a real server, real widgets without a screen; a Qt warning fails a test."""

from __future__ import annotations

import os

# Before Qt is imported anywhere.
os.environ["QT_QPA_PLATFORM"] = "offscreen"

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.engine import Engine
from engine.events import EventBus
from tests.ui.stage import Stage, open_stage
from ui.bridge import Bridge
from ui.kit import theme

StageMaker = Callable[..., Stage]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.qt_log_level_fail("WARNING"))
            # The offscreen platform says these of windows of fixed height, raising, menus and tray icons; about itself.
            item.add_marker(
                pytest.mark.qt_log_ignore(
                    "does not support propagateSizeHints",
                    "does not support raise",
                    "grabbing the keyboard",
                    "systemTrayWindowChanged",
                )
            )


@pytest.fixture(autouse=True)
def dressed(qapp: QApplication) -> None:
    """Every test has the theme installed, in light."""
    from PySide6.QtCore import Qt

    theme.install(qapp, Qt.ColorScheme.Light)


@pytest.fixture
def events() -> EventBus:
    return EventBus()


@pytest.fixture
def bridge(qapp: QApplication, events: EventBus) -> Iterator[Bridge]:
    """A bridge on a bus of its own."""
    made = Bridge(events)
    yield made
    assert made.shutdown(30), "background work of the test was still running"


@pytest.fixture
def make_stage(qtbot: QtBot, tmp_path: Path) -> Iterator[StageMaker]:
    """A function from an engine to the whole window on it, with a real server that listens on a free port."""
    made: list[Stage] = []

    def make(engine: Engine, **options: object) -> Stage:
        stage = open_stage(engine, tmp_path, **options)  # type: ignore[arg-type]
        qtbot.addWidget(stage.window)
        made.append(stage)
        return stage

    yield make
    for stage in made:
        stage.window.close()
        stage.server.stop(30)
        assert stage.bridge.shutdown(30), "background work of the window was still running"

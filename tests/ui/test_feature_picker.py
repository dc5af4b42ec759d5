"""Finding features by label and by number, with the keyboard and the mouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from pytestqt.qtbot import QtBot

from engine.engine import Engine
from engine.library.records import FeatureLabel
from tests.conftest import EngineMaker
from tests.made_saes import make_sae
from tests.ui.look import until
from ui.bridge import Bridge
from ui.kit.feature_picker import FeaturePicker

LABELS = (
    FeatureLabel(3, "ships and the sea", density=0.0021, confidence=0.9, max_activation=41.25, top_tokens=("sea", "s")),
    FeatureLabel(7, "money", density=0.013),
    FeatureLabel(12, "The sea in winter"),
)


@pytest.fixture
def engine(make_engine: EngineMaker, tmp_path: Path) -> Engine:
    made = make_engine(None)
    made.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id="made")
    made.saes.import_labels("made", LABELS)
    return made


@pytest.fixture
def bridge_on(engine: Engine) -> Iterator[Bridge]:
    made = Bridge(engine.events)
    yield made
    assert made.shutdown(30)


def shown(picker: FeaturePicker) -> list[list[str]]:
    model = picker.table.rows
    return [[str(model.data(model.index(r, c))) for c in range(model.columnCount())] for r in range(model.rowCount())]


def indices(picker: FeaturePicker) -> list[int]:
    return [row.feature_idx for row in picker.shown()]


@pytest.fixture
def picker(qtbot: QtBot, engine: Engine, bridge_on: Bridge) -> FeaturePicker:
    made = FeaturePicker(engine, bridge_on)
    qtbot.addWidget(made)
    made.resize(500, 300)
    made.show()
    made.set_place("made", 1, 64)
    until(qtbot, lambda: indices(made) == [3, 7, 12])
    return made


def test_every_labelled_feature_is_listed_first(picker: FeaturePicker) -> None:
    assert shown(picker) == [
        ["3", "ships and the sea", "0.21 %", "0.90"],
        ["7", "money", "1.3 %", "–"],
        ["12", "The sea in winter", "–", "–"],
    ]
    assert picker.place == ("made", 1) and picker.words.isHidden()


def test_words_narrow_the_list_and_enter_picks(qtbot: QtBot, picker: FeaturePicker) -> None:
    heard: list[tuple[str, int, int]] = []
    picker.picked.connect(lambda *what: heard.append(what))
    qtbot.keyClicks(picker.field, "SEA")
    until(qtbot, lambda: indices(picker) == [3, 12])
    qtbot.keyClick(picker.field, Qt.Key.Key_Return)
    assert heard == [("made", 1, 3)]
    qtbot.keyClick(picker.field, Qt.Key.Key_Down)
    qtbot.keyClick(picker.table, Qt.Key.Key_Down)
    qtbot.keyClick(picker.table, Qt.Key.Key_Return)
    assert heard[1:] == [("made", 1, 12)]
    where = picker.table.visualRect(picker.table.rows.index(0, 1)).center()
    qtbot.mouseClick(picker.table.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(where))
    assert heard[2:] == [("made", 1, 3)]


def test_a_number_needs_no_label(qtbot: QtBot, picker: FeaturePicker) -> None:
    heard: list[tuple[str, int, int]] = []
    picker.picked.connect(lambda *what: heard.append(what))
    picker.field.setText("#41")
    qtbot.keyClick(picker.field, Qt.Key.Key_Return)
    assert heard == [("made", 1, 41)]
    until(qtbot, lambda: shown(picker) == [["41", "no label", "–", "–"]])
    picker.field.setText("64")
    until(qtbot, lambda: picker.words.text() == "None of the 3 labels holds these words.")
    qtbot.keyClick(picker.field, Qt.Key.Key_Return)
    assert len(heard) == 1


def test_an_sae_without_labels_says_so(qtbot: QtBot, picker: FeaturePicker, engine: Engine) -> None:
    engine.library.labels.clear("made")
    picker.refresh()
    until(qtbot, lambda: picker.words.text().startswith("No feature of this SAE has a label yet."))


def test_wide_shows_all_that_is_known_and_sorts(qtbot: QtBot, engine: Engine, bridge_on: Bridge) -> None:
    picker = FeaturePicker(engine, bridge_on, wide=True)
    qtbot.addWidget(picker)
    picker.set_place("made", 1, 64)
    until(qtbot, lambda: len(picker.shown()) == 3)
    assert shown(picker)[0] == ["3", "ships and the sea", "0.21 %", "41.2", "0.90", "sea s"]
    picker.table.sortByColumn(2, Qt.SortOrder.DescendingOrder)
    assert indices(picker) == [7, 3, 12]
    picker.refresh()
    until(qtbot, lambda: len(picker.shown()) == 3)
    assert indices(picker) == [7, 3, 12]

"""The Features page on a real engine with made-up SAEs: labels, reading, contrast, what was seen, imports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QFileDialog
from pytestqt.qtbot import QtBot

from engine.generation.request import GenerationRequest, TextInput
from engine.library.records import FeatureLabel
from engine.sampling import Sampling
from tests.conftest import EngineMaker
from tests.made_saes import make_mirror_sae, make_sae
from tests.ui.conftest import StageMaker
from tests.ui.drops import drop
from tests.ui.look import in_sight, until
from tests.ui.stage import Stage
from ui.context.page_context import FEATURES, MONITOR, STEERING
from ui.kit.basics import Button
from ui.kit.steer_targets import TargetKind
from ui.look.features import CONTRAST, READ, SEEN, FeaturesPage

PLACE = ("mirror", 1)
TEXT = "the sea was calm and the ship went"


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path) -> Stage:
    """The Features page in front; an SAE whose features are the stream's coordinates is attached."""
    engine = make_engine()
    engine.saes.import_local(make_mirror_sae(tmp_path / "mirror", layer=1, model_name="tiny-llama"), sae_id="mirror")
    engine.saes.import_labels(
        "mirror", [FeatureLabel(index, f"coordinate {index}", density=0.01) for index in range(8)]
    )
    engine.attachments.attach("mirror")
    made = make_stage(engine)
    made.window.show_page(FEATURES)
    return made


@pytest.fixture
def page(stage: Stage, qtbot: QtBot) -> FeaturesPage:
    found = stage.window.page(FEATURES)
    assert isinstance(found, FeaturesPage)
    until(qtbot, lambda: len(found.picker.shown()) == 8)
    return found


def values(stage: Stage) -> dict[int, float]:
    return dict(stage.engine.desk.state.entry(PLACE).values)


def read(page: FeaturesPage, qtbot: QtBot, text: str = TEXT) -> None:
    page.tabs[READ].click()
    page.reading.field.setPlainText(text)
    page.reading.read_button.click()
    until(qtbot, lambda: page.reading.read_button.isEnabled() and page.reading.reading is not None)


def test_without_an_sae_the_page_shows_the_way(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    stage = make_stage(make_engine(None))
    stage.window.show_page(FEATURES)
    page = stage.window.page(FEATURES)
    assert isinstance(page, FeaturesPage)
    assert page.gate.isVisible() and not page.picker.isVisible() and not page.import_button.isVisible()
    page.gate_button.click()
    assert stage.window.open_page == STEERING


def test_a_feature_is_found_shown_and_put_on_the_dial(qtbot: QtBot, stage: Stage, page: FeaturesPage) -> None:
    page.picker.field.setText("coordinate 3")
    until(qtbot, lambda: [row.feature_idx for row in page.picker.shown()] == [3])
    qtbot.keyClick(page.picker.field, Qt.Key.Key_Return)
    until(qtbot, lambda: page.detail.facts is not None)
    facts = page.detail.facts
    assert facts is not None and facts.index == 3 and facts.row_norm == 1.0 and facts.typical_norm is not None
    assert page.detail.title.text() == "coordinate 3" and "fires at 1 % of tokens" in page.detail.figures.text()
    page.detail.multiple.setValue(0.1)
    page.detail.try_button.click()
    until(qtbot, lambda: values(stage) == {3: round(0.1 * facts.typical_norm, 2)})
    assert "#3 steers every answer" in page.notice.words()


def test_a_text_is_read_token_by_token(qtbot: QtBot, stage: Stage, page: FeaturesPage) -> None:
    read(page, qtbot)
    reading = page.reading.reading
    assert reading is not None and "".join(chip.text for chip in page.reading.chips.chips) == TEXT
    chips = page.reading.chips
    assert chips.chips[0].faint and not chips.chips[1].faint
    assert page.reading.table.rows.rows[0].value == max(t.top_k[0][1] for t in reading.tokens if not t.sink)
    qtbot.mouseClick(chips, Qt.MouseButton.LeftButton, pos=chips.rect_of(2).center())
    assert chips.chosen == 2
    rows = page.reading.table.rows.rows
    assert [(row.index, row.value) for row in rows] == list(reading.tokens[2].top_k)
    qtbot.keyClick(chips, Qt.Key.Key_Right)
    assert chips.chosen == 3
    index = page.reading.table.rows.rows[0].index
    where = page.reading.table.visualRect(page.reading.table.rows.index(0, 1)).center()
    qtbot.mouseClick(page.reading.table.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(where))
    until(qtbot, lambda: page.reading.clear_colour.isVisible())
    assert page.detail.facts is None or page.detail.facts.index == index
    chosen = page.reading.chips.chips[3]
    assert chosen.value == pytest.approx(reading.tokens[3].top_k[0][1], abs=1e-4)
    page.reading.clear_colour.click()
    assert not page.reading.clear_colour.isVisible()
    page.reading.all_button.click()
    assert chips.chosen is None
    assert stage.engine.monitor.history() == []


def test_a_message_goes_through_the_template(qtbot: QtBot, page: FeaturesPage) -> None:
    page.reading.as_message.setChecked(True)
    read(page, qtbot, "the sea")
    assert page.reading.chips.chips[0].text == "<|im_start|>"


def test_what_cannot_be_read_is_said(qtbot: QtBot, page: FeaturesPage) -> None:
    page.tabs[READ].click()
    page.reading.read_button.click()
    until(qtbot, lambda: "The text is empty" in page.reading.notice.words())
    page.reading.colour(3)
    assert "Read a text first" in page.reading.notice.words()
    page.reading.field.setPlainText(TEXT * 400)
    page.reading.read_button.click()
    until(qtbot, lambda: "context window" in page.reading.notice.words())


def test_two_sets_are_contrasted_tried_and_saved(qtbot: QtBot, stage: Stage, page: FeaturesPage) -> None:
    page.tabs[CONTRAST].click()
    tab = page.contrast
    tab.first.setPlainText("the ship went along the coast\n\nthe sea was calm")
    tab.second.setPlainText("a smile is written in bytes\nand never looks back")
    tab.cap.setValue(100.0)
    assert not tab.save_button.isEnabled()
    tab.run_button.click()
    until(qtbot, lambda: len(tab.table.rows.rows) > 3)
    rows = list(tab.table.rows.rows)
    assert [row.feature.score for row in rows] == sorted((row.feature.score for row in rows), reverse=True)
    assert tab.choice.text() == "Nothing selected: the first 3 are taken"
    tab.table.selectRow(1)
    assert tab.choice.text() == "1 selected"
    tab.try_button.click()
    until(qtbot, lambda: list(values(stage)) == [rows[1].feature.index])
    tab.save_button.click()
    tab.name.setText("Ships")
    qtbot.keyClick(tab.name, Qt.Key.Key_Return)
    until(qtbot, lambda: "Saved as the cluster “Ships”" in tab.notice.words())
    (cluster,) = stage.engine.clusters.list().clusters
    assert (cluster.record.name, cluster.record.bound) == ("Ships", True)
    document = stage.engine.clusters.export(cluster.record.id)
    assert [member["feature_idx"] for member in document["members"]] == [rows[1].feature.index]
    tab.b_button.click()
    assert tab.table.rows.rows and tab.table.rows.rows != rows
    tab.second.clear()
    tab.run_button.click()
    until(qtbot, lambda: "There is no text in B" in tab.notice.words())


@pytest.mark.parametrize("size", [(1280, 800), (900, 620)])
def test_saving_a_contrast_opens_in_sight_and_leads_to_the_comparison(
    qtbot: QtBot, stage: Stage, page: FeaturesPage, size: tuple[int, int]
) -> None:
    stage.window.resize(*size)
    tab = page.contrast
    page.tabs[CONTRAST].click()
    tab.first.setPlainText("the ship went along the coast\n\nthe sea was calm")
    tab.second.setPlainText("a smile is written in bytes\nand never looks back")
    tab.cap.setValue(100.0)
    tab.run_button.click()
    until(qtbot, lambda: tab.save_button.isEnabled())
    for _round in range(8):
        QApplication.processEvents()
    high = tab.table.height()
    tab.save_button.click()
    until(qtbot, lambda: in_sight(tab.save_panel))
    # It stands where the buttons stood: the list above keeps its height.
    assert abs(tab.table.height() - high) <= 2 and not tab.save_button.isVisible()
    tab.name.setText("Ships")
    qtbot.keyClick(tab.name, Qt.Key.Key_Return)
    until(qtbot, lambda: "Saved as the cluster “Ships”" in tab.notice.words() and in_sight(tab.notice))
    assert tab.save_button.isVisible()
    (saved,) = stage.engine.clusters.list().clusters
    button = next(each for each in tab.notice.findChildren(Button) if each.text() == "Compare with it")
    button.click()
    chat = stage.window.chat
    until(qtbot, lambda: stage.window.stack.currentWidget() is chat and chat.comparing)
    until(qtbot, lambda: chat.dial.chosen == (TargetKind.CLUSTER, saved.record.id))


def test_what_the_monitor_saw_is_listed_and_cleared(qtbot: QtBot, stage: Stage, page: FeaturesPage) -> None:
    page.tabs[SEEN].click()
    assert "The monitor is off" in page.seen.words.text()
    engine = stage.engine
    engine.monitor.configure(True)
    asked = GenerationRequest(
        "tiny-llama", TextInput(("the sea",)), sampling=Sampling(temperature=0.0, ignore_eos=True), max_tokens=6
    )
    engine.generation.submit(engine.generation.prepare(asked), lambda _delta: None)
    until(qtbot, lambda: len(page.seen.table.rows.rows) > 5)
    rows = page.seen.table.rows.rows
    assert rows[0].best.value == max(row.best.value for row in rows)
    page.seen.table.chosen.emit(rows[0])
    until(qtbot, lambda: page.detail.facts is not None and page.detail.facts.index == rows[0].index)
    assert page.detail.facts is not None and page.detail.facts.seen[0] == rows[0].best
    page.seen.clear_button.click()
    until(qtbot, lambda: page.seen.table.rows.rows == [])
    assert engine.monitor.peaks("mirror", 1) == ()
    page.seen.monitor_button.click()
    assert stage.window.open_page == MONITOR


def test_labels_come_by_dialog_and_by_drop(qtbot: QtBot, stage: Stage, page: FeaturesPage, tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("feature_idx,label\n20,harbour\n21,\n", encoding="utf-8")
    page.import_button.click()
    assert isinstance(page.file_dialog, QFileDialog)
    page.file_dialog.fileSelected.emit(str(table))
    page.file_dialog.close()
    until(qtbot, lambda: "Labels of 1 feature of mirror are stored. 1 row had none." in page.notice.words())
    page.picker.field.setText("harbour")
    until(qtbot, lambda: [row.feature_idx for row in page.picker.shown()] == [20])
    lines = [{"index": "20", "description": "ports", "modelId": "m", "layer": "1-res"}]
    export = tmp_path / "explanations.jsonl"
    export.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert drop(page, [export])
    page.picker.field.setText("ports")
    until(qtbot, lambda: [row.label for row in page.picker.shown()] == ["ports"])
    broken = tmp_path / "broken.json"
    broken.write_text("{", encoding="utf-8")
    assert drop(page, [broken])
    until(qtbot, lambda: "is not JSON" in page.notice.words())


def test_the_page_follows_what_is_attached(qtbot: QtBot, stage: Stage, page: FeaturesPage, tmp_path: Path) -> None:
    read(page, qtbot)
    stage.engine.saes.import_local(make_sae(tmp_path / "second", layer=2), sae_id="second")
    stage.engine.attachments.attach("second")
    until(qtbot, lambda: page.places.count() == 2)
    assert page.places.currentText() == "layer 1 · mirror" and page.reading.reading is not None
    page.arrive(sae_id="second", layer=2, text="to read")
    assert page.picker.place == ("second", 2) and page.reading.reading is None
    assert page.stack.currentIndex() == READ and page.reading.field.toPlainText() == "to read"
    stage.engine.attachments.detach("second")
    stage.engine.attachments.detach("mirror")
    until(qtbot, lambda: page.gate.isVisible())

"""The SAEs page on a real engine: shelf, attaching, sets, labels, imports, drops, and downloads from a stand-in hub."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from engine.actions.downloading.saes import HubSaeFile, SaePreview
from tests.conftest import EngineMaker
from tests.hub import StandInHub
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.drops import drop
from tests.ui.look import in_sight, plain, told_in, until
from tests.ui.stage import Stage
from ui.context.page_context import SAES
from ui.kit import shelf_text as words
from ui.kit.basics import Button, Notice
from ui.shelf.sae_row import SaeLine
from ui.shelf.saes import SaesPage
from ui.shelf.saes_shelf import file_of

REPO = "acme/tiny-saes"


def open_page(stage: Stage, qtbot: QtBot) -> SaesPage:
    stage.window.show_page(SAES)
    page = stage.window.page(SAES)
    assert isinstance(page, SaesPage)
    until(qtbot, lambda: not page._reading)
    return page


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path) -> Stage:
    """The tiny model loaded, and two SAEs on the shelf: ``one`` of layer 1, ``two`` of layer 2."""
    engine = make_engine()
    for name, layer in (("one", 1), ("two", 2)):
        engine.saes.import_local(make_sae(tmp_path / name, layer=layer, seed=layer), sae_id=name)
    return make_stage(engine)


def badge(row: SaeLine) -> str:
    return row.badges[0][0]


def press(notice: Notice, words_on_it: str) -> None:
    next(each for each in notice.findChildren(Button) if each.text() == words_on_it).click()


# --- attaching --------------------------------------------------------------------------------------------------------


def test_an_sae_says_what_it_is_and_is_attached_and_detached(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, qtbot)
    one = page.rows["one"]
    facts = plain(one.facts.text())
    assert facts.startswith("layer 1 · 64 features · standard · ") and facts.endswith("no labels")
    assert one.figures.text().startswith("L0 ") and "explains" in one.figures.text()
    assert badge(one) == "on the disk" and page.sets.none.isVisible()
    one.attach_button.setFocus()
    qtbot.keyClick(one.attach_button, Qt.Key.Key_Space)
    until(qtbot, lambda: badge(one) == "attached" and one.detach_button.isEnabled())
    assert "in memory" in plain(one.facts.text())
    assert list(page.sets.sums.rows()) == ["layer 1 · one", "In all"]
    assert not one.delete_button.isEnabled() and one.delete_button.toolTip() == "Detach it first"
    one.detach_button.click()
    until(qtbot, lambda: badge(one) == "on the disk")
    assert stage.engine.desk.state.attachments == ()


def test_another_layer_is_checked_before_it_is_tried(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, qtbot)
    one = page.rows["one"]
    one.layer.setValue(9)
    until(qtbot, lambda: one.verdict.text())
    assert "layer" in one.verdict.text() and one.verdict.property("look") == "bad"
    one.layer.setValue(3)
    until(qtbot, lambda: one.verdict.property("look") == "small" and "layer" in one.verdict.text())
    one.attach_button.click()
    until(qtbot, lambda: badge(one) == "attached to layer 3")
    until(qtbot, lambda: "trained" in page.notice.words())


def test_without_a_model_nothing_can_be_attached_and_it_is_said(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    engine = make_engine(load=False)
    engine.saes.import_local(make_sae(tmp_path / "one"), sae_id="one")
    page = open_page(make_stage(engine), qtbot)
    one = page.rows["one"]
    assert not one.attach_button.isEnabled() and one.attach_button.toolTip() == "Load a model first"
    assert one.figures.text().startswith("not measured yet")
    (record,) = engine.shelf.list()
    engine.loader.load(record.id)
    until(qtbot, lambda: one.attach_button.isEnabled() and one.figures.text().startswith("L0 "))


def test_a_change_through_the_engine_is_shown_without_a_click(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, qtbot)
    stage.bridge.run_in_background(lambda: stage.engine.attachments.attach("two"))
    until(qtbot, lambda: badge(page.rows["two"]) == "attached")
    assert list(page.rows) and page._list.indexOf(page.rows["two"]) == 0


# --- sets -------------------------------------------------------------------------------------------------------------


def test_what_is_attached_is_saved_as_a_set_attached_in_one_click_and_forgotten(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, qtbot)
    assert not page.sets.save_button.isEnabled()
    for name in ("one", "two"):
        page.rows[name].attach_button.click()
        until(qtbot, lambda name=name: badge(page.rows[name]).startswith("attached"))
        until(qtbot, lambda: page._working == 0)
    page.sets.name.setFocus()
    qtbot.keyClicks(page.sets.name, "both")
    qtbot.keyClick(page.sets.name, Qt.Key.Key_Return)
    until(qtbot, lambda: len(page.sets.rows) == 1)
    assert page.sets.rows[0].about.text() == "2 SAEs on layers 1, 2"
    assert page.sets.rows[0].toolTip() == "one @ layer 1\ntwo @ layer 2"
    for name in ("one", "two"):
        stage.engine.attachments.detach(name)
    until(qtbot, lambda: page.sets.none.isVisible() and page.sets.rows[0].button.isEnabled())
    page.sets.rows[0].button.click()
    until(qtbot, lambda: page.notice.words() == "both is attached: 2 SAEs.")
    assert len(stage.engine.desk.state.attachments) == 2
    page.sets.rows[0].bin.click()
    assert page.sets.notice.words() == "Forget the set both? Its SAEs stay."
    press(page.sets.notice, "Forget it")
    until(qtbot, lambda: not page.sets.rows)


def test_a_set_that_does_not_fit_says_why(qtbot: QtBot, stage: Stage) -> None:
    stage.engine.attachments.save_set("far", [("one", 99)])
    stage.engine.attachments.save_set("lost", [("nobody", 1)])
    page = open_page(stage, qtbot)
    rows = {row.record.name: row for row in page.sets.rows}
    assert "layer" in rows["far"].about.text().split(". ", 1)[1] and not rows["far"].button.isEnabled()
    assert rows["lost"].about.text().endswith("nobody is not on the shelf any more.")


# --- coming in and going ----------------------------------------------------------------------------------------------


def test_a_folder_is_chosen_or_dropped(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    page = open_page(make_stage(make_engine(folder=None)), qtbot)
    assert page.empty.isVisible()
    folder = make_sae(tmp_path / "one", layer=1)
    page.add.folder_button.click()
    dialog = page.dialog
    assert dialog is not None and dialog.fileMode() == QFileDialog.FileMode.Directory
    dialog.setDirectory(str(tmp_path))
    dialog.selectFile(str(folder))
    dialog.accept()
    until(qtbot, lambda: page.notice.words().endswith("is imported."))
    until(qtbot, lambda: len(page.rows) == 1)
    assert drop(page, [make_sae(tmp_path / "two", layer=2, seed=2)])
    until(qtbot, lambda: len(page.rows) == 2)
    assert drop(page, [folder])
    until(qtbot, lambda: page.notice.words().endswith("is here already."))
    text = tmp_path / "notes.txt"
    text.write_text("x")
    assert drop(page, [text])
    empty = tmp_path / "empty"
    empty.mkdir()
    drop(page, [empty])
    until(qtbot, lambda: "empty" in page.notice.words() and not page.notice.words().startswith("Reading"))


def test_labels_are_imported_and_counted(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "labels.json"
    file.write_text(json.dumps([{"index": 1, "label": "ships"}, {"index": 2, "label": "law"}]), encoding="utf-8")
    page = open_page(stage, qtbot)
    page.rows["one"].labels_button.click()
    assert page.dialog is not None and page.dialog.fileMode() == QFileDialog.FileMode.ExistingFile
    page.dialog.reject()
    page.import_labels("one", str(file))
    until(qtbot, lambda: plain(page.rows["one"].facts.text()).endswith("2 labels"))
    assert page.notice.words() == "2 labels of one were read."


def test_removing_says_what_stays_and_asks_first(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    page = open_page(stage, qtbot)
    page.rows["one"].delete_button.click()
    assert str(tmp_path / "one") in page.notice.words() and "stay where they are" in page.notice.words()
    press(page.notice, "Keep it")
    assert "one" in page.rows
    page.rows["one"].delete_button.click()
    press(page.notice, "Remove it")
    until(qtbot, lambda: "one" not in page.rows)
    assert (tmp_path / "one").is_dir()


def test_an_sae_is_measured_again(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, qtbot)
    page.rows["one"].measure_button.click()
    until(qtbot, lambda: page.notice.words() == "one was measured.")


# --- the hub ----------------------------------------------------------------------------------------------------------


def serve_saes(hub: StandInHub, tmp_path: Path, layers: tuple[int, ...] = (1, 2)) -> None:
    root = tmp_path / "repo"
    for layer in layers:
        make_sae(root / f"layer_{layer}" / "width_16k", layer=layer, seed=layer)
    hub.add_folder(REPO, root)


def look_at(page: SaesPage, qtbot: QtBot, repo: str) -> None:
    page.add.repo.setText(repo)
    page.add.repo.setFocus()
    qtbot.keyClick(page.add.repo, Qt.Key.Key_Return)
    until(qtbot, page.add.preview_button.isEnabled)


def test_several_saes_are_chosen_by_layer_and_downloaded(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, hub: StandInHub, tmp_path: Path
) -> None:
    serve_saes(hub, tmp_path)
    stage = make_stage(make_engine())
    page = open_page(stage, qtbot)
    look_at(page, qtbot, REPO)
    tree = page.add.tree
    assert [tree.topLevelItem(place).text(0) for place in range(tree.topLevelItemCount())] == ["Layer 1", "Layer 2"]
    assert tree.topLevelItem(0).child(0).text(0) == "Width 16k"
    assert len(page.add.leaves()) == 2 and not page.add.download_button.isEnabled()
    page.add.filter.setText("layer 2")
    assert tree.topLevelItem(0).isHidden() and not tree.topLevelItem(1).isHidden()
    page.add.filter.clear()
    for place in range(2):
        tree.topLevelItem(place).setCheckState(0, Qt.CheckState.Checked)
    assert page.add.chosen.text().startswith("2 chosen")
    page.add.download_button.click()
    until(qtbot, lambda: len(page.rows) == 2 and {badge(row) for row in page.rows.values()} == {"on the disk"})
    assert all(row.figures.text().startswith("L0 ") or row.attach_button.isVisible() for row in page.rows.values())
    name = next(iter(page.rows))
    page.rows[name].attach_button.click()
    until(qtbot, lambda: badge(page.rows[name]).startswith("attached"))


def test_a_download_is_paused_and_gone_on_with_though_its_file_was_forgotten(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, hub: StandInHub, tmp_path: Path
) -> None:
    serve_saes(hub, tmp_path)
    hub.held["layer_1/width_16k/sae_weights.safetensors"] = 0.5
    stage = make_stage(make_engine(folder=None))
    page = open_page(stage, qtbot)
    look_at(page, qtbot, REPO)
    page.add.tree.topLevelItem(0).setCheckState(0, Qt.CheckState.Checked)
    page.add.download_button.click()
    until(qtbot, hub.hanging.is_set)
    until(qtbot, lambda: len(page.rows) == 1)
    (row,) = page.rows.values()
    until(qtbot, lambda: row.pause_button.isVisible() and 0 < row.progress.value() < 100)
    row.pause_button.click()
    until(qtbot, lambda: badge(row) == "paused")
    hub.held.clear()
    hub.let_go.set()
    assert stage.engine.sae_downloads.wait_ended(row.record.id)
    page._asked.clear()
    row.resume_button.click()
    until(qtbot, lambda: badge(row) == "on the disk")


def test_a_download_is_cancelled_after_asking(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, hub: StandInHub, tmp_path: Path
) -> None:
    serve_saes(hub, tmp_path, (1,))
    hub.held["layer_1/width_16k/sae_weights.safetensors"] = 0.5
    stage = make_stage(make_engine(folder=None))
    page = open_page(stage, qtbot)
    look_at(page, qtbot, REPO)
    page.add.leaves()[0].setCheckState(0, Qt.CheckState.Checked)
    page.add.download_button.click()
    until(qtbot, hub.hanging.is_set)
    until(qtbot, lambda: page.rows)
    (row,) = page.rows.values()
    until(qtbot, row.cancel_button.isVisible)
    row.cancel_button.click()
    assert "pause it instead" in page.notice.words()
    hub.let_go.set()
    press(page.notice, "Cancel the download")
    until(qtbot, lambda: not page.rows)
    assert stage.engine.saes.list() == []


def test_what_the_hub_refuses_is_said_in_words(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, hub: StandInHub
) -> None:
    page = open_page(make_stage(make_engine(folder=None)), qtbot)
    look_at(page, qtbot, "nobody/nothing")
    assert "nobody/nothing" in page.add.notice.words() and not page.add.tree.isVisible()
    hub.add("acme/text", {"README.md": b"hello"})
    look_at(page, qtbot, "acme/text")
    assert page.add.notice.words() == "There is no weight file of an SAE in it."


def test_the_file_of_an_id_is_found_again() -> None:
    files = tuple(HubSaeFile(path, 1, None, None) for path in ("a/x.npz", "b/one.npz", "b/two.npz"))
    found = SaePreview("acme/saes", "main", None, files, 3)
    assert file_of("acme--saes--a", found) == "a/x.npz"
    assert file_of("acme--saes--b--two", found) == "b/two.npz"
    assert file_of("acme--saes--c", found) is None


def test_states_in_words(stage: Stage) -> None:
    record = stage.engine.saes.get("one")
    assert words.sae_state(record, []) == ("on the disk", "quiet")
    assert words.sae_state(record, [1, 3]) == ("attached to layers 1, 3", "good")
    assert words.sae_state(record, [1]) == ("attached", "good")
    assert words.sae_state(record, [3]) == ("attached to layer 3", "good")
    assert not words.sae_can_resume(record)


def test_words_search_the_hub_and_a_find_is_looked_at(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, hub: StandInHub, tmp_path: Path
) -> None:
    serve_saes(hub, tmp_path)
    hub.repos[REPO].downloads = 1200
    hub.add("acme/other-saes", {}, gated=True, downloads=3)
    page = open_page(make_stage(make_engine(None)), qtbot)
    page.add.repo.setText("saes")
    page.add.preview_button.click()
    until(qtbot, lambda: len(page.add.finds.rows) == 2)
    until(qtbot, lambda: in_sight(page.add.finds.rows[0]))
    told = [told_in(each) for each in page.add.finds.rows]
    assert REPO in told[0] and "1,200 downloads a month" in told[0] and "changed 2026-03-04" in told[0]
    assert "gated" in told[1]
    page.add.finds.rows[0].findChildren(Button)[0].click()
    until(qtbot, lambda: len(page.add.leaves()) == 2)
    assert page.add.repo.text() == REPO and not page.add.finds.rows
    page.add.repo.setText("nothing-like-it")
    page.add.preview_button.click()
    until(qtbot, lambda: "nothing of that name" in page.add.about.text() and page.add.preview_button.isEnabled())
    hub.statuses["api"] = [503]
    page.add.preview_button.click()
    until(qtbot, lambda: "could not be reached" in page.add.notice.words() and page.add.preview_button.isEnabled())


def test_pairs_are_listed_and_say_how_far_they_were_tried(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, hub: StandInHub
) -> None:
    page = open_page(make_stage(make_engine(None)), qtbot)
    pairs = page.add.pairs
    assert pairs.isHidden()
    pairs.button.click()
    until(qtbot, lambda: in_sight(pairs.buttons["gpt2-small"]))
    told = told_in(pairs)
    assert "openai-community/gpt2" in told and "jbloom/GPT2-Small-SAEs-Reformatted, layer 7" in told
    assert "none of them was fetched or tried" in told
    # The stand-in has none of it, and nothing is begun.
    pairs.buttons["gpt2-small"].click()
    until(qtbot, lambda: "has no repository jbloom/GPT2-Small-SAEs-Reformatted" in page.add.notice.words())
    assert page._engine.models.list() == [] and pairs.isEnabled()

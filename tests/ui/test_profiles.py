"""The Profiles page on a real engine: written, edited, kept from what is set, in force, in and out as documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPlainTextEdit
from pytestqt.qtbot import QtBot

from engine.engine import Engine
from engine.library.records import FeatureLabel
from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.steer_stage import ONE, TWO, add_saes, attach_both, drop, profiles_page
from ui.steer.profiles import EDITOR, ProfilesPage


@pytest.fixture
def engine(make_engine: EngineMaker, tmp_path: Path) -> Engine:
    made = make_engine()
    add_saes(made, tmp_path)
    return made


@pytest.fixture
def page(engine: Engine, make_stage: StageMaker, qtbot: QtBot) -> ProfilesPage:
    return profiles_page(make_stage, engine, qtbot)


def values(engine: Engine) -> dict[int, float]:
    return dict(engine.desk.state.entry(ONE).values)


def made(page: ProfilesPage, engine: Engine, qtbot: QtBot, **changes: object) -> str:
    """A profile of two features, chosen."""
    fields = {"steering": {3: 10.0, 5: -2.5}, "sae_id": "sae-one", "layer": 1, **changes}
    key = engine.profiles.create("Sea", **fields).record.id  # type: ignore[arg-type]
    until(qtbot, lambda: page.record is not None and page.card.name.text() == "Sea")
    return key


def editing(page: ProfilesPage) -> bool:
    return page.stack.currentIndex() == EDITOR


def test_a_profile_is_written(page: ProfilesPage, engine: Engine, qtbot: QtBot) -> None:
    engine.saes.import_labels("sae-one", [FeatureLabel(3, "words about the sea")])
    engine.attachments.attach("sae-one")
    page.new_button.click()
    until(qtbot, lambda: editing(page))
    editor = page.editor
    assert (editor.sae.currentData(), editor.layer.value()) == ("sae-one", 1)
    editor.name.setText("Sea")
    description = editor.written["description"]
    assert isinstance(description, QPlainTextEdit)
    description.setPlainText("Waves and ships.")
    editor.features.setPlainText("3:10\n5=-2.5, 7")
    until(qtbot, lambda: "#3  words about the sea" in editor.known.text())
    assert editor.count.text() == "3 features"
    editor.save_button.click()
    until(qtbot, lambda: not editing(page) and page.record is not None)
    record = page.record
    assert record is not None
    assert (record.name, record.description, record.sae_id, record.layer) == ("Sea", "Waves and ships.", "sae-one", 1)
    # Written without a strength: what a feature is first tried with on the Steering page.
    assert engine.hand_steering.typical_norm("sae-one", 1) is not None
    first = engine.hand_steering.with_first_strengths("sae-one", 1, {7: None})
    assert dict(record.steering) == {3: 10.0, 5: -2.5, **first}
    seventh = f"#7  no label  +{first[7]:.4g}"
    assert page.card.members.texts() == ["#3  words about the sea  +10", "#5  no label  −2.5", seventh]


def test_what_cannot_be_read_or_saved_stays_in_the_editor(page: ProfilesPage, engine: Engine, qtbot: QtBot) -> None:
    made(page, engine, qtbot)
    page.new_button.click()
    until(qtbot, lambda: editing(page))
    editor = page.editor
    editor.features.setPlainText("three")
    editor.save_button.click()
    assert "'three' is no feature" in editor.error.words()
    editor.features.setPlainText("3")
    editor.save_button.click()
    assert "has no name" in editor.error.words()
    editor.name.setText("Sea")
    editor.save_button.click()
    until(qtbot, lambda: "named 'Sea' already" in editor.error.words())
    assert editing(page) and editor.save_button.isEnabled()
    editor.cancel_button.click()
    assert not editing(page) and page.list.isEnabled()


def test_what_is_set_by_hand_is_kept(page: ProfilesPage, engine: Engine, qtbot: QtBot) -> None:
    assert not page.current_button.isEnabled()
    attach_both(engine)
    engine.hand_steering.set_values({3: 10.0, 4: 0.1}, sae_id="sae-one")
    until(qtbot, page.current_button.isEnabled)
    page.current_button.click()
    until(qtbot, lambda: editing(page))
    assert page.editor.features.toPlainText() == "3:10.0\n4:0.1"
    assert page.editor.name.text().startswith("tiny-llama-steering-")
    page.editor.save_button.click()
    until(qtbot, lambda: page.record is not None and not editing(page))
    assert page.record is not None and dict(page.record.steering) == {3: 10.0, 4: 0.1}
    engine.hand_steering.set_value(9, 5.0, sae_id="sae-two")
    until(qtbot, lambda: len(page._steered()) == 2)
    page.current_button.click()
    actions = page.places.actions()
    assert [each.text() for each in actions] == ["sae-one @ layer 1: 2 features", "sae-two @ layer 2: 1 feature"]
    actions[1].trigger()
    page.places.close()
    until(qtbot, lambda: editing(page) and page.editor.features.toPlainText() == "9:5.0")
    assert (page.editor.sae.currentData(), page.editor.layer.value()) == TWO


def test_it_is_edited_and_applied_again(page: ProfilesPage, engine: Engine, qtbot: QtBot) -> None:
    engine.attachments.attach("sae-one")
    key = made(page, engine, qtbot)
    page.card.switch_button.click()
    until(qtbot, lambda: page.list.items()[0].marks == (("active", "good"),))
    assert values(engine) == {3: 10.0, 5: -2.5}
    page.card.edit_button.click()
    until(qtbot, lambda: editing(page))
    assert page.editor.features.toPlainText() == "3:10.0\n5:-2.5"
    page.editor.features.setPlainText("3:20")
    page.editor.save_button.click()
    until(qtbot, lambda: "still what it was before" in page.notice.words())
    assert values(engine) == {3: 10.0, 5: -2.5}
    again = next(each for each in page.notice.findChildren(type(page.import_button)) if each.text() == "Apply now")
    again.click()
    until(qtbot, lambda: values(engine) == {3: 20.0})
    assert engine.profiles.get(key).record.is_active


def test_the_dial_turns_an_active_profile(page: ProfilesPage, engine: Engine, qtbot: QtBot) -> None:
    engine.attachments.attach("sae-one")
    made(page, engine, qtbot)
    card = page.card
    card.dial.track.setFocus()
    qtbot.keyClick(card.dial.track, Qt.Key.Key_End)
    until(qtbot, lambda: page.record is not None and page.record.intensity == 2.0)
    assert values(engine) == {}
    card.switch_button.click()
    until(qtbot, lambda: values(engine) == {3: 20.0, 5: -5.0})
    card.dial.field.setFocus()
    card.dial.field.selectAll()
    qtbot.keyClicks(card.dial.field, "0.5")
    qtbot.keyClick(card.dial.field, Qt.Key.Key_Return)
    until(qtbot, lambda: values(engine) == {3: 5.0, 5: -1.25} and card.switch_button.text() == " Deactivate")
    card.switch_button.click()
    until(qtbot, lambda: values(engine) == {} and card.switch_button.text() == " Activate")


def test_what_is_clamped_is_said(page: ProfilesPage, engine: Engine, qtbot: QtBot) -> None:
    made(page, engine, qtbot, steering={3: 250.0, 5: 1.0})
    assert page.card.remarks.words() == ("At λ 1 these are clamped to ±200: #3.",)


def test_documents_come_and_go(page: ProfilesPage, engine: Engine, qtbot: QtBot, tmp_path: Path) -> None:
    key = made(page, engine, qtbot)
    page.card.export_button.click()
    assert page.save_dialog is not None
    target = tmp_path / "sea.profile.json"
    page.save_dialog.fileSelected.emit(str(target))
    page.save_dialog.close()
    until(qtbot, lambda: page.notice.words().startswith("Written to"))
    assert json.loads(target.read_text(encoding="utf-8"))["steering"] == {"3": 10.0, "5": -2.5}
    assert drop(page, paths=(target,))
    until(qtbot, lambda: page.report.isVisible())
    assert page.report.outcomes[0].words == ("The library has a profile named 'Sea' already.",)
    again = page.report.button(0)
    assert again is not None
    again.click()
    until(qtbot, lambda: [item.title for item in page.list.items()] == ["Sea", "Sea (2)"])
    assert page.report.outcomes[0].words == ("Imported: 2 features for sae-one at layer 1.",)
    page.select(key)
    page.card.delete_button.click()
    until(qtbot, lambda: [item.title for item in page.list.items()] == ["Sea (2)"])
    undo = next(each for each in page.notice.findChildren(type(page.import_button)) if each.text() == " Undo")
    undo.click()
    until(qtbot, lambda: page.record is not None and page.record.id == key)
    assert len(page.views) == 2


def test_what_the_api_does_appears_without_a_click(page: ProfilesPage, engine: Engine, qtbot: QtBot) -> None:
    engine.attachments.attach("sae-one")
    key = made(page, engine, qtbot)
    engine.profiles.activate(key)
    until(qtbot, lambda: page.list.items()[0].marks == (("active", "good"),))
    engine.profiles.update(key, {"name": "Ocean"})
    until(qtbot, lambda: page.card.name.text() == "Ocean")
    engine.profiles.set_intensity(key, 1.5)
    until(qtbot, lambda: page.card.dial.value() == 1.5)
    engine.hand_steering.set_enabled(False)
    until(qtbot, lambda: page.list.items()[0].marks == (("active, adds nothing", "warn"),))
    engine.profiles.delete(key)
    until(qtbot, lambda: page.stack.currentIndex() == 0)


@pytest.mark.parametrize("size", [(1280, 800), (640, 440)])
def test_the_window_may_be_small(page: ProfilesPage, engine: Engine, qtbot: QtBot, size: tuple[int, int]) -> None:
    made(page, engine, qtbot)
    page.card.edit_button.click()
    until(qtbot, lambda: editing(page))
    window = page.window()
    window.resize(*size)
    until(qtbot, lambda: window.size().toTuple() == size)

"""Other names of models on the Server page: written, checked, in force at once, and taken away again."""

from __future__ import annotations

import json
from pathlib import Path

from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from engine.library.records import ProfileKind, ProfileRecord
from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.test_server import ask, open_page, started
from ui.context.page_context import SETTINGS
from ui.kit.choice import Choice
from ui.program.settings import SettingsPage
from ui.serve.alias_card import AliasRow


def choose(choice: Choice, name: str) -> None:
    place = choice.findText(name)
    assert place >= 0, [choice.itemText(i) for i in range(choice.count())]
    choice.setCurrentIndex(place)
    choice.activated.emit(place)


def write(qtbot: QtBot, row: AliasRow, name: str, *, profile: str = "", dial: str = "") -> None:
    for field, text in ((row.name, name), (row.dial, dial)):
        field.selectAll()
        qtbot.keyClick(field, Qt.Key.Key_Delete)
        qtbot.keyClicks(field, text)
    if profile:
        choose(row.profile, profile)


def test_a_name_is_made_and_counts_at_once(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    engine = make_engine()
    for name, kind in (("calm", ProfileKind.MANUAL), ("Harbour", ProfileKind.CLUSTER)):
        engine.library.profiles.add(
            ProfileRecord(name, sae_id=None, layer=None, steering={3: 1.0}, intensity=1, source_kind=kind)
        )
    stage = make_stage(engine)
    page = open_page(stage, qtbot)
    card = page.aliases
    started(stage, page, qtbot)
    assert ask(stage, model="pirate").status_code == 404
    assert card.save.isHidden() and card.heads.isHidden()
    until(qtbot, lambda: card._profiles)
    card.add.click()
    row = card.rows[0]
    assert row.model.currentText() == "tiny-llama"
    write(qtbot, row, "pirate", profile="calm", dial="0,5")
    assert not card.save.isHidden()
    card.save.click()
    until(qtbot, lambda: card.save.isHidden())
    wanted = {"pirate": {"model": "tiny-llama", "profile": "calm", "steering_intensity": 0.5}}
    assert json.loads((tmp_path / "settings.json").read_text())["MODEL_ALIASES"] == wanted
    answer = ask(stage, model="pirate")
    assert answer.status_code == 200
    assert "'pirate' is an alias" in answer.headers["X-miLLM-Notes"]
    assert not stage.server.outdated and not page.outdated.words()
    # A second one, and the first is taken away.
    card.add.click()
    write(qtbot, card.rows[1], "claude-*", profile="Harbour")
    card.rows[0].remove.click()
    card.save.click()
    until(qtbot, lambda: ask(stage, model="claude-3").status_code == 200)
    assert ask(stage, model="pirate").status_code == 404
    until(qtbot, lambda: card.save.isHidden())
    card.rows[0].remove.click()
    card.save.click()
    until(qtbot, lambda: "MODEL_ALIASES" not in json.loads((tmp_path / "settings.json").read_text()))


def test_what_cannot_be_is_said_in_place(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    stage = make_stage(make_engine(folder=None))
    card = open_page(stage, qtbot).aliases
    stage.settings.change({"MODEL_ALIASES": {"a": {"model": "gone", "chat_template_kwargs": {"k": 1}}, "b": "gone"}})
    until(qtbot, lambda: len(card.rows) == 2)
    assert card.rows[0].model.currentText() == "gone (not there)"
    assert card.rows[0].variables.isVisibleTo(card)
    for name, dial, words in (
        ("b", "", "there twice"),
        ("", "1", "Give each line a name"),
        ("a", "loud", "“loud” is no number"),
        ("a", "3", "0 to 2"),
        ("x" * 101, "", "1 to 100 characters"),
    ):
        write(qtbot, card.rows[0], name, dial=dial)
        card.save.click()
        until(qtbot, lambda words=words: words in card.notice.words())  # type: ignore[misc]
    card.undo.click()
    assert not card.notice.words() and card.save.isHidden()
    # What it does not show stays as it was.
    write(qtbot, card.rows[0], "c", dial="MAX")
    card.save.click()
    until(qtbot, lambda: "c" in stage.settings.current.MODEL_ALIASES)
    assert stage.settings.current.MODEL_ALIASES == {
        "c": {"model": "gone", "steering_intensity": "max", "chat_template_kwargs": {"k": 1}},
        "b": "gone",
    }


def test_what_is_being_written_stays(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    stage = make_stage(make_engine(folder=None))
    page = open_page(stage, qtbot)
    page.aliases.add.click()
    write(qtbot, page.aliases.rows[0], "half")
    stage.settings.change({"MAX_LANES": 3, "MODEL_ALIASES": {"other": "m"}})
    until(qtbot, lambda: page._infos["MODEL_ALIASES"].value == {"other": "m"})
    assert [row.name.text() for row in page.aliases.rows] == ["half"]


def test_the_environment_wins_and_the_settings_page_shows_the_same(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine(folder=None), environ={"MILLM_MODEL_ALIASES": '{"a": "m"}'})
    card = open_page(stage, qtbot).aliases
    until(qtbot, lambda: card.rows)
    assert card.rows[0].name.isReadOnly() and not card.add.isEnabled() and card.save.isHidden()
    assert "MILLM_MODEL_ALIASES" in card.locked_words.text()


def test_the_settings_page_takes_json(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    stage = make_stage(make_engine(folder=None))
    stage.window.show_page(SETTINGS)
    page = stage.window.page(SETTINGS)
    assert isinstance(page, SettingsPage)
    until(qtbot, lambda: "MODEL_ALIASES" in page.rows)
    row = page.rows["MODEL_ALIASES"]
    qtbot.keyClicks(row.editor, '{"a": 7}')
    qtbot.keyClick(row.editor, Qt.Key.Key_Return)
    until(qtbot, lambda: "a model's name or an object" in row.error.text())
    row.editor.selectAll()  # type: ignore[union-attr]
    qtbot.keyClicks(row.editor, '{"a": "m"}')
    qtbot.keyClick(row.editor, Qt.Key.Key_Return)
    until(qtbot, lambda: stage.settings.current.MODEL_ALIASES == {"a": "m"})
    until(qtbot, lambda: not row.error.text())

"""Going on where one left off: what a model had is offered again, a change of model asks, the chat comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from engine.actions.models.importing import import_local_model
from engine.engine import Engine
from engine.library.conversations import StoredMessage
from tests.conftest import CheckpointMaker, EngineMaker
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.stage import Stage
from ui.context.page_context import CHAT, MODELS
from ui.kit.basics import Button, Notice
from ui.shelf.models import ModelsPage
from ui.talk.left_off import LEFT_OFF_KEY, LeftOff, key_for


@pytest.fixture
def engine(make_engine: EngineMaker, checkpoint: CheckpointMaker, tmp_path: Path) -> Engine:
    """The tiny model with an SAE attached, and another model on the shelf."""
    made = make_engine()
    import_local_model(made.library, made.events, checkpoint("qwen2"))
    made.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id="made-sae")
    made.attachments.attach("made-sae", 1)
    return made


def other(engine: Engine) -> int:
    return next(each.id for each in engine.shelf.list() if each.name == "tiny-qwen2")


def press(notice: Notice, text: str) -> None:
    (button,) = (each for each in notice.findChildren(Button) if each.text() == text and not each.isHidden())
    button.click()


ASKED = (
    "tiny-llama leaves memory for it, and with it its SAEs on layer 1 and what they steer. They are offered again when "
    "tiny-llama is loaded again."
)


def attached(engine: Engine) -> list[int]:
    return [each.layer for each in engine.desk.state.attachments]


def test_a_change_of_model_asks_and_the_way_back_offers(engine: Engine, make_stage: StageMaker, qtbot: QtBot) -> None:
    stage: Stage = make_stage(engine)
    window, home = stage.window, stage.window.home
    assert engine.shelf.resident is not None
    first = engine.shelf.resident.record.id
    home.model.load.emit(other(engine))
    assert home.model.notice.words() == ASKED
    assert engine.shelf.loading is None and attached(engine) == [1], "nothing happens before it is agreed to"
    press(home.model.notice, "Load it")
    until(qtbot, lambda: window.bar.message.full_text() == "tiny-qwen2 is loaded.")
    assert attached(engine) == []
    home.model.load.emit(first)
    until(qtbot, lambda: window.bar.action.isVisible())
    assert window.bar.message.full_text() == "SAEs were attached to it on layer 1 when it was in memory last."
    window.bar.action.click()
    until(qtbot, lambda: attached(engine) == [1])
    until(qtbot, lambda: window.bar.message.full_text() == "The SAEs of last time are attached again, on layer 1.")


def test_the_models_page_asks_too(engine: Engine, make_stage: StageMaker, qtbot: QtBot) -> None:
    stage: Stage = make_stage(engine)
    stage.window.go(MODELS)
    page = stage.window.page(MODELS)
    assert isinstance(page, ModelsPage)
    page.load(other(engine))
    assert page.notice.words() == ASKED
    press(page.notice, "Keep it")
    assert attached(engine) == [1] and engine.shelf.loading is None
    page.load(other(engine))
    press(page.notice, "Load it")
    until(qtbot, lambda: engine.shelf.resident is not None and engine.shelf.resident.record.name == "tiny-qwen2")


def talk(engine: Engine) -> int:
    said = [StoredMessage("user", "Where were we?", {}), StoredMessage("assistant", "Here.", {})]
    return engine.library.conversations.create("Where were we?", "", said).id


@pytest.mark.parametrize("restore", [True, False])
def test_the_chat_comes_back_as_it_was_left(
    make_engine: EngineMaker, make_stage: StageMaker, qtbot: QtBot, restore: bool
) -> None:
    engine = make_engine(load=False)
    number = talk(engine)
    before: Stage = make_stage(engine)
    before.window.go(CHAT)
    before.window.chat.desk.open(number)
    until(qtbot, lambda: before.window.chat.session.conversation_id == number)
    before.window.chat.compare_button.click()
    before.window.close()
    assert engine.library.state.get(LEFT_OFF_KEY) == {"conversation": number, "comparing": True}
    after: Stage = make_stage(engine, environ={"RESTORE_LAST": str(restore).lower()})
    after.window.go(CHAT)
    chat = after.window.chat
    said: list[None] = []
    after.bridge.run_in_background(lambda: None, said.append, owner=after.window)
    if restore:
        until(qtbot, lambda: chat.session.conversation_id == number)
        assert [each.content for each in chat.session.messages] == ["Where were we?", "Here."]
        assert chat.comparing
    else:
        until(qtbot, lambda: said)
        assert chat.session.conversation_id is None and not chat.comparing


def test_the_chat_comes_back_that_was_left_with_the_model(
    make_engine: EngineMaker, checkpoint: CheckpointMaker, make_stage: StageMaker, qtbot: QtBot
) -> None:
    engine = make_engine(load=False)
    import_local_model(engine.library, engine.events, checkpoint("qwen2"))
    with_llama, with_qwen = talk(engine), talk(engine)
    ids = {each.name: each.id for each in engine.shelf.list()}
    before: Stage = make_stage(engine)
    chat = before.window.chat
    for name, number in (("tiny-llama", with_llama), ("tiny-qwen2", with_qwen)):
        engine.loader.load(ids[name]).result(120)
        chat.desk.open(number)
        until(qtbot, lambda number=number: chat.session.conversation_id == number)
        until(qtbot, lambda name=name, number=number: left_with(engine, name) == number)
    before.window.close()
    engine.loader.unload().result(60)
    after: Stage = make_stage(engine)
    again = after.window.chat
    until(qtbot, lambda: again.session.conversation_id == with_qwen)
    engine.loader.load(ids["tiny-llama"]).result(120)
    until(qtbot, lambda: again.session.conversation_id == with_llama)
    # A change of model later on is no start: what is on the screen stays.
    engine.loader.load(ids["tiny-qwen2"]).result(120)
    said: list[None] = []
    after.bridge.run_in_background(lambda: None, said.append, owner=after.window)
    until(qtbot, lambda: said)
    assert again.session.conversation_id == with_llama


def test_what_was_noted_belongs_to_the_model_that_was_there(
    make_engine: EngineMaker, checkpoint: CheckpointMaker, make_stage: StageMaker, qtbot: QtBot
) -> None:
    """By the time it is written another model may be in memory."""
    engine = make_engine()
    import_local_model(engine.library, engine.events, checkpoint("qwen2"))
    ids = {each.name: each.id for each in engine.shelf.list()}
    left: LeftOff = make_stage(engine).window.chat._left_off
    left._timer.setInterval(10**6)
    number = talk(engine)
    left.note(number, False)
    engine.loader.load(ids["tiny-qwen2"]).result(120)
    left.write()
    assert left_with(engine, "tiny-llama") == number
    assert left_with(engine, "tiny-qwen2") is None


def left_with(engine: Engine, model: str) -> object:
    kept = engine.library.state.get(key_for(model))
    return kept.get("conversation") if isinstance(kept, dict) else None


def test_a_person_who_is_quicker_is_not_overtaken(
    make_engine: EngineMaker, make_stage: StageMaker, qtbot: QtBot
) -> None:
    engine = make_engine(load=False)
    engine.library.state.set(LEFT_OFF_KEY, {"conversation": talk(engine), "comparing": True})
    stage: Stage = make_stage(engine)
    stage.window.go(CHAT)
    chat = stage.window.chat
    chat.composer.set_draft("Something new")
    said: list[None] = []
    stage.bridge.run_in_background(lambda: None, said.append, owner=stage.window)
    until(qtbot, lambda: said)
    assert chat.session.conversation_id is None and not chat.comparing
    assert chat.composer.draft() == "Something new"


@pytest.mark.parametrize("kept", [3, {"conversation": "x"}, {"conversation": 99, "comparing": "yes"}])
def test_what_cannot_be_read_is_a_new_chat(
    make_engine: EngineMaker, make_stage: StageMaker, qtbot: QtBot, kept: object
) -> None:
    engine = make_engine(load=False)
    engine.library.state.set(LEFT_OFF_KEY, kept)
    stage: Stage = make_stage(engine)
    stage.window.go(CHAT)
    said: list[None] = []
    stage.bridge.run_in_background(lambda: None, said.append, owner=stage.window)
    until(qtbot, lambda: said)
    assert stage.window.chat.session.conversation_id is None and not stage.window.chat.comparing

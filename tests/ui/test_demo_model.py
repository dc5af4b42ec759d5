"""The main job with the window, end to end: the demo model is loaded with a click and answers a question."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.demo.content import install_content
from app.demo.pack import SMOLLM2
from assets.demo.build.topics import TOPICS
from engine.library.records import ModelSource
from engine.steering.push import GENTLE
from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import answer, chat_of, send, text_of, until
from ui.look.feature_facts import facts_of

pytestmark = pytest.mark.demo

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def demo_checkpoint() -> Path:
    folders = sorted((ROOT / ".data" / "models" / "demo").glob("*/checkpoint"))
    if not folders:
        pytest.fail("the demo model is not in .data: run `make setup`, or leave this test out with -m 'not demo'")
    return folders[0]


def test_a_newcomer_loads_the_demo_and_gets_an_answer(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, demo_checkpoint: Path
) -> None:
    stage = make_stage(make_engine(folder=demo_checkpoint, load=False))
    window = stage.window
    until(qtbot, lambda: len(window.home.model.rows) == 1)
    window.home.model.rows[0].button.click()  # type: ignore[union-attr]
    until(qtbot, lambda: window.home.model.pill is not None and window.home.model.pill.text() == "loaded")
    assert window.home.model.facts.values()["Parameters"] == "135 M"
    assert window.home.model.facts.values()["Context window"] == "8,192 tokens"
    chat = chat_of(stage, qtbot, tokens=24)
    send(chat, qtbot, "What is the capital of France?")
    until(qtbot, lambda: not chat.busy)
    reply = chat.session.messages[1]
    assert "Paris" in reply.content
    assert "Paris" in text_of(answer(chat, 1))
    # The template's own system prompt comes first; the person gave none.
    assert reply.details["prompt_tokens"] == 37
    chat.settings.system.setPlainText("You are a pirate.")
    send(chat, qtbot, "And of Italy?")
    until(qtbot, lambda: not chat.busy)
    assert len(chat.session.messages) == 4
    assert chat.session.messages[3].content


def test_turning_the_demo_dial_from_nothing_to_its_default_brings_the_topic(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, demo_checkpoint: Path
) -> None:
    manifest = json.loads((ROOT / "assets/demo/clusters/food.cluster.manifest.json").read_text(encoding="utf-8"))
    curve = {point["intensity"]: point["words"] for point in manifest["sweep"]["curve"]}
    # The least rise by which the pack's own sweep says that an effect begins: 1.5 points of the words.
    assert curve[1.25] - curve[0.0] > 0.015
    food = next(topic for topic in TOPICS if topic.name == "food")
    engine = make_engine(folder=demo_checkpoint, load=False)
    (record,) = engine.shelf.list()
    engine.library.models.update(record.id, source=ModelSource.DEMO, repo_id=SMOLLM2.repo_id)
    install_content(engine)
    stage = make_stage(engine)
    steps, chat = stage.window.home.steps, stage.window.chat
    until(qtbot, lambda: steps.load.button.isVisible() and steps.load.button.isEnabled())
    steps.load.button.click()
    until(qtbot, lambda: steps.attach.button.text() == "Attach “Demo: layers 10, 15 and 20”")
    steps.attach.button.click()
    until(qtbot, lambda: steps.dial.button.isEnabled() and steps.attach.done)
    # Known from the pack, before anything is read here: 0.15 of 167.902, for a row of length 1.
    sae_id = "demo--smollm2-135m-instruct--layer_15--width_3k"
    assert engine.hand_steering.typical_norm(sae_id, 15) == 167.902
    assert engine.library.saes.get(sae_id).measured_at is None  # type: ignore[union-attr]
    assert facts_of(engine, engine.desk.attachment(sae_id, 15), 7).strength(GENTLE) == pytest.approx(25.19, abs=0.05)
    steps.dial.button.click()
    until(qtbot, lambda: engine.desk.state.profile is not None and not chat.dial.busy)
    assert chat.strip.dial.value() == manifest["calibration"]["sweet_spot"] == 1.25
    chat.settings.temperature.setValue(0.0)
    chat.settings.length.setValue(manifest["sweep"]["tokens_a_sample"])
    question = chat.composer.draft()
    assert question in manifest["sweep"]["prompts"]
    shares = {}
    for intensity in (0.0, 1.25):
        chat.strip.dial.settled.emit(intensity)
        until(qtbot, lambda: not chat.dial.busy and engine.desk.state.profile.intensity == intensity)  # type: ignore[union-attr]  # noqa: B023
        chat.new_chat()
        send(chat, qtbot, question)
        until(qtbot, lambda: not chat.busy)
        message = chat.session.messages[1]
        assert message.plain is not None
        shares[intensity] = food.share(message.content)
        assert (message.content == message.plain.content) is (intensity == 0.0)
        assert food.share(message.plain.content) == shares[0.0]
    assert shares[1.25] - shares[0.0] > 0.015

"""The main job with the window, end to end: the demo model is loaded with a click and answers a question."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import answer, chat_of, send, text_of, until

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

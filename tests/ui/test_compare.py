"""Compare on the chat page: two answers from one batch and one noise, and the dial that moves one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from engine.library.conversations import StoredMessage
from tests.conftest import EngineMaker
from tests.engine.actions.steering.stage import cluster, member, one_layer, raw
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import chat_of, send, until
from tests.ui.stage import Stage
from ui.kit.chat_state import ConversationMessage
from ui.kit.steer_targets import TargetKind
from ui.kit.steering_text import report_words
from ui.talk.chat import ChatPage
from ui.talk.compare_message import CompareMessage
from ui.talk.prompt_inspector import PromptInspector, added_text
from ui.talk.steer_strip import LIVE

SAE = "made-sae"
STRONG = {3: 60.0, 5: -60.0}


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path) -> Stage:
    """The tiny model with one SAE in the library and a saved set with it; nothing is attached."""
    engine = make_engine()
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id=SAE)
    engine.attachments.save_set("The made one", [(SAE, 1)])
    return make_stage(engine)


def comparing(stage: Stage, qtbot: QtBot, *, tokens: int = 12) -> ChatPage:
    chat = chat_of(stage, qtbot, tokens=tokens)
    chat.set_comparing(True)
    return chat


def pair(chat: ChatPage, index: int = 1) -> tuple[ConversationMessage, ConversationMessage]:
    """(plain, steered)."""
    message = chat.session.messages[index]
    assert message.plain is not None
    return message.plain, message


def view(chat: ChatPage, index: int = 1) -> CompareMessage:
    found = chat.messages.view(index)
    assert isinstance(found, CompareMessage)
    return found


def written(chat: ChatPage, qtbot: QtBot, text: str = "the sea") -> tuple[ConversationMessage, ConversationMessage]:
    send(chat, qtbot, text)
    until(qtbot, lambda: not chat.busy)
    return pair(chat)


def test_with_nothing_added_both_sides_draw_the_same_words(qtbot: QtBot, stage: Stage) -> None:
    chat = comparing(stage, qtbot, tokens=24)
    chat.settings.temperature.setValue(1.5)
    texts = []
    while len(texts) < 2:
        chat.new_chat()
        plain, steered = written(chat, qtbot)
        assert plain.content == steered.content
        if not plain.content:
            continue  # at this temperature the first token may be the last
        # One batch, not passes of their own as a seeded request has.
        assert plain.details["backend"] == steered.details["backend"] == "cbm"
        assert plain.details["noise_seed"] == steered.details["noise_seed"]
        texts.append(plain.content)
    assert texts[0] != texts[1]


def test_a_seed_makes_a_comparison_repeatable_and_keeps_it_in_the_batch(qtbot: QtBot, stage: Stage) -> None:
    chat = comparing(stage, qtbot, tokens=24)
    chat.settings.temperature.setValue(1.5)
    chat.settings.seed.setText("7")
    texts = []
    for _ in range(2):
        chat.new_chat()
        plain, steered = written(chat, qtbot)
        assert (plain.details["noise_seed"], plain.details["backend"]) == (7, "cbm")
        texts += [plain.content, steered.content]
    assert len(set(texts)) == 1


def test_the_two_are_written_at_the_same_time_and_only_one_is_steered(qtbot: QtBot, stage: Stage) -> None:
    chat = comparing(stage, qtbot, tokens=16)
    alone, _ = written(chat, qtbot)
    stage.engine.attachments.attach(SAE)
    stage.engine.hand_steering.set_values(STRONG, sae_id=SAE, layer=1)
    chat.new_chat()
    chat.settings.length.setValue(0)
    send(chat, qtbot, "the sea")
    until(qtbot, lambda: chat.session.messages and all(side.content for side in chat.session.messages[-1].sides))
    assert stage.engine.generation.stats().in_flight == 2
    until(qtbot, lambda: len(pair(chat)[0].content) > len(alone.content))
    chat.stop()
    until(qtbot, lambda: not chat.busy)
    plain, steered = pair(chat)
    assert plain.content.startswith(alone.content)
    assert not steered.content.startswith(alone.content)
    assert plain.details["steering"]["text"] == "none"  # type: ignore[index]
    assert str(steered.details["steering"]["text"]).startswith('manual;sae="made-sae";layer=1;features=2')  # type: ignore[index]
    assert {side.details["finish_reason"] for side in (plain, steered)} == {"stopped"}
    both = view(chat)
    assert both.plain.steering.text() == "not steered"
    assert both.steered.steering.text() == "steered by hand: 2 features"


def test_the_dial_changes_text_that_is_being_written_and_never_the_plain_side(qtbot: QtBot, stage: Stage) -> None:
    stage.engine.attachments.attach(SAE)
    stage.engine.hand_steering.set_values(STRONG, sae_id=SAE, layer=1)
    chat = comparing(stage, qtbot, tokens=0)
    until(qtbot, lambda: chat.strip.dial.isEnabled())
    send(chat, qtbot, "the sea")
    until(qtbot, lambda: chat.session.messages and all(side.content for side in chat.session.messages[-1].sides))
    field = chat.strip.dial.field
    field.setFocus()
    field.selectAll()
    qtbot.keyClicks(field, "0.5")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    until(qtbot, lambda: dict(stage.engine.desk.state.entry((SAE, 1)).values) == {3: 30.0, 5: -30.0})
    before = len(chat.session.messages[-1].content)
    until(qtbot, lambda: len(chat.session.messages[-1].content) > before)
    chat.stop()
    until(qtbot, lambda: not chat.busy and not chat.dial.busy)
    plain, steered = pair(chat)
    assert steered.details["steering"]["changed"] is True  # type: ignore[index]
    none = [{"kind": "none"}]
    told = {"text": "none", "changed": False, "items": none, "path": [{"token": 0, "text": "none", "items": none}]}
    assert plain.details["steering"] == told
    assert view(chat).plain.steering.text() == "not steered"
    path: Any = steered.details["steering"]["path"]  # type: ignore[index]
    assert [step["items"][0]["strengths"] for step in path] == [{"3": 60.0, "5": -60.0}, {"3": 30.0, "5": -30.0}]
    begun = path[1]["token"]
    assert path[0]["token"] == 0 < begun <= int(steered.details["completion_tokens"])  # type: ignore[call-overload]
    words = "steered by hand (2 features), in multiples of the first values, at × 1 → 0.5 "
    assert view(chat).steered.steering.text() == f"{words}(× 0.5 from token {begun})"
    assert chat.strip.dial.value() == 0.5
    # From where it stands the dial goes back to what was set.
    chat.strip.dial.moved.emit(1.0)
    until(qtbot, lambda: dict(stage.engine.desk.state.entry((SAE, 1)).values) == STRONG)


def test_a_cluster_of_the_library_is_chosen_and_dialled(qtbot: QtBot, stage: Stage) -> None:
    engine = stage.engine
    place = {"mistudio_sae_id": SAE, "layer": 1, "n_features": 64}
    for name in ("Harbour", "Clinic"):
        engine.clusters.import_document(raw(cluster(name, member(3, 8.0), sae=place)))
    chat = comparing(stage, qtbot)
    strip = chat.strip
    until(qtbot, lambda: strip.choice.findText("Harbour") > 0)
    assert strip.choice.currentText() == "Live steering"
    assert not strip.dial.isEnabled()
    strip.choice.activated.emit(strip.choice.findText("Harbour"))
    # Its SAE is not attached; the saved set that has it is one click away.
    until(qtbot, lambda: "no SAE is attached" in strip.notice.words())
    strip.offer_set(strip.notice.words(), "The made one").click()
    until(qtbot, lambda: engine.desk.state.profile is not None and not chat.dial.busy)
    assert engine.desk.state.profile.name == "Harbour"  # type: ignore[union-attr]
    assert strip.dial.value() == 0.5
    assert strip.now.full_text() == "now: cluster Harbour · λ 0.5"
    strip.dial.settled.emit(1.5)
    until(qtbot, lambda: dict(engine.desk.state.entry((SAE, 1)).values) == {3: 12.0})
    plain, steered = written(chat, qtbot)
    assert steered.details["steering"]["items"][0]["name"] == "Harbour"  # type: ignore[index]
    assert plain.details["steering"]["text"] == "none"  # type: ignore[index]
    strip.choice.activated.emit(strip.choice.findText("Clinic"))
    until(qtbot, lambda: engine.desk.state.profile is not None and engine.desk.state.profile.name == "Clinic")
    until(qtbot, lambda: not chat.dial.busy)
    # Somebody else takes it out of force: the strip follows.
    engine.profiles.deactivate(chat.dial.chosen[1])
    until(qtbot, lambda: chat.dial.chosen == LIVE and strip.choice.currentText() == "Live steering")


def test_a_circuit_below_rung_two_is_asked_about_and_shows_its_phrase(qtbot: QtBot, stage: Stage) -> None:
    engine = stage.engine
    engine.attachments.attach(SAE)
    engine.circuits.import_document(raw(one_layer("Weak", 1, 3, rung=1)))
    chat = comparing(stage, qtbot)
    strip = chat.strip
    until(qtbot, lambda: strip.choice.findText("Weak") > 0)
    strip.choice.activated.emit(strip.choice.findText("Weak"))
    until(qtbot, lambda: "evidence is at rung 1" in strip.notice.words())
    assert engine.desk.state.circuits == ()
    assert strip.badge.text() == "suggested (attribution-supported)"
    strip._agree()
    until(qtbot, lambda: len(engine.desk.state.circuits) == 1 and not chat.dial.busy)
    strip.dial.settled.emit(0.5)
    until(qtbot, lambda: engine.desk.state.circuits[0].intensity == 0.5)
    assert strip.badge.text() == "suggested (attribution-supported)"
    _plain, steered = written(chat, qtbot)
    assert steered.details["rung"] == 1
    assert view(chat).steered.steering.text() == (
        "steered by the circuit Weak at λ 0.5 (suggested (attribution-supported))"
    )


def test_a_comparison_is_kept_goes_on_and_is_written_again(qtbot: QtBot, stage: Stage) -> None:
    chat = comparing(stage, qtbot, tokens=6)
    plain, steered = written(chat, qtbot)
    assert plain.details["finish_reason"] == steered.details["finish_reason"] == "length"
    former = plain.content
    view(chat).go_on_button.click()
    until(qtbot, lambda: not chat.busy)
    plain, steered = pair(chat)
    assert plain.content.startswith(former) and len(plain.content) > len(former)
    assert plain.content == steered.content
    assert plain.details["completion_tokens"] == 12
    until(qtbot, lambda: chat.session.conversation_id is not None and chat.session.settled)
    kept = stage.engine.library.conversations.get(chat.session.conversation_id or 0)
    assert kept is not None
    chat.new_chat()
    chat.set_comparing(False)
    chat.open_record(kept)
    again = pair(chat)[0]
    assert again.content == plain.content
    assert chat.comparing
    view(chat).again_button.click()
    until(qtbot, lambda: not chat.busy)
    assert pair(chat)[0].content == former


def test_each_side_goes_on_from_its_own_answers(qtbot: QtBot, stage: Stage) -> None:
    stage.engine.attachments.attach(SAE)
    stage.engine.hand_steering.set_values(STRONG, sae_id=SAE, layer=1)
    chat = comparing(stage, qtbot, tokens=6)
    plain, steered = written(chat, qtbot)
    assert plain.content != steered.content
    send(chat, qtbot, "and then")
    until(qtbot, lambda: not chat.busy)
    for side, prompt in ((False, steered.content), (True, plain.content)):
        request = chat.session.request_behind(3, "tiny-llama", plain=side)
        assert request.input.messages[1].content == prompt  # type: ignore[union-attr]
        assert request.steering.is_empty is not side


def test_the_inspector_shows_what_a_client_would_have_been_told(qtbot: QtBot, stage: Stage) -> None:
    stage.engine.attachments.attach(SAE)
    stage.engine.hand_steering.set_values(STRONG, sae_id=SAE, layer=1)
    chat = comparing(stage, qtbot, tokens=6)
    _plain, steered = written(chat, qtbot)
    stage.server.start()
    address = stage.server.wait_ready(60)
    sent = {
        "model": "tiny-llama",
        "messages": [{"role": "user", "content": "the sea"}],
        "temperature": 0,
        "max_tokens": 6,
    }
    answer = httpx.post(f"{address}/chat/completions", json=sent, timeout=60)
    assert answer.json()["choices"][0]["message"]["content"] == steered.content
    told = {name.lower(): value for name, value in answer.headers.items() if name.lower().startswith("x-millm-")}
    view(chat).steered.inspect_button.click()
    until(qtbot, lambda: any(d.tokens.model() is not None for d in chat.findChildren(PromptInspector)))
    dialog = next(iter(chat.findChildren(PromptInspector)))
    shown = dict(line.split(": ", 1) for line in dialog.told.toPlainText().splitlines())
    shown = {name.lower(): value for name, value in shown.items()}
    # The second to ask finds read what the first one read.
    assert (shown.pop("x-millm-warm"), int(told.pop("x-millm-warm")) > 0) == ("0", True)
    assert shown == told
    assert "#3  +60" in dialog.added.toPlainText() and "#5  -60" in dialog.added.toPlainText()
    assert dialog.text.toPlainText().endswith("<|im_start|>assistant\n")
    dialog.close()


def test_answers_are_coloured_by_an_unsteered_reading(qtbot: QtBot, stage: Stage) -> None:
    engine = stage.engine
    engine.attachments.attach(SAE)
    engine.hand_steering.set_values(STRONG, sae_id=SAE, layer=1)
    chat = comparing(stage, qtbot, tokens=8)
    plain, steered = written(chat, qtbot)
    chat.lens.take(SAE, 1, 3)
    both = view(chat)
    until(qtbot, lambda: both.plain.tokens is not None and both.steered.tokens is not None)
    for side, shown in ((plain, both.plain), (steered, both.steered)):
        assert shown.tokens is not None and shown.tokens.coloured is not None
        assert shown.tokens.text.toPlainText().replace("\n", "") == side.content.replace("\n", "")
        request = chat.session.request_behind(1, "tiny-llama", plain=side is plain)
        before = engine.generation.prepare(request).prompts[0].token_ids
        pieces: Any = side.details["pieces"]
        tokens = [token for _text, ids in pieces for token in ids]
        reading = engine.reading.read((*before, *tokens), sae_id=SAE, top_k=0, features=[3]).result(60)
        left = list(reading.values(3)[len(before) :])
        # A piece of text may take several tokens; it shows the strongest of them.
        wanted = [max(left.pop(0) for _ in ids) for _text, ids in pieces]
        assert [piece.value for piece in shown.tokens.coloured.pieces] == pytest.approx(wanted)
        assert left == []
        assert "unsteered reading" in shown.tokens.words.text()
    cursor = both.steered.tokens.text.textCursor()  # type: ignore[union-attr]
    cursor.setPosition(1)
    assert cursor.charFormat().toolTip().startswith("#3: ")
    both.steered.colour_button.click()
    assert both.steered.tokens is None and both.plain.tokens is None
    chat.lens.clear()
    assert chat.side.lens.feature.isHidden()


def test_the_strongest_features_of_the_last_word_come_live(qtbot: QtBot, stage: Stage) -> None:
    stage.engine.attachments.attach(SAE)
    chat = comparing(stage, qtbot, tokens=0)
    panel = chat.side.lens
    until(qtbot, panel.switch.isEnabled)
    panel.switch.click()
    until(qtbot, lambda: stage.engine.monitor.state().enabled and panel.switch.isChecked())
    send(chat, qtbot, "the sea")
    until(qtbot, lambda: panel.live_rows().get((SAE, 1)))
    chat.stop()
    until(qtbot, lambda: not chat.busy)
    assert all(row.startswith("#") for row in panel.live_rows()[(SAE, 1)])
    assert panel.token.full_text()
    stage.engine.attachments.detach(SAE)
    until(qtbot, lambda: not panel.switch.isEnabled())


def test_compare_has_a_key_and_leaves_single_answers_alone(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot, tokens=6)
    stage.window.activateWindow()
    until(qtbot, stage.window.isActiveWindow)
    qtbot.keyClick(stage.window, Qt.Key.Key_D, Qt.KeyboardModifier.ControlModifier)
    assert chat.comparing and chat.strip.isVisible()
    qtbot.keyClick(stage.window, Qt.Key.Key_D, Qt.KeyboardModifier.ControlModifier)
    assert not chat.comparing and chat.strip.isVisible()
    send(chat, qtbot, "one")
    until(qtbot, lambda: not chat.busy)
    assert chat.session.messages[1].plain is None


def test_a_page_leads_here_with_a_cluster_and_a_question(qtbot: QtBot, stage: Stage) -> None:
    engine = stage.engine
    engine.attachments.attach(SAE)
    place = {"mistudio_sae_id": SAE, "layer": 1, "n_features": 64}
    engine.clusters.import_document(raw(cluster("Harbour", member(3, 8.0), sae=place)))
    (found,) = engine.clusters.list().clusters
    engine.library.conversations.create("Old", "", [StoredMessage("user", "x", {})])
    stage.window.go("chat", compare=True, steer=("cluster", found.record.id), intensity=1.25, prompt="Describe it.")
    chat = stage.window.chat
    until(qtbot, lambda: engine.desk.state.profile is not None and not chat.dial.busy)
    assert engine.desk.state.profile.intensity == 1.25  # type: ignore[union-attr]
    assert chat.comparing and chat.composer.draft() == "Describe it."
    assert chat.dial.chosen == (TargetKind.CLUSTER, found.record.id)
    assert chat.strip.dial.value() == 1.25


def test_an_answer_that_goes_on_under_another_steering_is_told_as_both(qtbot: QtBot, stage: Stage) -> None:
    engine = stage.engine
    engine.attachments.attach(SAE)
    engine.hand_steering.set_values(STRONG, sae_id=SAE, layer=1)
    chat = chat_of(stage, qtbot, tokens=6)
    send(chat, qtbot, "the sea")
    until(qtbot, lambda: not chat.busy)
    engine.hand_steering.clear(sae_id=SAE, layer=1)
    chat.messages.go_on.emit()
    until(qtbot, lambda: not chat.busy and chat.session.messages[1].details.get("completion_tokens") == 12)
    told = report_words(chat.session.messages[1].details)
    assert told == ("steered by hand (2 features), in multiples of the first values, at × 1 → 0 (× 0 from token 7)")
    report: Any = chat.session.messages[1].details["steering"]
    assert report["text"] == "none;changed"
    assert chat.session.messages[1].details["rung"] is None
    # It is in the library like that, and its exact prompt tells it.
    until(qtbot, lambda: chat.session.settled and chat.session.conversation_id is not None)
    record = engine.library.conversations.get(chat.session.conversation_id or 0)
    assert record is not None
    assert report_words(record.messages[1].details) == told
    assert "from token 7: none" in added_text(report)
    assert "    manual: sae made-sae, layer 1, features 2" in added_text(report)


def test_closing_the_window_keeps_the_path_of_what_is_written(qtbot: QtBot, stage: Stage) -> None:
    engine = stage.engine
    engine.attachments.attach(SAE)
    engine.hand_steering.set_values(STRONG, sae_id=SAE, layer=1)
    chat = chat_of(stage, qtbot, tokens=0)
    send(chat, qtbot, "the sea")
    until(qtbot, lambda: chat.session.messages and chat.session.messages[-1].content)
    engine.hand_steering.clear(sae_id=SAE, layer=1)
    before = len(chat.session.messages[-1].content)
    until(qtbot, lambda: len(chat.session.messages[-1].content) > before + 200)
    chat.prepare_to_close()
    told = report_words(chat.session.messages[-1].details)
    assert told.startswith(
        "steered by hand (2 features), in multiples of the first values, at × 1 → 0 (× 0 from token "
    )

"""The Steering page and the bar on a real engine with made-up SAEs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QFileDialog
from pytestqt.qtbot import QtBot

from engine.events import SaesChanged
from engine.library.records import FeatureLabel
from engine.steering import transitions
from engine.steering.live import ServingCircuit, ServingProfile
from engine.steering.push import GENTLE
from tests.conftest import EngineMaker
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import answer, chat_of, in_sight, send, until
from tests.ui.stage import Stage
from ui.context.page_context import HOME, STEERING
from ui.kit.basics import Button
from ui.kit.feature_picker import FeaturePicker
from ui.kit.steer_targets import TargetKind
from ui.look.feature_facts import facts_of
from ui.steer.attachment_card import AttachmentCard
from ui.steer.steering import SteeringPage

PLACE = ("made-sae", 1)


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path) -> Stage:
    """The Steering page in front, one SAE in the library."""
    engine = make_engine()
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id="made-sae")
    made = make_stage(engine)
    made.window.show_page(STEERING)
    return made


@pytest.fixture
def card(stage: Stage, qtbot: QtBot) -> AttachmentCard:
    """The dials of the SAE, attached."""
    stage.engine.attachments.attach("made-sae")
    page = stage.window.steering
    until(qtbot, lambda: PLACE in page.cards)
    return page.cards[PLACE]


def values(stage: Stage) -> dict[int, float]:
    return dict(stage.engine.desk.state.entry(PLACE).values)


def add(card: AttachmentCard, qtbot: QtBot, text: str) -> None:
    card.field.setPlainText(text)
    qtbot.keyClick(card.field, Qt.Key.Key_Return)


def test_the_card_tells_how_long_the_sum_of_its_features_is(stage: Stage, card: AttachmentCard, qtbot: QtBot) -> None:
    add(card, qtbot, "3:3, 4:4")
    sae = stage.engine.desk.attachment("made-sae").sae
    length = float((3.0 * sae.decoder_row(3) + 4.0 * sae.decoder_row(4)).norm())
    until(qtbot, lambda: f"adds {length:.3g} in all" in card.state.text())
    assert "adds 7 in all" not in card.state.text()
    card.switch.click()
    until(qtbot, lambda: "switched off" in card.state.text() and "in all" not in card.state.text())


def test_without_a_model_the_page_shows_the_way(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    stage = make_stage(make_engine(folder=None))
    stage.window.activateWindow()
    until(qtbot, stage.window.isActiveWindow)
    qtbot.keyClick(stage.window, Qt.Key.Key_4, Qt.KeyboardModifier.ControlModifier)
    page, bar = stage.window.steering, stage.window.bar
    assert page.gate.isVisible() and "No model is loaded" in page.gate_words.text()
    assert bar.steering.value.full_text() == "nothing"
    assert bar.saes.value.full_text() == "none attached"
    assert not bar.switch.isEnabled()
    page.gate_button.click()
    assert stage.window.open_page == HOME


def button_of(page: SteeringPage, sae_id: str) -> str | None:
    """What the button of an SAE's row says; None while it has none."""
    row = page.shelf.row(sae_id)
    return None if row is None or row.button is None else row.button.accessibleName()


def test_an_sae_is_imported_attached_and_detached(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    page, bar = stage.window.steering, stage.window.bar
    page.shelf.add_button.click()
    assert isinstance(page.folder_dialog, QFileDialog) and page.folder_dialog.isVisible()
    page.folder_dialog.fileSelected.emit(str(make_sae(tmp_path / "second", layer=2, seed=5)))
    page.folder_dialog.close()
    until(qtbot, lambda: len(page.shelf.rows) == 2 and "is imported" in page.shelf.notice.words())
    until(qtbot, lambda: page.shelf.row("made-sae").figures.text().startswith("L0 "))  # type: ignore[union-attr]
    row = page.shelf.row("made-sae")
    assert row is not None and row.button is not None
    row.button.click()
    until(qtbot, lambda: PLACE in page.cards)
    until(qtbot, lambda: bar.saes.value.full_text() == "made-sae @ layer 1")
    # While the work on it is not told to have ended, a row has no button.
    until(qtbot, lambda: button_of(page, "made-sae") == "Detach made-sae")
    until(qtbot, page.gate.isHidden)
    # Asked for anew each time: a row is made again when figures of it arrive.
    until(qtbot, lambda: page.shelf.row("made-sae").button.isEnabled())  # type: ignore[union-attr]
    row = page.shelf.row("made-sae")
    assert row is not None and row.button is not None
    row.button.click()
    until(qtbot, lambda: not page.cards and bar.saes.value.full_text() == "none attached")
    until(qtbot, page.gate.isVisible)


def test_a_folder_without_an_sae_is_refused_in_words(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    page = stage.window.steering
    (tmp_path / "empty").mkdir()
    page.import_folder(str(tmp_path / "empty"))
    until(qtbot, lambda: not page.shelf.progress.isVisible() and page.shelf.add_button.isEnabled())
    assert page.shelf.notice.words() and "Reading" not in page.shelf.notice.words()


def test_features_are_added_dialled_removed_and_undone(qtbot: QtBot, stage: Stage, card: AttachmentCard) -> None:
    page, bar = stage.window.steering, stage.window.bar
    add(card, qtbot, "3:1, 5:2.5\n7=-4")
    until(qtbot, lambda: list(card.rows) and not stage.window.hand.busy)
    assert values(stage) == {3: 1.0, 5: 2.5, 7: -4.0}
    assert sorted(card.rows) == [3, 5, 7]
    assert card.rows[7].slider.strength == -4 and card.rows[5].field.value() == 2.5
    assert bar.steering.value.full_text() == "by hand: 3 features"
    assert bar.switch.isChecked()
    card.rows[3].field.setValue(12.25)
    until(qtbot, lambda: values(stage).get(3) == 12.25)
    card.rows[5].remove_button.click()
    until(qtbot, lambda: 5 not in card.rows)
    card.clear_button.click()
    until(qtbot, lambda: not card.rows and bar.steering.value.full_text() == "nothing")
    for expected in ({3: 12.25, 7: -4.0}, {3: 12.25, 5: 2.5, 7: -4.0}, {3: 1.0, 5: 2.5, 7: -4.0}, {}):
        until(qtbot, page.undo_button.isEnabled)
        page.undo_button.click()
        until(qtbot, lambda wanted=expected: values(stage) == wanted and not stage.window.hand.busy)
    until(qtbot, lambda: not page.undo_button.isEnabled())
    assert card.empty.isVisible()


def known_norm(stage: Stage, norm: float) -> None:
    """The layer's typical norm, as if it had been measured."""
    record = stage.engine.saes.get(PLACE[0])
    model = stage.engine.shelf.resident
    assert model is not None
    quality = {"layer": PLACE[1], "model_name": model.record.name, "median_norm": norm}
    stage.engine.library.saes.update(record.id, config={**record.config, "quality": quality})
    stage.engine.events.publish(SaesChanged())


def test_a_feature_begins_at_the_same_share_wherever_it_is_added(
    qtbot: QtBot, stage: Stage, card: AttachmentCard
) -> None:
    """0.15 of a norm of 200 is a vector of length 30, and dials end at 0.6 of it, 120: typed, found, or tried."""
    known_norm(stage, 200.0)
    sae = stage.engine.desk.attachment(PLACE[0]).sae
    first, end = (
        {index: round(length / float(sae.decoder_row(index).norm()), 2) for index in (3, 5, 9)} for length in (30, 120)
    )
    add(card, qtbot, "3, 5:2.5")
    until(qtbot, lambda: values(stage) == {3: first[3], 5: 2.5})
    stage.window.steering._add_found(PLACE, 9)
    until(qtbot, lambda: values(stage) == {3: first[3], 5: 2.5, 9: first[9]})
    assert facts_of(stage.engine, stage.engine.desk.attachment(PLACE[0]), 9).strength(GENTLE) == first[9]
    until(qtbot, lambda: 9 in card.rows and card.rows[9].slider.end == end[9])
    assert card.rows[9].scale.text() == "0.15 × typical norm" and card.unmeasured.isHidden()
    # What is larger can be typed; its dial then reaches that far, and not much further.
    card.rows[9].field.setValue(160.0)
    until(qtbot, lambda: values(stage)[9] == 160.0 and not stage.window.hand.busy)
    assert (card.rows[9].slider.end, card.rows[9].slider.strength) == (200.0, 160.0)


def test_without_a_norm_the_stated_strength_is_taken_and_said(qtbot: QtBot, stage: Stage, card: AttachmentCard) -> None:
    stage.engine.attachments.attach("made-sae", 2)
    page, other = stage.window.steering, ("made-sae", 2)
    until(qtbot, lambda: other in page.cards)
    add(page.cards[other], qtbot, "3")
    until(qtbot, lambda: dict(stage.engine.desk.state.entry(other).values) == {3: 1.0})
    until(qtbot, page.cards[other].unmeasured.isVisible)
    assert "added with strength 1, and dials end at ±50" in page.cards[other].unmeasured.text()
    until(qtbot, lambda: 3 in page.cards[other].rows)
    assert page.cards[other].rows[3].slider.end == 50.0


def test_a_drag_acts_while_it_lasts_and_is_one_step_back(qtbot: QtBot, stage: Stage, card: AttachmentCard) -> None:
    page = stage.window.steering
    add(card, qtbot, "3:0")
    until(qtbot, lambda: 3 in card.rows and not stage.window.hand.busy)
    slider = card.rows[3].slider
    middle = QPoint(slider.width() // 2, slider.height() // 2)
    qtbot.mousePress(slider, Qt.MouseButton.LeftButton, pos=middle)
    assert slider.isSliderDown()
    qtbot.mouseMove(slider, middle + QPoint(60, 0))
    until(qtbot, lambda: values(stage)[3] > 0)
    first = values(stage)[3]
    qtbot.mouseMove(slider, middle + QPoint(120, 0))
    until(qtbot, lambda: values(stage)[3] > first)
    qtbot.mouseRelease(slider, Qt.MouseButton.LeftButton, pos=middle + QPoint(120, 0))
    until(qtbot, lambda: not stage.window.hand.busy and page.undo_button.isEnabled())
    page.undo_button.click()
    until(qtbot, lambda: values(stage) == {3: 0.0})
    until(qtbot, lambda: slider.value() == 0)


def test_keys_turn_a_dial_and_take_it_back(qtbot: QtBot, stage: Stage, card: AttachmentCard) -> None:
    stage.window.activateWindow()
    until(qtbot, stage.window.isActiveWindow)
    add(card, qtbot, "3:10")
    until(qtbot, lambda: 3 in card.rows and stage.window.steering.undo_button.isEnabled())
    slider = card.rows[3].slider
    slider.setFocus()
    for _turn in range(2):
        qtbot.keyClick(slider, Qt.Key.Key_Right)
    until(qtbot, lambda: values(stage) == {3: 11.0} and not stage.window.hand.busy)
    qtbot.keyClick(slider, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    until(qtbot, lambda: values(stage) == {3: 10.0})
    qtbot.keyClick(slider, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    until(qtbot, lambda: values(stage) == {})


def test_what_the_api_does_appears_without_a_click(qtbot: QtBot, stage: Stage, card: AttachmentCard) -> None:
    bar = stage.window.bar
    stage.engine.hand_steering.set_value(9, 30.0)
    until(qtbot, lambda: 9 in card.rows and card.rows[9].slider.strength == 30)
    assert bar.steering.value.full_text() == "by hand: 1 feature"
    stage.engine.hand_steering.set_enabled(False)
    until(qtbot, lambda: bar.steering.value.full_text() == "nothing (switched off)")
    assert not card.switch.isChecked() and not bar.switch.isChecked()
    bar.switch.click()
    until(qtbot, lambda: stage.engine.hand_steering.view().enabled and card.switch.isChecked())
    card.switch.click()
    until(qtbot, lambda: not stage.engine.hand_steering.view().enabled and not bar.switch.isChecked())
    stage.engine.attachments.detach("made-sae")
    until(qtbot, lambda: not stage.window.steering.cards)


def test_refusals_are_told_where_they_arose(qtbot: QtBot, stage: Stage, card: AttachmentCard) -> None:
    add(card, qtbot, "three")
    assert "'three' is no feature" in card.error.text()
    assert card.field.toPlainText() == "three"
    add(card, qtbot, "64")
    until(qtbot, lambda: "64" in card.notice.words())
    add(card, qtbot, "3:201")
    until(qtbot, lambda: "200" in card.notice.words())
    assert values(stage) == {}


def test_labels_and_scale_stand_beside_a_feature(qtbot: QtBot, stage: Stage, card: AttachmentCard) -> None:
    stage.engine.saes.import_labels("made-sae", [FeatureLabel(3, "words about the sea")])
    add(card, qtbot, "3:10, 4")
    until(qtbot, lambda: 3 in card.rows and card.rows[3].title.full_text() == "words about the sea")
    assert card.rows[4].title.full_text() == "no label"
    until(qtbot, lambda: card.rows[3].scale.text().endswith(" × typical norm"))
    assert card.rows[3].scale.isVisible()


def test_what_is_set_is_saved_as_a_profile(qtbot: QtBot, stage: Stage, card: AttachmentCard) -> None:
    add(card, qtbot, "3:10")
    until(qtbot, lambda: 3 in card.rows)
    card.save_button.click()
    assert card.save_panel.isVisible() and card.name.text().startswith("tiny-llama-steering-")
    card.name.setText("Sea")
    qtbot.keyClick(card.name, Qt.Key.Key_Return)
    until(qtbot, lambda: card.notice.words() == "Saved as the profile Sea.")
    (profile,) = stage.engine.profiles.list().profiles
    assert dict(profile.record.steering) == {3: 10.0}
    card.begin_save("Sea")
    qtbot.keyClick(card.name, Qt.Key.Key_Return)
    until(qtbot, lambda: "Sea" in card.notice.words() and "Saved" not in card.notice.words())
    stage.engine.profiles.activate(profile.record.id)
    until(qtbot, lambda: stage.window.bar.steering.value.full_text() == "profile Sea · λ 1")


def test_a_dial_turned_while_text_streams_is_in_its_report(qtbot: QtBot, stage: Stage, card: AttachmentCard) -> None:
    chat = chat_of(stage, qtbot)
    send(chat, qtbot, "one")
    until(qtbot, lambda: not chat.busy)
    assert answer(chat, 1).steering.text() == "not steered"
    chat.settings.length.setValue(0)
    send(chat, qtbot, "two")
    until(qtbot, lambda: chat.session.messages[-1].content)
    add(card, qtbot, "3:20, 4:20")
    until(qtbot, lambda: values(stage) == {3: 20.0, 4: 20.0})
    chat.stop()
    until(qtbot, lambda: not chat.busy)
    chat.settings.length.setValue(6)
    send(chat, qtbot, "three")
    until(qtbot, lambda: not chat.busy)
    assert answer(chat, 5).steering.text() == "steered by hand: 2 features"
    kept = chat.session.messages[5].details["steering"]
    assert isinstance(kept, dict) and kept["text"].startswith('manual;sae="made-sae";layer=1;features=2;')
    until(qtbot, lambda: chat.session.settled and chat.session.conversation_id is not None)
    stored = stage.engine.library.conversations.get(chat.session.conversation_id or 0)
    assert stored is not None and stored.messages[5].details["steering"] == kept


def test_the_bar_names_what_is_in_force(qtbot: QtBot, stage: Stage, card: AttachmentCard) -> None:
    desk, bar, page = stage.engine.desk, stage.window.bar, stage.window.steering
    add(card, qtbot, "3:10")
    until(qtbot, page.undo_button.isEnabled)
    desk.apply(transitions.activate_profile(ServingProfile("p1", "Sea", True, PLACE, {7: 20.0}, 0.5)))
    until(qtbot, lambda: bar.steering.value.full_text() == "cluster Sea · λ 0.5")
    assert card.rows[7].field.value() == 10.0
    assert not page.undo_button.isEnabled()
    desk.apply(transitions.deactivate_profile("p1"))
    until(qtbot, lambda: bar.steering.value.full_text() == "nothing")
    circuit = ServingCircuit("c1", "Two steps", {PLACE: {5: 8.0}}, 1.0, 2)
    desk.apply(transitions.serve_circuit(circuit))
    until(qtbot, lambda: bar.steering.value.full_text() == "circuit Two steps · λ 1")
    assert bar.steering.caption.text() == "Steering now · causally validated (edge)"
    assert card.shared.text() == "Also steered here by the circuit Two steps."
    bar.switch.click()
    until(qtbot, lambda: bar.steering.value.full_text() == "nothing (switched off)")
    bar.switch.click()
    until(qtbot, lambda: bar.steering.value.full_text().startswith("circuit Two steps"))
    desk.apply(transitions.serve_circuit(replace(circuit, rung=None)))
    words = "Steering now · no evidence can be claimed"
    until(qtbot, lambda: bar.steering.caption.full_text() == words)
    desk.apply(transitions.stop_circuit("c1"))
    until(qtbot, lambda: bar.steering.caption.full_text() == "Steering now")


def test_several_saes_have_their_own_dials_and_one_switch(
    qtbot: QtBot, stage: Stage, card: AttachmentCard, tmp_path: Path
) -> None:
    saes, bar, page = stage.engine.saes, stage.window.bar, stage.window.steering
    saes.import_local(make_sae(tmp_path / "other", layer=2, seed=3), sae_id="other-sae")
    stage.engine.attachments.attach("other-sae")
    other = ("other-sae", 2)
    until(qtbot, lambda: other in page.cards)
    assert bar.saes.value.full_text() == "2 on layers 1, 2"
    add(card, qtbot, "3:10")
    add(page.cards[other], qtbot, "4:10, 5:10")
    until(qtbot, lambda: bar.steering.value.full_text() == "by hand: 3 features")
    page.cards[other].switch.click()
    until(qtbot, lambda: bar.steering.value.full_text() == "by hand: 1 feature")
    bar.switch.click()
    until(qtbot, lambda: bar.steering.value.full_text() == "nothing (switched off)")
    bar.switch.click()
    until(qtbot, lambda: bar.steering.value.full_text() == "by hand: 1 feature" and bar.switch.isChecked())
    assert not stage.engine.desk.state.entry(other).enabled


def test_an_sae_that_does_not_fit_is_refused_in_words(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    page = stage.window.steering
    stage.engine.saes.import_local(make_sae(tmp_path / "wide", layer=1, d_in=48), sae_id="wide-sae")
    until(qtbot, lambda: page.shelf.row("wide-sae") is not None)
    row = page.shelf.row("wide-sae")
    assert row is not None and row.button is not None
    assert row.figures.text() == "not measured yet"
    row.button.click()
    until(qtbot, lambda: "48" in page.shelf.notice.words() and page.shelf.progress.isHidden())
    assert not page.cards


def test_an_sae_of_unknown_layer_is_attached_where_one_says(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    page = stage.window.steering
    stage.engine.saes.import_local(make_sae(tmp_path / "loose", layer=None, seed=4), sae_id="loose-sae")
    until(qtbot, lambda: page.shelf.row("loose-sae") is not None)
    row = page.shelf.row("loose-sae")
    assert row is not None and row.button is not None and row.layer is not None
    row.layer.setValue(3)
    row.button.click()
    until(qtbot, lambda: ("loose-sae", 3) in page.cards)


@pytest.mark.parametrize("size", [(1280, 800), (960, 600), (640, 440)])
def test_the_page_is_never_wider_than_the_window(
    qtbot: QtBot, stage: Stage, card: AttachmentCard, size: tuple[int, int]
) -> None:
    add(card, qtbot, "3:10, 4, 5")
    until(qtbot, lambda: len(card.rows) == 3)
    stage.window.resize(*size)
    until(qtbot, lambda: stage.window.steering.horizontalScrollBar().maximum() == 0)
    assert stage.window.size().toTuple() == size


@pytest.mark.parametrize("size", [(1280, 800), (900, 620)])
def test_what_opens_on_a_card_opens_in_sight(
    qtbot: QtBot, stage: Stage, card: AttachmentCard, size: tuple[int, int]
) -> None:
    stage.window.resize(*size)
    page = stage.window.steering
    add(card, qtbot, " ".join(f"{index}:1" for index in range(9)))
    until(qtbot, lambda: len(card.rows) == 9 and not stage.window.hand.busy)
    page.verticalScrollBar().setValue(0)
    card.find_button.click()
    assert card.finder is not None
    until(qtbot, lambda: in_sight(card.finder))
    card.find_button.click()
    page.verticalScrollBar().setValue(page.verticalScrollBar().maximum())
    card.find_button.click()
    until(qtbot, lambda: in_sight(card.finder))
    card.find_button.click()
    for _round in range(8):
        QApplication.processEvents()
    high = card.height()
    card.save_button.click()
    until(qtbot, lambda: in_sight(card.save_panel))
    assert abs(card.height() - high) <= 4
    card.name.setText("nine of them")
    qtbot.keyClick(card.name, Qt.Key.Key_Return)
    until(qtbot, lambda: "Saved as the profile" in card.notice.words() and in_sight(card.notice))
    (saved,) = stage.engine.library.profiles.list()
    next(each for each in card.notice.findChildren(Button) if each.text() == "Compare with it").click()
    chat = stage.window.chat
    until(qtbot, lambda: chat.comparing and chat.dial.chosen == (TargetKind.PROFILE, saved.id))


def test_features_are_found_by_the_words_of_their_labels(qtbot: QtBot, stage: Stage, card: AttachmentCard) -> None:
    labels = [FeatureLabel(3, "words about the sea", max_activation=20.0), FeatureLabel(9, "kings")]
    stage.engine.saes.import_labels("made-sae", labels)
    known_norm(stage, 100.0)
    card.find_button.click()
    picker = card.finder
    assert isinstance(picker, FeaturePicker) and picker.isVisible()
    picker.field.setText("sea")
    until(qtbot, lambda: [each.feature_idx for each in picker.shown()] == [3])
    qtbot.keyClick(picker.field, Qt.Key.Key_Return)
    # The made SAE's rows have length 1: 0.15 of the norm is a strength of 15.
    until(qtbot, lambda: values(stage) == {3: 15.0})
    until(qtbot, lambda: 3 in card.rows and card.rows[3].scale.text().endswith("0.75 × max activation"))
    # One that is there keeps its strength.
    card.rows[3].field.setValue(10.0)
    until(qtbot, lambda: values(stage) == {3: 10.0} and not stage.window.hand.busy)
    assert card.rows[3].scale.text().endswith("0.5 × max activation")
    qtbot.keyClick(picker.field, Qt.Key.Key_Return)
    picker.field.setText("9")
    qtbot.keyClick(picker.field, Qt.Key.Key_Return)
    until(qtbot, lambda: values(stage) == {3: 10.0, 9: 15.0})
    card.find_button.click()
    assert picker.isHidden()


def test_live_activations_are_read_while_the_switch_is_on(qtbot: QtBot, stage: Stage, card: AttachmentCard) -> None:
    monitor, page = stage.engine.monitor, stage.window.steering
    add(card, qtbot, "3:1, 4:1")
    until(qtbot, lambda: len(card.rows) == 2 and not stage.window.hand.busy)
    assert not monitor.state().enabled and card.rows[3].activation.isHidden()
    page.live_switch.click()
    assert monitor.state().enabled and monitor.state().monitored_features == (3, 4)
    send(chat_of(stage, qtbot, tokens=24), qtbot, "one two three")
    until(qtbot, lambda: not stage.window.chat.busy and not card.rows[3].activation.isHidden())
    assert card.rows[3].activation.text() == "silent" or card.rows[3].activation.text().startswith("fires ")
    stage.window.show_page(STEERING)
    add(card, qtbot, "7:1")
    until(qtbot, lambda: monitor.state().monitored_features == (3, 4, 7))
    page.live_switch.click()
    assert not monitor.state().enabled and monitor.state().monitored_features is None
    assert card.rows[3].activation.isHidden()

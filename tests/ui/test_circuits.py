"""The Circuits page on a real engine: evidence in words, acknowledgement, taken layers, dial, documents, what others do."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel, QScrollArea
from pytestqt.qtbot import QtBot

from engine.documents.evidence import claims_causation
from engine.engine import Engine
from engine.steering.errors import SteeringInvalid
from engine.wire import wire
from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.steer_stage import ONE, TWO, add_saes, attach_both, circuit, circuits_page, drop, member, raw, write
from ui.context.page_context import CIRCUITS, FEATURES
from ui.kit.steering_text import live_evidence
from ui.look.features import FeaturesPage
from ui.steer.circuit_card import EVIDENCE
from ui.steer.circuits import CircuitsPage


@pytest.fixture
def engine(make_engine: EngineMaker, tmp_path: Path) -> Engine:
    made = make_engine()
    add_saes(made, tmp_path)
    return made


@pytest.fixture
def page(engine: Engine, make_stage: StageMaker, qtbot: QtBot) -> CircuitsPage:
    return circuits_page(make_stage, engine, qtbot)


def imported(page: CircuitsPage, engine: Engine, qtbot: QtBot, document: dict[str, object]) -> str:
    """Import through the engine and wait until it is chosen."""
    key = engine.circuits.import_document(raw(document)).id
    until(qtbot, lambda: key in page.views)
    page.select(key)
    until(qtbot, lambda: page.view is not None and page.view.record.id == key)
    return key


def serving(page: CircuitsPage) -> bool:
    return page.view is not None and bool(page.view.view.summary.steering)


def live(engine: Engine) -> dict[int, dict[int, float]]:
    return {each.layer: dict(each.strengths) for each in engine.desk.live_plan.sets}


def texts(page: CircuitsPage) -> str:
    """Every word of ours on the card, tooltips included; the author's own are left out."""
    author = page.card.narrative
    labels = [each for each in page.card.findChildren(QLabel) if not author.isAncestorOf(each)]
    return " ".join(f"{each.text()} {each.toolTip()} {each.accessibleName()}" for each in labels)


def test_persistence_is_said_wherever_the_evidence_is(page: CircuitsPage, engine: Engine, qtbot: QtBot) -> None:
    made = circuit()
    for edge in made["edges"]:
        edge["type"] = "persistence"
    attach_both(engine)
    key = imported(page, engine, qtbot, made)
    said = "causally validated (edge) · persistence only: carried on, not computed"
    assert page.card.badge.text() == said
    short = "causally validated (edge) · persistence"
    assert [item.marks[0] for item in page.list.items()] == [(short, "info")]
    assert "Every edge of this circuit is persistence" in texts(page)
    engine.circuits.activate(key)
    assert live_evidence(engine.desk.now) == short
    (item,) = wire(engine.desk.live_plan.report.told())["items"]
    assert item["only_persistence"] is True


def test_files_are_dropped_and_their_verdicts_said(
    page: CircuitsPage, engine: Engine, qtbot: QtBot, tmp_path: Path
) -> None:
    engine.attachments.attach("sae-one")
    assert drop(page, paths=(write(tmp_path, "hedge.circuit.json", circuit()),))
    until(qtbot, lambda: page.view is not None and page.report.isVisible())
    assert page.report.outcomes[0].words == (
        "Imported; not every layer has its SAE yet.",
        "Evidence: causally validated (edge).",
        "Layer 1: bound to its SAE.",
        "Layer 2: no SAE is attached at layer 2.",
    )
    card = page.card
    assert card.badge.text() == "causally validated (edge)"
    assert card.next_step.text().startswith(
        "To reach rung 3: run circuit-level faithfulness. This program does not test"
    )
    assert card.marks() == ["SAE set incomplete"]
    assert card.layer_sentences() == [
        "Layer 1 runs on sae-one @ layer 1.",
        "Layer 2 is not bound: no SAE is attached at layer 2. sae-two is in the library and can be attached.",
    ]
    card.attach_button.click()
    until(qtbot, lambda: card.marks() == [] and card.attach_button.isHidden())
    assert card.layer_sentences()[1] == "Layer 2 runs on sae-two @ layer 2."


def test_what_is_not_in_the_library_is_named(page: CircuitsPage, engine: Engine, qtbot: QtBot) -> None:
    saes = [{"mistudio_sae_id": "elsewhere", "layer": 1, "n_features": 99}, {"layer": 2}]
    imported(page, engine, qtbot, circuit(saes=saes))
    assert page.card.layer_sentences()[0] == (
        "Layer 1 is not bound: no SAE is attached. It was made with elsewhere, which is not in the library: import that "
        "SAE first."
    )


def test_it_serves_at_what_the_dial_says(page: CircuitsPage, engine: Engine, qtbot: QtBot) -> None:
    attach_both(engine)
    key = imported(page, engine, qtbot, circuit())
    card = page.card
    assert card.check_row.isHidden()
    assert [(each.word, each.value) for each in card.dial.marks.marks] == [
        ("onset", 0.25),
        ("sweet spot", 0.5),
        ("cliff", 1.5),
    ]
    card.dial.set_value(0.5)
    card.dial.track.setFocus()
    for _press in range(10):
        qtbot.keyClick(card.dial.track, Qt.Key.Key_Right)
    until(qtbot, lambda: page._dials.get(key) == 1.0)
    assert engine.circuits.get(key).record.intensity == 0.5
    card.switch_button.click()
    until(qtbot, lambda: serving(page) and card.marks() == ["serving"])
    assert live(engine) == {1: {1: 8.0}, 2: {2: 4.0, 3: -2.0}}
    assert [each.text() for each in page.claims.widgets()] == ["Layers 1, 2 → question → hedge"]  # type: ignore[attr-defined]
    assert card.hazards.words() == (
        "#1 (layer 1) and #2 (layer 2) add up: measured effect 0.25.",
        "#1 (layer 1) and #3 (layer 2) may work against each other: both are steered, and no effect between them was "
        "measured.",
    )
    card.dial.field.setFocus()
    card.dial.field.selectAll()
    qtbot.keyClicks(card.dial.field, "1.5")
    qtbot.keyClick(card.dial.field, Qt.Key.Key_Return)
    until(qtbot, lambda: live(engine) == {1: {1: 12.0}, 2: {2: 6.0, 3: -3.0}})
    card.switch_button.click()
    until(qtbot, lambda: not serving(page) and card.switch_button.text() == " Activate")
    assert live(engine) == {} and page.claims.widgets() == []


def test_below_rung_2_a_person_says_that_they_know(page: CircuitsPage, engine: Engine, qtbot: QtBot) -> None:
    attach_both(engine)
    imported(page, engine, qtbot, circuit(rung=1))
    card = page.card
    assert card.badge.text() == "suggested (attribution-supported)"
    assert card.marks() == ["unvalidated"]
    assert card.check_words.text() == (
        "I know that its evidence is only “suggested (attribution-supported)”, and want to use it as it is."
    )
    assert not card.switch_button.isEnabled()
    card.open_tab(EVIDENCE)
    assert not claims_causation(texts(page))
    assert not claims_causation(" ".join(card.drawing.legend_words))
    qtbot.keyClick(card.check, Qt.Key.Key_Space)
    assert card.switch_button.isEnabled()
    card.switch_button.click()
    until(qtbot, lambda: serving(page))
    assert not claims_causation(texts(page) + page.notice.words())
    card.dial.field.setFocus()
    card.dial.field.selectAll()
    qtbot.keyClicks(card.dial.field, "1")
    qtbot.keyClick(card.dial.field, Qt.Key.Key_Return)
    until(qtbot, lambda: live(engine)[1] == {1: 8.0})
    # Taken back, the gate is asked again: the dial stays where it was, and why is said.
    card.check.setChecked(False)
    card.dial.field.selectAll()
    qtbot.keyClicks(card.dial.field, "0.5")
    qtbot.keyClick(card.dial.field, Qt.Key.Key_Return)
    until(qtbot, lambda: "acknowledge that it is unvalidated" in page.notice.words())
    until(qtbot, lambda: card.dial.value() == 1.0)


def test_of_a_turn_that_another_followed_nothing_is_said(page: CircuitsPage, qtbot: QtBot) -> None:
    """The engine's answers may come in another order than the turns were made."""
    first, said = threading.Event(), []

    def refuse() -> None:
        raise SteeringInvalid("That is too much.")

    page.turn(page.card.dial, first.wait, lambda _result: page.say_warnings(()))
    page.turn(page.card.dial, refuse)
    until(qtbot, lambda: "That is too much." in page.notice.words())
    first.set()
    page._frame.bridge.run_in_background(first.wait, said.append, owner=page)
    until(qtbot, lambda: said and not page.card.dial._held)
    assert "That is too much." in page.notice.words()


def test_a_slice_serves_and_the_dial_is_its_clusters(page: CircuitsPage, engine: Engine, qtbot: QtBot) -> None:
    engine.attachments.attach("sae-two")
    key = imported(page, engine, qtbot, circuit())
    page.card.switch_button.click()
    until(qtbot, lambda: page.card.marks() == ["serving a slice", "SAE set incomplete"])
    assert page.card.slice_note.text().startswith(
        "Only one layer of it is served, as the cluster “question → hedge [L2 "
    )
    assert "Only layer 2 is served" in page.notice.words()
    page.card.dial.field.setFocus()
    page.card.dial.field.selectAll()
    qtbot.keyClicks(page.card.dial.field, "1")
    qtbot.keyClick(page.card.dial.field, Qt.Key.Key_Return)
    until(qtbot, lambda: live(engine) == {2: {2: 4.0, 3: -2.0}})
    slice_id = engine.circuits.get(key).record.slice_profile_id
    assert slice_id is not None and engine.clusters.get(slice_id).record.intensity == 1.0
    page.card.delete_button.click()
    until(qtbot, lambda: not page.views)
    assert "The cluster that was cut from it" in page.notice.words()
    assert engine.clusters.list().clusters == () and live(engine) == {}
    button = next(each for each in page.notice.findChildren(type(page.import_button)) if each.text() == " Undo")
    button.click()
    until(qtbot, lambda: page.view is not None and page.view.record.id == key)
    restored = engine.circuits.get(key).record
    assert (restored.slice_profile_id, restored.is_active) == (slice_id, False)


def test_taken_layers_leave_two_choices_while_sharing_is_off(page: CircuitsPage, engine: Engine, qtbot: QtBot) -> None:
    attach_both(engine)
    first = imported(page, engine, qtbot, circuit("first"))
    engine.circuits.activate(first)
    second = imported(page, engine, qtbot, circuit("second", first=11))
    page.card.switch_button.click()
    until(qtbot, lambda: page.contention is not None and page.contention.isVisible())
    dialog = page.contention
    assert dialog is not None and dialog.compose_button is None
    words = "\n".join(dialog.words)
    for expected in (
        "'second' needs layers 1, 2, which is claimed by 'first'.",
        "Layers in question: 1, 2.",
        "Held by: first.",
        "Two layers at strength 5: text degenerates.",
        "A single measurement. Other models and features may bear more or less.",
        "CIRCUIT_ALLOW_CONCURRENT is off",
    ):
        assert expected in words
    dialog.cancel_button.click()
    until(qtbot, lambda: not dialog.isVisible())
    assert [each.record.id for each in engine.circuits.active()] == [first]
    page.card.switch_button.click()
    until(qtbot, lambda: page.contention is not dialog and page.contention is not None and page.contention.isVisible())
    again = page.contention
    assert again is not None and again.deactivate_button.text() == "Deactivate “first”"
    again.deactivate_button.click()
    until(qtbot, lambda: serving(page))
    assert [each.record.id for each in engine.circuits.active()] == [second]
    assert "Deactivated for it: first." in page.notice.words()


def test_sharing_is_offered_where_the_setting_allows_it(
    make_engine: EngineMaker, make_stage: StageMaker, qtbot: QtBot, tmp_path: Path
) -> None:
    engine = make_engine(CIRCUIT_ALLOW_CONCURRENT=True)
    add_saes(engine, tmp_path)
    attach_both(engine)
    page = circuits_page(make_stage, engine, qtbot)
    engine.circuits.activate(imported(page, engine, qtbot, circuit("first")))
    second = imported(page, engine, qtbot, circuit("second", first=11))
    page.card.switch_button.click()
    until(qtbot, lambda: page.contention is not None and page.contention.isVisible())
    dialog = page.contention
    assert dialog is not None and dialog.compose_button is not None
    assert "While layers are shared no evidence rung is claimed for an answer." in dialog.words
    dialog.compose_button.click()
    until(qtbot, lambda: page.card.marks() == ["serving", "shares a layer"])
    until(qtbot, lambda: len(page.claims.widgets()) == 2)
    assert {each.text() for each in page.claims.widgets()} == {  # type: ignore[attr-defined]
        "Layers 1, 2 → first (shared)",
        "Layers 1, 2 → second (shared)",
    }
    # Each has its own dial, though two are active.
    page.card.dial.field.setFocus()
    page.card.dial.field.selectAll()
    qtbot.keyClicks(page.card.dial.field, "1")
    qtbot.keyClick(page.card.dial.field, Qt.Key.Key_Return)
    until(qtbot, lambda: engine.circuits.get(second).record.intensity == 1.0)
    # The same feature on the same layer can never be shared.
    third = circuit("third", members=[{"layer": 1, "feature": member(1, 2.0)}], edges=[], saes=[{"layer": 1}])
    imported(page, engine, qtbot, third)
    page.card.check.setChecked(True)
    page.card.switch_button.click()
    until(qtbot, lambda: page.contention is not dialog and page.contention is not None and page.contention.isVisible())
    collision = page.contention
    assert collision is not None and collision.compose_button is None
    assert "Both steer the same features: #1 on layer 1." in collision.words
    assert "They cannot be composed: two circuits cannot steer one feature." in collision.words
    collision.reject()


def test_evidence_is_told_with_its_numbers(page: CircuitsPage, engine: Engine, qtbot: QtBot) -> None:
    imported(page, engine, qtbot, circuit())
    page.card.open_tab(EVIDENCE)
    words = texts(page)
    assert "effect 0.25 · 17 prompts · 12 controls, the largest 0.0456 · computed" in words
    assert "no effect measured · computed" in words
    assert "onset λ 0.25, best at λ 0.5, breaks at λ 1.5" in words


def test_it_is_exported_as_it_came(page: CircuitsPage, engine: Engine, qtbot: QtBot, tmp_path: Path) -> None:
    document = circuit(x_unknown=[None, {"a": 1.5}])
    imported(page, engine, qtbot, document)
    page.card.export_button.click()
    assert page.save_dialog is not None
    target = tmp_path / "out.circuit.json"
    page.save_dialog.fileSelected.emit(str(target))
    page.save_dialog.close()
    until(qtbot, lambda: page.notice.words().startswith("Written to"))
    assert json.loads(target.read_text(encoding="utf-8")) == document


def test_what_the_api_does_appears_without_a_click(page: CircuitsPage, engine: Engine, qtbot: QtBot) -> None:
    key = imported(page, engine, qtbot, circuit())
    attach_both(engine)
    until(qtbot, lambda: page.card.layer_sentences()[0] == "Layer 1 runs on sae-one @ layer 1.")
    engine.circuits.activate(key)
    until(qtbot, lambda: page.card.marks() == ["serving"])
    engine.circuits.set_intensity(1.25)
    until(qtbot, lambda: page.card.dial.value() == 1.25)
    engine.hand_steering.set_enabled(False, sae_id=ONE[0], layer=ONE[1])
    engine.hand_steering.set_enabled(False, sae_id=TWO[0], layer=TWO[1])
    until(qtbot, lambda: page.card.marks() == ["active, adds nothing"])
    engine.attachments.detach("sae-two")
    until(qtbot, lambda: page.card.marks() == ["SAE set incomplete"] and not page.claims.widgets())
    engine.circuits.delete(key)
    until(qtbot, lambda: page.stack.currentIndex() == 0)


@pytest.mark.parametrize("size", [(1280, 800), (640, 440)])
def test_the_window_may_be_small(page: CircuitsPage, engine: Engine, qtbot: QtBot, size: tuple[int, int]) -> None:
    imported(page, engine, qtbot, circuit(rung=0))
    window = page.window()
    window.resize(*size)
    until(qtbot, lambda: window.size().toTuple() == size)


def test_a_serving_circuit_fits_into_the_window_whatever_is_said_of_it(
    page: CircuitsPage, engine: Engine, qtbot: QtBot
) -> None:
    attach_both(engine)
    key = imported(page, engine, qtbot, circuit())
    engine.circuits.activate(key)
    until(qtbot, lambda: page.card.marks() == ["serving"] and page.claims.widgets())
    area = next(each for each in page.findChildren(QScrollArea) if each.objectName() == "page")
    drawing = page.card.drawing
    QApplication.processEvents()
    assert area.verticalScrollBar().maximum() == 0
    before = drawing.view.size()
    drawing.view.noticed.emit("Layer 1: #1 " + "a long label that is told in full · " * 4)
    QApplication.processEvents()
    # What is said has its place: a drawing that moved under the mouse would be hard to point at.
    assert drawing.view.size() == before
    assert area.verticalScrollBar().maximum() == 0


def test_a_node_leads_to_its_feature_where_its_layer_has_its_sae(
    engine: Engine, make_stage: StageMaker, qtbot: QtBot
) -> None:
    stage = make_stage(engine)
    stage.window.show_page(CIRCUITS)
    page = stage.window.page(CIRCUITS)
    assert isinstance(page, CircuitsPage)
    imported(page, engine, qtbot, circuit())
    view = page.card.drawing.view
    view.setFocus()
    view.scene().setFocusItem(view.nodes["1@1"])
    qtbot.keyClick(view, Qt.Key.Key_Return)
    until(qtbot, lambda: page.notice.words().startswith("Attach the SAE of layer 1 first"))
    attach_both(engine)
    until(qtbot, lambda: page.view is not None and len(page.view.places) == 2)
    node = view.nodes["3@2"] if "3@2" in view.nodes else view.nodes["1@1"]
    qtbot.mouseDClick(view.viewport(), Qt.MouseButton.LeftButton, pos=view.mapFromScene(node.pos()))
    assert stage.window.open_page == FEATURES
    features = stage.window.page(FEATURES)
    assert isinstance(features, FeaturesPage)
    place = features.places.place
    assert place is not None and (place.sae_id, place.layer) == (ONE if node.node.layer == 1 else TWO)

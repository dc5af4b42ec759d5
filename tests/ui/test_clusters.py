"""The Clusters page on a real engine: documents in and out, the dial, verdicts in words, what others do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from engine.engine import Engine
from engine.library.records import FeatureLabel
from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.steer_stage import ONE, add_saes, circuit, cluster, clusters_page, drop, member, raw, write
from ui.context.page_context import CHAT, CIRCUITS, CLUSTERS, SWEEP
from ui.steer.clusters import ClustersPage
from ui.steer.sweep import SweepPage


@pytest.fixture
def engine(make_engine: EngineMaker, tmp_path: Path) -> Engine:
    made = make_engine()
    add_saes(made, tmp_path)
    return made


@pytest.fixture
def page(engine: Engine, make_stage: StageMaker, qtbot: QtBot) -> ClustersPage:
    return clusters_page(make_stage, engine, qtbot)


def values(engine: Engine) -> dict[int, float]:
    return dict(engine.desk.state.entry(ONE).values)


def imported(page: ClustersPage, qtbot: QtBot, document: object | None = None) -> str:
    """Import by paste and wait until it is chosen."""
    page.import_text(json.dumps(document or cluster()))
    until(qtbot, lambda: page.record is not None and page.card.name.text() == page.record.name)
    assert page.record is not None
    return page.record.id


def test_an_empty_page_shows_the_ways_in(page: ClustersPage) -> None:
    assert page.stack.currentIndex() == 0
    assert ".cluster.json" in page.gate_words.text()


def test_a_file_is_imported_by_the_dialog(page: ClustersPage, qtbot: QtBot, tmp_path: Path) -> None:
    path = write(tmp_path, "harbour.cluster.json", cluster())
    page.import_button.click()
    dialog = page.door.file_dialog
    assert isinstance(dialog, QFileDialog) and dialog.isVisible()
    dialog.setDirectory(str(tmp_path))
    dialog.selectFile(str(path))
    dialog.filesSelected.emit([str(path)])
    dialog.close()
    until(qtbot, lambda: page.report.isVisible() and page.record is not None)
    assert page.report.outcomes[0].words == (
        "Imported, but not bound to an SAE yet.",
        "Not bound: no SAE is attached. Attach one, then activate the cluster.",
    )
    assert page.card.name.text() == "Harbour"
    assert page.card.binding.text() == "Not bound: no SAE is attached. Attach one, then activate the cluster."
    until(qtbot, lambda: [item.marks for item in page.list.items()] == [(("unbound", "warn"),)])


def test_text_is_imported_by_the_field(page: ClustersPage, qtbot: QtBot) -> None:
    QGuiApplication.clipboard().setText("no document")
    page.paste_button.click()
    dialog = page.door.paste_dialog
    assert dialog is not None and dialog.field.toPlainText() == "" and not dialog.import_button.isEnabled()
    dialog.field.setPlainText(json.dumps(cluster()))
    dialog.import_button.click()
    until(qtbot, lambda: page.record is not None)


def test_what_the_clipboard_holds_is_imported_by_a_key(page: ClustersPage, qtbot: QtBot) -> None:
    QGuiApplication.clipboard().setText(json.dumps(cluster()))
    page.window().activateWindow()
    until(qtbot, page.window().isActiveWindow)
    page.list.list.setFocus()
    qtbot.keyClick(page.list.list, Qt.Key.Key_V, Qt.KeyboardModifier.ControlModifier)
    until(qtbot, lambda: page.record is not None)
    QGuiApplication.clipboard().clear()


def test_files_dropped_anywhere_are_imported(page: ClustersPage, qtbot: QtBot, tmp_path: Path) -> None:
    assert not drop(page, text="hello")
    good = write(tmp_path, "one.cluster.json", cluster())
    bad = write(tmp_path, "two.json", {**cluster(), "members": []})
    assert drop(page, paths=(good, bad, tmp_path / "gone.json"))
    until(qtbot, lambda: page.report.isVisible())
    assert page.report.title.text() == "Imported 1 of 3"
    words = page.report.words()
    assert "/members must have at least 1 item, it has 0" in words
    assert "gone.json The file cannot be read" in words
    until(qtbot, lambda: [item.title for item in page.list.items()] == ["Harbour"])


def test_a_bundle_says_what_became_of_each_part(page: ClustersPage, qtbot: QtBot) -> None:
    bundle = {
        "kind": "mistudio.cluster-bundle",
        "schema_version": "1",
        "definitions": [cluster("A"), cluster("A"), {**cluster("B"), "members": [member(1, 900.0)]}],
    }
    assert drop(page, text=json.dumps(bundle))
    until(qtbot, lambda: page.report.isVisible())
    assert [each.tone for each in page.report.outcomes] == ["warn", "warn", "bad"]
    assert "/members/0/strength must be at most 300" in page.report.words()
    # The second had a name that is taken: it, alone, is imported under another.
    button = page.report.button(1)
    assert button is not None and button.text() == "Import under another name"
    button.click()
    until(qtbot, lambda: [item.title for item in page.list.items()] == ["A", "A (2)"])
    assert len(page.report.outcomes) == 3


def test_a_document_of_another_kind_goes_where_it_belongs(page: ClustersPage, engine: Engine, qtbot: QtBot) -> None:
    page.import_text(json.dumps(circuit()))
    until(qtbot, lambda: page.report.isVisible())
    outcome = page.report.outcomes[0]
    assert outcome.page == CIRCUITS and engine.circuits.list().total == 1
    assert "Evidence: causally validated (edge)." in outcome.words
    page.import_text('{"kind": "somebody.else"}')
    until(qtbot, lambda: "somebody.else" in page.report.words())
    page.import_text("[1, 2")
    until(qtbot, lambda: "is not JSON" in page.report.words())


def test_it_is_activated_dialled_and_deactivated(page: ClustersPage, engine: Engine, qtbot: QtBot) -> None:
    imported(page, qtbot)
    assert page.card.attach_button.isVisible()
    page.card.attach_button.click()
    until(qtbot, lambda: page.card.binding.text() == "Runs on sae-one @ layer 1.")
    assert page.card.dial.track.maximum() == 175
    assert page.card.dial.value() == 0.5
    assert page.card.range.text() == "λ 0.25 to 1.75 is the document's range; 0 is off."
    page.card.switch_button.click()
    until(qtbot, lambda: page.card.switch_button.accessibleName() == "Deactivate Harbour")
    assert values(engine) == {1: 2.0, 2: -3.0}
    assert page.list.items()[0].marks == (("active", "good"),)
    page.card.dial.field.setFocus()
    page.card.dial.field.selectAll()
    qtbot.keyClicks(page.card.dial.field, "1.5")
    qtbot.keyClick(page.card.dial.field, Qt.Key.Key_Return)
    until(qtbot, lambda: values(engine) == {1: 6.0, 2: -9.0})
    qtbot.keyClick(page.card.dial.track, Qt.Key.Key_Home)
    until(qtbot, lambda: page.list.items()[0].marks == (("active, adds nothing", "warn"),))
    page.card.switch_button.click()
    until(qtbot, lambda: page.card.switch_button.accessibleName() == "Activate Harbour")
    assert engine.desk.live_plan.is_empty


def test_a_refusal_is_said_in_words(page: ClustersPage, qtbot: QtBot) -> None:
    imported(page, qtbot)
    page.card.switch_button.click()
    until(qtbot, lambda: "no SAE is attached" in page.notice.words())
    assert "Attach the SAE it was made with first." in page.notice.words()


def test_remarks_and_facts_are_shown(page: ClustersPage, engine: Engine, qtbot: QtBot) -> None:
    engine.saes.import_labels("sae-one", [FeatureLabel(2, "inland")])
    engine.attachments.attach("sae-one")
    imported(page, qtbot, cluster(members=[member(1, 150.0, label="ships"), member(2, 6.0, sign=-1)]))
    until(qtbot, lambda: page.card.remarks.words())
    assert page.card.remarks.words() == ("At intensity 1.75 these strengths are clamped to ±200: #1 (150).",)
    assert page.card.facts.text() == "token “quay” · 2 features · layer 1 · acme/tiny · budget B 18.5 by demo@1"
    assert page.card.members.texts() == ["#1  ships  +150", "#2  inland  −6"]
    # At λ 0.5: 75 times row 1 less 3 times row 2; the made SAE's rows have length 1 and are not at right angles.
    sae = engine.desk.attachment("sae-one").sae
    vector = 75.0 * sae.decoder_row(1) - 3.0 * sae.decoder_row(2)
    told = f"Length of what is added at λ 0.5: {float(vector.norm()):.3g} at layer 1"
    until(qtbot, lambda: page.card.push.text().startswith(told))
    assert page.card.narrative.text.text() == "Words of the sea."


def test_calibration_marks_the_dial(page: ClustersPage, qtbot: QtBot) -> None:
    imported(page, qtbot, cluster(calibration={"onset": 0.5, "sweet_spot": 1.0, "cliff": 1.5}))
    until(qtbot, lambda: page.card.dial.marks.marks)
    assert [(each.word, each.value) for each in page.card.dial.marks.marks] == [
        ("default", 0.5),
        ("onset", 0.5),
        ("sweet spot", 1.0),
        ("cliff", 1.5),
    ]


def test_it_is_exported_as_it_came(page: ClustersPage, qtbot: QtBot, tmp_path: Path) -> None:
    document = cluster(x_unknown={"kept": [1, None]})
    imported(page, qtbot, document)
    page.card.export_button.click()
    dialog = page.save_dialog
    assert dialog is not None and dialog.isVisible()
    target = tmp_path / "out.json"
    dialog.fileSelected.emit(str(target))
    dialog.close()
    until(qtbot, lambda: page.notice.words().startswith("Written to"))
    assert json.loads(target.read_text(encoding="utf-8")) == document


def test_deleting_can_be_taken_back(page: ClustersPage, engine: Engine, qtbot: QtBot) -> None:
    engine.attachments.attach("sae-one")
    key = imported(page, qtbot)
    engine.clusters.set_intensity(key, 1.25)
    engine.clusters.activate(key)
    until(qtbot, lambda: page.record is not None and page.record.is_active)
    page.card.delete_button.click()
    until(qtbot, lambda: page.notice.words() == "“Harbour” is deleted." and not page.views)
    assert engine.desk.live_plan.is_empty and page.stack.currentIndex() == 0
    button = next(each for each in page.notice.findChildren(type(page.import_button)) if each.text() == " Undo")
    button.click()
    until(qtbot, lambda: page.record is not None)
    assert page.record is not None
    assert (page.record.id, page.record.intensity, page.record.is_active) == (key, 1.25, False)


def test_what_the_api_does_appears_without_a_click(page: ClustersPage, engine: Engine, qtbot: QtBot) -> None:
    first = engine.clusters.import_document(raw(cluster())).results[0].profile_id
    assert first is not None
    until(qtbot, lambda: [item.title for item in page.list.items()] == ["Harbour"])
    engine.attachments.attach("sae-one")
    until(qtbot, lambda: page.card.binding.text() == "Runs on sae-one @ layer 1.")
    engine.clusters.activate(first)
    until(qtbot, lambda: page.list.items()[0].marks == (("active", "good"),))
    engine.clusters.set_active_intensity(1.0)
    until(qtbot, lambda: page.card.dial.value() == 1.0)
    engine.attachments.detach("sae-one")
    until(qtbot, lambda: page.list.items()[0].marks == (("unbound", "warn"),))
    engine.clusters.delete(first)
    until(qtbot, lambda: not page.list.items())


def test_search_and_keys_choose(page: ClustersPage, engine: Engine, qtbot: QtBot) -> None:
    for name in ("Harbour", "Kitchen", "Forest"):
        engine.clusters.import_document(raw(cluster(name)))
    until(qtbot, lambda: len(page.list.items()) == 3)
    page.list.search.setText("kit")
    until(qtbot, lambda: page.card.name.text() == "Kitchen")
    page.list.search.clear()
    page.list.select(next(key for key, each in page.views.items() if each.view.summary.record.name == "Forest"))
    qtbot.keyClick(page.list.list, Qt.Key.Key_Down)
    assert page.card.name.text() == "Harbour"


@pytest.mark.parametrize("size", [(1280, 800), (640, 440)])
def test_the_window_may_be_small(page: ClustersPage, qtbot: QtBot, size: tuple[int, int]) -> None:
    imported(page, qtbot)
    window = page.window()
    window.resize(*size)
    until(qtbot, lambda: window.size().toTuple() == size)


def test_it_leads_to_the_pages_that_use_it_once_it_can_steer(
    engine: Engine, make_stage: StageMaker, qtbot: QtBot
) -> None:
    stage = make_stage(engine)
    stage.window.show_page(CLUSTERS)
    page = stage.window.page(CLUSTERS)
    assert isinstance(page, ClustersPage)
    key = imported(page, qtbot)
    uses = page.card.uses
    assert uses.compare_button.isHidden() and uses.sweep_button.isHidden()
    engine.attachments.attach(*ONE)
    until(qtbot, lambda: not uses.sweep_button.isHidden())
    uses.sweep_button.click()
    assert stage.window.open_page == SWEEP
    sweep = stage.window.page(SWEEP)
    assert isinstance(sweep, SweepPage)
    until(qtbot, lambda: sweep.form.choice is not None and sweep.form.choice.id == key)
    stage.window.show_page(CLUSTERS)
    uses.compare_button.click()
    assert stage.window.open_page == CHAT and stage.window.chat.comparing
    until(qtbot, lambda: engine.desk.live_plan.sets != ())
    assert [dict(each.strengths) for each in engine.desk.live_plan.sets] == [{1: 2.0, 2: -3.0}]
    # A page that is not in front catches up when it is.
    assert page.record is not None and not page.record.is_active
    stage.window.show_page(CLUSTERS)
    until(qtbot, lambda: page.record is not None and page.record.is_active)


def test_the_one_that_steers_is_chosen_when_the_page_opens(
    engine: Engine, make_stage: StageMaker, qtbot: QtBot
) -> None:
    engine.attachments.attach(*ONE)
    engine.clusters.import_document(raw(cluster("Anchor")))
    second = engine.clusters.import_document(raw(cluster("Buoy"))).results[0].profile_id
    assert second is not None
    engine.clusters.activate(second)
    page = clusters_page(make_stage, engine, qtbot)
    assert page.record is not None and page.record.name == "Buoy"

"""Saved comparisons: from the chat into the list, opened again, exported, deleted and brought back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from engine.actions.experiments.export import as_json, as_markdown
from engine.actions.sweeping.export import as_csv
from engine.library.database import Library
from engine.library.records import ExperimentRecord
from tests.conftest import EngineMaker
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import chat_of, send, until
from tests.ui.stage import Stage
from ui.context.page_context import CHAT, FEATURES, RECORDS, SWEEP
from ui.context.record_keeping import new_record
from ui.kit.chat_state import ConversationMessage
from ui.look.features import CONTRAST, FeaturesPage
from ui.steer.sweep import SweepPage
from ui.talk.compare_message import CompareMessage
from ui.talk.records import DETAIL

SAE = "made-sae"


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker) -> Stage:
    return make_stage(make_engine(folder=None))


def kept(stage: Stage, title: str = "Sea", **fields: object) -> int:
    given: dict[str, object] = {
        "title": title,
        "model": "tiny-llama",
        "prompt": "Describe a place you like.",
        "plain": "A garden.",
        "steered": "A harbour.",
        "settings": {"temperature": 0.0, "max_tokens": 12, "seed": None, "noise_seed": 7, "system_prompt": "Be brief."},
        "steering": {
            "text": "circuit;id=c1",
            "changed": False,
            "items": [{"kind": "circuit", "id": "c1", "name": "Ships", "intensity": "0.5"}],
        },
        "evidence": {"rung": 1, "language": "suggested (attribution-supported)"},
        "versions": {"miLLM Desktop": "0.1.0"},
        "plain_details": {"completion_tokens": 3, "finish_reason": "stop"},
        "steered_details": {"completion_tokens": 3, "finish_reason": "length"},
        **fields,
    }
    return stage.engine.library.experiments.add(ExperimentRecord(**given)).id  # type: ignore[arg-type]


def test_a_comparison_is_saved_from_the_chat_and_opened(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    engine = make_engine()
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id=SAE)
    engine.attachments.attach(SAE)
    engine.hand_steering.set_values({3: 60.0}, sae_id=SAE, layer=1)
    stage = make_stage(engine)
    chat = chat_of(stage, qtbot, tokens=6)
    chat.set_comparing(True)
    send(chat, qtbot, "the sea")
    until(qtbot, lambda: not chat.busy)
    view = chat.messages.view(1)
    assert isinstance(view, CompareMessage)
    view.keep_button.click()
    until(qtbot, lambda: chat.composer.notice.words() == "Saved as a record: “the sea”")
    assert not view.keep_button.isEnabled()
    (summary,) = engine.library.experiments.list()
    record = engine.library.experiments.get(summary.id)
    assert record is not None
    answer = chat.session.messages[1]
    assert answer.plain is not None
    assert (record.prompt, record.plain, record.steered) == ("the sea", answer.plain.content, answer.content)
    assert record.settings["noise_seed"] == answer.details["noise_seed"]
    assert record.steering["items"][0]["strengths"] == {"3": 60.0}
    assert record.steered_details["headers"]["X-miLLM-Steering"] == record.steering["text"]
    assert record.evidence == {"rung": None, "language": ""}
    assert record.versions["miLLM Desktop"] == "0.1.0" and "torch" in record.versions
    stage.window.go(RECORDS, record=summary.id)
    page = stage.window.records
    until(qtbot, lambda: page.view.record == record)
    assert page.view.comparison.told.text() == "tiny-llama · steered by hand: 1 feature"


def test_records_are_listed_searched_deleted_and_brought_back(qtbot: QtBot, stage: Stage) -> None:
    kept(stage, "Sea")
    second = kept(stage, "Clinic", steered="A ward full of Ärzte.")
    stage.window.show_page(RECORDS)
    page = stage.window.records
    until(qtbot, lambda: page.titles() == ["Clinic", "Sea"] and page.view.record is not None)
    page.search.setText("ÄRZTE")
    until(qtbot, lambda: page.titles() == ["Clinic"])
    until(qtbot, lambda: page.view.record is not None and page.view.record.id == second)
    page.delete_button.click()
    until(qtbot, lambda: page.notice.words() == "Deleted “Clinic”.")
    until(qtbot, lambda: page.titles() == [] and page.empty.text() == "Nothing found.")
    page.undo()
    until(qtbot, lambda: page.titles() == ["Clinic"])
    page.search.clear()
    until(qtbot, lambda: page.titles() == ["Clinic", "Sea"])


def test_without_records_the_page_leads_to_the_chat(qtbot: QtBot, stage: Stage) -> None:
    stage.window.show_page(RECORDS)
    page = stage.window.records
    until(qtbot, lambda: page.chat_button.isVisible())
    assert not page.view.isVisible()
    page.chat_button.click()
    assert stage.window.open_page == CHAT and stage.window.chat.comparing


@pytest.mark.parametrize("kind", ["md", "json"])
def test_a_record_is_written_to_a_file(qtbot: QtBot, stage: Stage, tmp_path: Path, kind: str) -> None:
    kept(stage)
    stage.window.show_page(RECORDS)
    page = stage.window.records
    until(qtbot, lambda: page.view.record is not None)
    (page.markdown_button if kind == "md" else page.json_button).click()
    dialog = page.dialog
    assert dialog is not None and dialog.acceptMode() == QFileDialog.AcceptMode.AcceptSave
    target = tmp_path / f"out.{kind}"
    dialog.setDirectory(str(tmp_path))
    dialog.selectFile(str(target))
    dialog.accept()
    until(qtbot, lambda: str(target) in page.notice.words())
    text = target.read_text(encoding="utf-8")
    record = page.view.record
    assert record is not None
    if kind == "json":
        whole = json.loads(text)
        assert whole["kind"] == "millm.comparison"
        assert (whole["plain"], whole["steered"]) == ("A garden.", "A harbour.")
        assert whole["evidence"] == {"rung": 1, "language": "suggested (attribution-supported)"}
        assert text == as_json(record)
    else:
        assert text == as_markdown(record)
        assert "## Plain\n\n> A garden.\n\n*3 tokens, ended by: stop*" in text
        assert "| Evidence | suggested (attribution-supported) |" in text
        assert "| System prompt | Be brief. |" in text
        assert "steered by the circuit Ships at λ 0.5 (suggested (attribution-supported))" in text


def test_what_a_former_record_had_is_not_shown_with_this_one(qtbot: QtBot, stage: Stage) -> None:
    kept(stage, "Short", settings={}, evidence={}, versions={})
    kept(stage, "Long")
    stage.window.show_page(RECORDS)
    page = stage.window.records
    until(qtbot, lambda: page.view.record is not None and page.view.record.title == "Long")
    assert page.view.comparison.facts.values()["System prompt"] == "Be brief."
    page.list.setCurrentRow(1)
    until(qtbot, lambda: page.view.record is not None and page.view.record.title == "Short")
    facts = page.view.comparison.facts.values()
    assert facts["Model"] == "tiny-llama" and "System prompt" not in facts and "miLLM Desktop" not in facts


def test_a_sweep_is_kept_opened_and_exported(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    engine = make_engine()
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id=SAE)
    engine.attachments.attach(SAE)
    engine.hand_steering.set_values({3: 20.0})
    stage = make_stage(engine)
    stage.window.show_page(SWEEP)
    page = stage.window.page(SWEEP)
    assert isinstance(page, SweepPage)
    until(qtbot, lambda: page.form.ready and page.run_button.isEnabled())
    assert not page.keep_button.isEnabled()
    page.form.prompts.setPlainText("the sea\na garden")
    page.form.intensities.setText("1, 2")
    page.form.tokens.setValue(3)
    page.run_button.click()
    until(qtbot, lambda: page.outcome is not None)
    outcome = page.outcome
    assert outcome is not None
    page.keep_button.click()
    until(qtbot, lambda: page.notice.words().startswith("Saved as a record: “Sweep of"))
    assert not page.keep_button.isEnabled()
    (summary,) = engine.library.experiments.list()
    stage.window.go(RECORDS, record=summary.id)
    records = stage.window.records
    until(qtbot, lambda: records.view.record is not None)
    shown = records.view.sweep
    assert records.view.currentWidget() is shown
    assert shown.answers.results == list(outcome.cells)
    assert shown.answers.table.sweep.rowCount() == 3
    assert shown.told.text() == "tiny-llama · 6 of 6 answers"
    assert "Tokens per answer: 3" in shown.facts.toPlainText() and "torch" in shown.facts.toPlainText()
    assert records.list.item(0).data(DETAIL).endswith("sweep · tiny-llama")
    record = records.view.record
    assert record is not None
    assert records.csv_button.isVisible()
    records.write(record, "csv", str(tmp_path / "sweep.csv"))
    until(qtbot, lambda: "sweep.csv" in records.notice.words())
    assert (tmp_path / "sweep.csv").read_bytes().decode() == as_csv(outcome, record.versions)
    records.again_button.click()
    assert stage.window.open_page == SWEEP


def test_a_contrast_is_kept_and_leads_to_its_features(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    engine = make_engine()
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id=SAE)
    engine.attachments.attach(SAE)
    stage = make_stage(engine)
    stage.window.show_page(FEATURES)
    page = stage.window.page(FEATURES)
    assert isinstance(page, FeaturesPage)
    tab = page.contrast
    page.open_tab(CONTRAST)
    tab.first.setPlainText("the quick brown fox\nthe sea")
    tab.second.setPlainText("a lazy dog")
    tab.cap.setValue(100.0)
    tab.run_button.click()
    until(qtbot, lambda: tab.table.rows.rows and tab.keep_button.isEnabled())
    # The record is of what was read, whatever the fields say by now.
    tab.first.setPlainText("something else")
    tab.keep_button.click()
    until(qtbot, lambda: page.notice.words().startswith("Saved as a record: “Contrast"))
    (summary,) = engine.library.experiments.list("QUICK")
    stage.window.go(RECORDS, record=summary.id)
    records = stage.window.records
    until(qtbot, lambda: records.view.record is not None)
    shown = records.view.contrast
    assert records.view.currentWidget() is shown
    assert shown.texts[0].toPlainText() == "the quick brown fox\nthe sea"
    rows = shown.tables[0].rows.rows
    assert [row.index for row in rows] == [row.feature.index for row in tab.table.rows.rows]
    assert records.csv_button.isVisible() and not records.again_button.isVisible()
    shown.tables[0].chosen.emit(rows[0])
    assert stage.window.open_page == FEATURES
    engine.attachments.detach(SAE)
    stage.window.show_page(RECORDS)
    shown.tables[0].chosen.emit(rows[0])
    assert records.notice.words() == "Attach made-sae at layer 1 first; then its features can be looked at."


def test_a_record_that_cannot_be_written_says_so(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    kept(stage)
    stage.window.show_page(RECORDS)
    page = stage.window.records
    until(qtbot, lambda: page.view.record is not None)
    assert page.view.record is not None
    page.write(page.view.record, "md", str(tmp_path / "no" / "such" / "folder.md"))
    until(qtbot, lambda: "No such file" in page.notice.words())


def test_a_record_holds_the_messages_before_and_no_claim_beyond_the_report() -> None:
    plain = ConversationMessage("assistant", "p", {"finish_reason": "stop"})
    steering = {"text": "circuit;id=c", "changed": True, "items": [{"kind": "circuit", "id": "c", "intensity": "1.0"}]}
    steered = ConversationMessage("assistant", "s", {"model": "m", "steering": steering, "rung": None}, plain)
    first = ConversationMessage("assistant", "s0", {}, ConversationMessage("assistant", "p0"))
    messages = [ConversationMessage("user", "one"), first, ConversationMessage("user", "two"), steered]
    record = new_record(messages, 3, {})
    assert record.prompt == "two"
    assert record.settings["earlier_turns"] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "s0", "plain": "p0"},
    ]
    assert record.evidence == {"rung": None, "language": "no evidence can be claimed"}
    with pytest.raises(ValueError, match="no comparison"):
        new_record(messages, 2, {})


def test_a_record_and_its_exports_tell_the_path_of_an_answer_that_was_turned(library: Library) -> None:
    def circuit(intensity: str) -> dict[str, object]:
        return {"kind": "circuit", "id": "c", "name": "Two", "intensity": intensity}

    none = {"kind": "none"}
    path = [
        {"token": 0, "text": "circuit;id=c;intensity=1", "items": [circuit("1.0")]},
        {"token": 12, "text": "circuit;id=c;intensity=2", "items": [circuit("2.0")]},
        {"token": 40, "text": "none", "items": [none]},
    ]
    plain = ConversationMessage("assistant", "p", {"finish_reason": "stop"})
    steering = {"text": "none;changed", "changed": True, "items": [none], "path": path}
    steered = ConversationMessage("assistant", "s", {"model": "m", "steering": steering, "rung": None}, plain)
    new = new_record([ConversationMessage("user", "one"), steered], 1, {})
    # It ended unsteered, and yet a circuit steered some of it: nothing is claimed, and that is said.
    assert new.evidence == {"rung": None, "language": "no evidence can be claimed"}
    record = library.experiments.add(new)
    markdown = as_markdown(record)
    turns = "λ 2 from token 12, λ 0 from token 40; no evidence can be claimed"
    assert f"| Steered side | steered by the circuit Two at λ 1 → 2 → 0 ({turns}) |" in markdown
    assert "| Steering report, at its end | none;changed |" in markdown
    assert markdown.endswith(
        "## Steering path\n\n"
        "- from the start: steered by the circuit Two at λ 1\n"
        "- from token 12: steered by the circuit Two at λ 2\n"
        "- from token 40: not steered\n"
    )
    assert json.loads(as_json(record))["steering"]["path"] == path

"""The Sweep page on a real engine: the table fills, the means are drawn, files hold everything, and it can be ended."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from engine.actions.sweeping.runs import SweepState
from engine.actions.sweeping.settings import BaseKind, SweepSettings
from engine.library.records import FeatureLabel
from tests.conftest import EngineMaker
from tests.made_saes import make_mirror_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.stage import Stage
from ui.context.page_context import STEERING, SWEEP
from ui.steer.sweep import SweepPage

PLACE = ("mirror", 1)


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path) -> Stage:
    """The Sweep page in front; a profile of one labelled feature is there."""
    engine = make_engine()
    engine.saes.import_local(make_mirror_sae(tmp_path / "mirror", layer=1), sae_id="mirror")
    engine.saes.import_labels("mirror", [FeatureLabel(3, "ships and the sea", top_tokens=(" harbour", "ing"))])
    engine.attachments.attach("mirror")
    engine.profiles.create("Ships", steering={3: 30.0}, sae_id="mirror", layer=1)
    made = make_stage(engine)
    made.window.show_page(SWEEP)
    return made


@pytest.fixture
def page(stage: Stage, qtbot: QtBot) -> SweepPage:
    found = stage.window.page(SWEEP)
    assert isinstance(found, SweepPage)
    until(qtbot, lambda: found.form.ready and found.run_button.isEnabled() and found.plot._plot is not None)
    found.form.prompts.setPlainText("the sea\n\na smile\n")
    found.form.intensities.setText("0.5..1.5 by 0.5")
    found.form.tokens.setValue(4)
    return found


def ended(page: SweepPage, qtbot: QtBot) -> None:
    until(qtbot, lambda: page.outcome is not None and not page.running)


def shown(page: SweepPage) -> list[list[str]]:
    model = page.table.sweep
    return [[str(model.data(model.index(r, c))) for c in range(model.columnCount())] for r in range(model.rowCount())]


def test_without_an_sae_the_page_shows_the_way(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    stage = make_stage(make_engine(None))
    stage.window.show_page(SWEEP)
    page = stage.window.page(SWEEP)
    assert isinstance(page, SweepPage)
    assert page.gate.isVisible() and not page.table.isVisible()
    page.gate_button.click()
    assert stage.window.open_page == STEERING


def test_the_table_fills_and_the_means_are_drawn(qtbot: QtBot, stage: Stage, page: SweepPage) -> None:
    assert page.form.base.currentText() == "Ships · profile"
    first, length = page.form.base_words.text().split("\n")
    assert first == "1 feature at layer 1: #3 30"
    # One feature whose row has length 1.
    assert length.startswith("Length of what is added at λ 1: 30 at layer 1")
    assert page.form.topic.toPlainText() == "ships sea harbour"
    page.run_button.click()
    assert page.running and not page.run_button.isEnabled() and page.cancel_button.isVisible()
    ended(page, qtbot)
    outcome = page.outcome
    assert outcome is not None and outcome.complete
    assert outcome.settings.prompts == ("the sea", "a smile")
    assert outcome.settings.intensities == (0.0, 0.5, 1.0, 1.5)
    heads = [page.table.sweep.headerData(c, Qt.Orientation.Horizontal) for c in range(4)]
    assert heads == ["plain", "λ 0.5", "λ 1", "λ 1.5"]
    table = shown(page)
    for cell in outcome.cells:
        column = outcome.settings.intensities.index(cell.intensity)
        assert table[cell.prompt][column] == (" ".join(cell.text.split()) or "(nothing)")
    assert "perplexity" in table[2][0] and "topic" in table[2][0]
    assert page.status.text() == "8 of 8 answers"
    assert [where for where, _ in page.plot.curves["perplexity"]] == [0.0, 0.5, 1.0, 1.5]
    assert max(value for _, value in page.plot.curves["perplexity"]) == 1.0
    page.table.setCurrentIndex(page.table.sweep.index(1, 2))
    cell = next(each for each in outcome.cells if (each.prompt, each.intensity) == (1, 1.0))
    assert page.answers.cell_text.toPlainText() == cell.text and page.answers.cell_head.text().startswith(
        "λ 1 · 4 tokens"
    )
    qtbot.keyClick(page.table, Qt.Key.Key_Left)
    assert page.answers.cell_head.text().startswith("λ 0.5 · 4 tokens")
    assert dict(stage.engine.desk.state.entry(PLACE).values) == {}


def test_files_hold_the_answers_and_what_they_ran_on(qtbot: QtBot, page: SweepPage, tmp_path: Path) -> None:
    assert not page.csv_button.isEnabled()
    page.run_button.click()
    ended(page, qtbot)
    page.csv_button.click()
    assert isinstance(page.file_dialog, QFileDialog)
    target = tmp_path / "sweep.csv"
    page.file_dialog.fileSelected.emit(str(target))
    page.file_dialog.close()
    until(qtbot, lambda: f"Saved as {target}." in page.notice.words())
    with target.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 and {row["side"] for row in rows} == {"plain", "steered"}
    assert all((row["intensity"] == "") is (row["side"] == "plain") for row in rows)
    assert "What it ran on is in the Markdown." in page.notice.words()
    page.markdown_button.click()
    assert page.file_dialog is not None
    target = tmp_path / "sweep.md"
    page.file_dialog.fileSelected.emit(str(target))
    page.file_dialog.close()
    until(qtbot, lambda: f"Saved as {target}." in page.notice.words())
    text = target.read_text(encoding="utf-8")
    assert text.startswith("# Sweep of Ships\n") and "## the sea" in text
    for note in (
        "Dial: Ships (profile)",
        "Model: tiny-llama",
        "Versions: miLLM Desktop 0.1.0",
        "SAEs: mirror @ layer 1",
    ):
        assert f"- {note}\n" in text
    page.markdown_button.click()
    page.file_dialog.fileSelected.emit(str(tmp_path / "nowhere" / "sweep.md"))
    page.file_dialog.close()
    until(qtbot, lambda: "could not be written: No such file or directory" in page.notice.words())


def test_it_can_be_ended_and_begun_anew(qtbot: QtBot, stage: Stage, page: SweepPage) -> None:
    page.form.prompts.setPlainText("\n".join(f"the sea {number}" for number in range(50)))
    page.form.tokens.setValue(40)
    page.run_button.click()
    until(qtbot, lambda: page.progress.value() > 0)
    page.cancel_button.click()
    ended(page, qtbot)
    assert page.outcome is not None and not page.outcome.complete and "ended early" in page.status.text()
    assert page.csv_button.isEnabled()
    until(qtbot, lambda: stage.engine.generation.stats().queue_pending == 0)
    page.form.prompts.setPlainText("the sea")
    page.run_button.click()
    ended(page, qtbot)
    assert page.outcome.complete and page.table.sweep.rowCount() == 2


def test_what_cannot_run_is_said(qtbot: QtBot, stage: Stage, page: SweepPage) -> None:
    page.form.intensities.setText("lots")
    page.run_button.click()
    assert "'lots' is no value of λ" in page.notice.words() and not page.running
    page.form.intensities.setText("3")
    page.run_button.click()
    assert "expected 0 to 2" in page.notice.words()
    page.form.intensities.setText("1")
    page.form.prompts.setPlainText(" ")
    page.run_button.click()
    assert "1 to 100" in page.notice.words()
    page.arrive(kind="live")
    until(qtbot, lambda: "What steers now steers nothing" in page.form.base_words.text())
    assert not page.run_button.isEnabled()


def test_the_page_follows_the_library_and_keeps_own_topic_words(qtbot: QtBot, stage: Stage, page: SweepPage) -> None:
    page.form.topic.setPlainText("my own words")
    made = stage.engine.profiles.create("Another", steering={5: -4.0}, sae_id="mirror", layer=1)
    until(qtbot, lambda: page.form.base.count() == 3)
    assert page.form.base.currentText() == "Ships · profile"
    page.arrive(kind="profile", id=made.record.id)
    until(qtbot, lambda: "#5 −4" in page.form.base_words.text())
    assert page.form.base.currentText() == "Another · profile"
    assert page.form.topic.toPlainText() == "my own words"
    assert page.form.choice is not None and page.form.choice.kind is BaseKind.PROFILE


def test_a_sweep_begun_elsewhere_is_shown_and_can_be_ended_here(qtbot: QtBot, stage: Stage, page: SweepPage) -> None:
    sweeps = stage.engine.sweeps
    stage.engine.profiles.create("Inland", steering={5: -4.0}, sae_id="mirror", layer=1)
    base = sweeps.resolve(BaseKind.PROFILE, stage.engine.profiles.list().profiles[0].record.id)
    page.run_button.click()
    ended(page, qtbot)
    mine = page.outcome
    assert not page.kept.isVisible()
    prompts = tuple(f"the ship {number}" for number in range(80))
    begun = sweeps.start(SweepSettings(prompts, (0.0, 2.0), max_tokens=60), base)
    until(qtbot, lambda: page.running and page.progress.value() > 0)
    assert page.table.sweep.prompts == prompts and not page.run_button.isEnabled()
    assert page.status.text().startswith("Inland: ") and page.status.text().endswith("of 160 answers")
    page.cancel_button.click()
    until(qtbot, lambda: not page.running and page.outcome is not None)
    assert sweeps.runs.get(begun.id).state is SweepState.CANCELLED
    assert "ended early" in page.status.text()
    # What was there before is not lost.
    until(qtbot, lambda: page.kept.isVisible() and page.kept.isEnabled() and page.kept.count() == 2)
    assert page.kept.currentText().startswith("Inland · ") and page.kept.currentText().endswith(" · cancelled")
    page.kept.setCurrentIndex(1)
    page.kept.activated.emit(1)
    assert page.outcome == mine and page.status.text() == "8 of 8 answers" and page.csv_button.isEnabled()


def test_a_second_one_is_refused_and_the_first_is_shown(qtbot: QtBot, stage: Stage, page: SweepPage) -> None:
    sweeps = stage.engine.sweeps
    base = sweeps.resolve(BaseKind.PROFILE, stage.engine.profiles.list().profiles[0].record.id)
    settings = SweepSettings(tuple(f"the ship {number}" for number in range(80)), (0.0, 2.0), max_tokens=60)
    # Somebody else is quicker by a moment: the page has not heard of it when its button is pressed.
    begun = sweeps.start(settings, base)
    page.run_button.click()
    until(qtbot, lambda: "One runs at a time." in page.notice.words())
    assert page.running and page.table.sweep.prompts == settings.prompts
    sweeps.runs.remove(begun.id)
    until(qtbot, lambda: not page.running)
    assert page.outcome is not None and not page.outcome.complete
    page.run_button.click()
    ended(page, qtbot)
    assert page.outcome is not None and page.outcome.complete


def test_the_page_opens_with_what_is_there(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    engine = make_engine()
    engine.saes.import_local(make_mirror_sae(tmp_path / "mirror", layer=1), sae_id="mirror")
    engine.attachments.attach("mirror")
    engine.profiles.create("Ships", steering={3: 30.0}, sae_id="mirror", layer=1)
    base = engine.sweeps.resolve(BaseKind.PROFILE, engine.profiles.list().profiles[0].record.id)
    engine.sweeps.start(SweepSettings(("the sea",), (0.0, 1.0), max_tokens=2), base)
    stage = make_stage(engine)
    stage.window.show_page(SWEEP)
    page = stage.window.page(SWEEP)
    assert isinstance(page, SweepPage)
    until(qtbot, lambda: page.outcome is not None and page.plot._plot is not None)
    assert page.outcome is not None and page.outcome.complete
    assert page.status.text() == "Ships: 2 of 2 answers" and page.table.sweep.rowCount() == 2
    assert page.plot.curves["perplexity"]

"""The Models page on a real engine: shelf, memory, disk, imports, drops, and downloads from a stand-in hub."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QLabel
from pytestqt.qtbot import QtBot

from engine.actions.downloading.transfer import CANCELLED
from engine.library.records import EngineKind, ModelRecord, ModelSource, ModelStatus
from engine.models.backends.engines import gguf_engine
from engine.models.capabilities import ModelCapabilities
from engine.models.hardware.unused_gpus import SeenGpus, judge
from tests.conftest import CheckpointMaker, EngineMaker
from tests.gguf_files import build_gguf, quantise
from tests.hub import StandInHub
from tests.tiny import THINKING_TEMPLATE
from tests.ui.conftest import StageMaker
from tests.ui.drops import drop
from tests.ui.look import plain, told_in, until
from tests.ui.stage import Stage
from tests.ui.test_home import held_load
from ui.context.page_context import CHAT, MODELS
from ui.kit import shelf_text as words
from ui.kit.basics import Button
from ui.shelf import models as models_page
from ui.shelf.add_models import FOUND
from ui.shelf.model_row import ModelShelfRow
from ui.shelf.models import ModelsPage
from ui.window import main_window

REPO = "acme/tiny-llama"


def open_page(stage: Stage, qtbot: QtBot) -> ModelsPage:
    stage.window.show_page(MODELS)
    page = stage.window.page(MODELS)
    assert isinstance(page, ModelsPage)
    until(qtbot, lambda: not page._reading)
    return page


def row(page: ModelsPage, name: str) -> ModelShelfRow:
    return next(each for each in page.rows.values() if each.view.name == name)


def badges(page: ModelsPage, name: str) -> list[str]:
    return [text for text, _tone in row(page, name).badges]


def press(page: ModelsPage, words_on_it: str) -> None:
    """Press a button of the page's notice."""
    next(each for each in page.notice.findChildren(Button) if each.text() == words_on_it).click()


# --- memory -----------------------------------------------------------------------------------------------------------


def test_a_model_is_loaded_locked_unlocked_and_unloaded(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine(load=False))
    page = open_page(stage, qtbot)
    assert badges(page, "tiny-llama") == ["transformers", "on the disk"]
    one = row(page, "tiny-llama")
    one.load_button.setFocus()
    qtbot.keyClick(one.load_button, Qt.Key.Key_Space)
    until(qtbot, lambda: badges(page, "tiny-llama") == ["transformers", "loaded"])
    assert one.unload_button.isVisible() and not one.delete_button.isEnabled()
    assert page.memory.now.rows()["Model"] == words.size(stage.engine.shelf.resident.info.memory_bytes)  # type: ignore[union-attr]
    one.lock_button.click()
    until(qtbot, lambda: badges(page, "tiny-llama") == ["transformers", "loaded", "locked"])
    assert one.lock_button.toolTip() == "Let requests load other models again"
    one.lock_button.click()
    until(qtbot, lambda: badges(page, "tiny-llama") == ["transformers", "loaded"])
    one.unload_button.click()
    until(qtbot, lambda: stage.engine.shelf.resident is None and one.load_button.isVisible())
    until(qtbot, lambda: page.memory.now.rows()["Model"] == "none")


def test_what_a_model_can_do_stands_in_its_row(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, checkpoint: CheckpointMaker
) -> None:
    marks = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
    folder = checkpoint("llama", marks=marks, chat_template=THINKING_TEMPLATE)
    page = open_page(make_stage(make_engine(folder, load=False)), qtbot)
    shown = row(page, folder.name).abilities
    assert not shown.isHidden()
    assert plain(shown.text()) == "Thinking · Fill in the middle · Embeddings"


@pytest.mark.parametrize(
    ("can", "line"),
    [
        (ModelCapabilities(embeddings=None), ""),
        (ModelCapabilities(thinking=False, fim=False), "Embeddings"),
        (ModelCapabilities(tools="hermes", thinking=True), "Tools (own format) · Thinking · Embeddings"),
        (ModelCapabilities(tools="generic", vision=True), "Tools (described in the prompt) · Images · Embeddings"),
    ],
)
def test_abilities_in_words(can: ModelCapabilities, line: str) -> None:
    assert plain(words.abilities(can)) == line


def test_a_load_shows_progress_and_is_cancelled(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    stage = make_stage(make_engine(load=False))
    page = open_page(stage, qtbot)
    one = row(page, "tiny-llama")
    with held_load(stage.engine) as held:
        one.load_button.click()
        until(qtbot, held.is_set)
        until(qtbot, lambda: one.progress.isVisible() and one.cancel_button.isVisible())
        assert one.stage.full_text()
        one.cancel_button.click()
        until(qtbot, lambda: not stage.bridge._busy)
    until(qtbot, lambda: one.load_button.isVisible() and not one.progress.isVisible())
    assert page.notice.words() == "" and stage.engine.shelf.resident is None


def test_what_a_load_would_take_is_said_term_by_term(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    page = open_page(make_stage(make_engine(load=False)), qtbot)
    assert page.memory.hint.isVisible()
    row(page, "tiny-llama").info_button.click()
    until(qtbot, lambda: "In all" in page.memory.estimate.rows())
    shown = page.memory.estimate.rows()
    assert list(shown)[:3] == ["Weights as 32-bit float", "Context of 2,048 tokens", "Working memory"]
    assert page.memory.verdict.text() == "fits" and "Free on CPU" in shown


def test_files_that_went_away_are_said_instead_of_an_estimate(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    engine = make_engine(folder=None)
    engine.library.models.add(
        ModelRecord("gone", ModelSource.LOCAL, EngineKind.TRANSFORMERS, local_path=str(tmp_path / "gone"))
    )
    page = open_page(make_stage(engine), qtbot)
    row(page, "gone").info_button.click()
    until(qtbot, lambda: "gone" in page.memory.notice.words())
    assert badges(page, "gone") == ["transformers", "files gone"]


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_files_that_were_moved_are_told_once_and_chosen_again(
    qtbot: QtBot,
    make_engine: EngineMaker,
    make_stage: StageMaker,
    tiny_checkpoint: Path,
    tmp_path: Path,
    kind: str,
) -> None:
    engine = make_engine(folder=None)
    here, there, other = tmp_path / "here" / "mine", tmp_path / "there" / "mine", tmp_path / "other"
    if kind == "gguf":
        here, there = here.with_suffix(".gguf"), there.with_suffix(".gguf")
    for place in (here, there):
        place.parent.mkdir()
    if kind == "folder":
        shutil.copytree(tiny_checkpoint, here)
    else:
        build_gguf(tiny_checkpoint, here)
    kept = engine.models.import_local(here)
    stage = make_stage(engine)
    page = open_page(stage, qtbot)
    here.rename(there)
    # As it was listed a moment ago, it can still be asked for.
    page.load(kept.id)
    one = row(page, kept.name)
    until(qtbot, one.locate_button.isVisible)
    settled = plain(one.error.text())
    assert settled == f"Its files are not at {here} any more. Put them back, or choose them again where they are now."
    told = [each for each in stage.window.findChildren(QLabel) if each.isVisible() and "any more" in each.text()]
    assert told == [one.error]
    assert not one.load_button.isVisible() and not stage.window.bar.toast.isVisible()
    # Another page says it in the bar, with the way to the row.
    stage.window.show_page(CHAT)
    engine.loader.load(kept.id)
    until(qtbot, stage.window.bar.action.isVisible)
    assert str(here) in stage.window.bar.message.full_text()
    qtbot.mouseClick(stage.window.bar.action, Qt.MouseButton.LeftButton)
    assert stage.window.open_page == MODELS
    # What is not the model is refused as an import would be, and changes nothing.
    other.mkdir()
    page.locate(kept.id, str(other))
    until(qtbot, lambda: "Looking" not in page.notice.words() and str(other) in page.notice.words())
    assert engine.shelf.get(kept.id).local_path == str(here)
    qtbot.mouseClick(one.locate_button, Qt.MouseButton.LeftButton)
    assert page.dialog is not None
    wanted = QFileDialog.FileMode.ExistingFile if kind == "gguf" else QFileDialog.FileMode.Directory
    assert page.dialog.fileMode() == wanted
    page.dialog.fileSelected.emit(str(there))
    page.dialog.reject()
    until(qtbot, lambda: page.notice.words() == f"{kept.name} is found again.")
    until(qtbot, one.load_button.isVisible)
    record = engine.shelf.get(kept.id)
    assert (record.id, record.name, record.local_path, record.error_message) == (kept.id, kept.name, str(there), None)
    assert not one.error.isVisible()


def test_a_gguf_without_its_engine_says_what_is_missing(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, monkeypatch: pytest.MonkeyPatch, gguf_file: Path
) -> None:
    monkeypatch.setattr("engine.models.backends.llamacpp.availability.is_installed", lambda: False)
    engine = make_engine(folder=None)
    engine.library.models.add(
        ModelRecord("small:Q4_1", ModelSource.LOCAL, EngineKind.LLAMACPP, local_path=str(gguf_file))
    )
    page = open_page(make_stage(engine), qtbot)
    until(qtbot, lambda: page.rows)
    assert badges(page, "small:Q4_1") == ["llama.cpp", "on the disk", "cannot run here"]
    assert not row(page, "small:Q4_1").load_button.isEnabled()
    assert row(page, "small:Q4_1").load_button.toolTip().startswith("GGUF files cannot be run yet")
    # The words of the command ``doctor``.
    assert page.missing.words() == gguf_engine().in_words() and "make gguf" in page.missing.words()


def test_a_gguf_says_what_its_header_holds_before_and_after_it_is_added(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    whole = build_gguf(tiny_checkpoint, tmp_path / "tiny-F32.gguf")
    bare = build_gguf(tiny_checkpoint, tmp_path / "plain" / "plain.gguf", chat_template=None)
    small = quantise(bare, tmp_path / "plain-Q4_1.gguf", "Q4_1")
    split = build_gguf(tiny_checkpoint, tmp_path / "parts" / "parts-F32.gguf", max_tensors=15)
    page = open_page(make_stage(make_engine(folder=None)), qtbot)
    for file, name, about in (
        (whole, "tiny:F32", "llama.cpp · F32 · llama · 63 K parameters · window 2,048 · chat template · 0.3 MB"),
        (small, "plain:Q4_1", "llama.cpp · Q4_1 · llama · 63 K parameters · window 2,048 · no chat template · 0.1 MB"),
        (
            split,
            "parts:F32",
            "llama.cpp · F32 · llama · 63 K parameters · window 2,048 · chat template · 0.3 MB · 3 files",
        ),
    ):
        page.look_at(str(file))
        until(qtbot, lambda name=name: [offer.name for offer in page.add.local] == [name])
        assert plain(page.add.local[0].about) == about
        page.add.local[0].buttons[0].click()
        until(qtbot, lambda name=name: any(each.view.name == name for each in page.rows.values()))
        until(qtbot, lambda: page.add.local == [])
    assert plain(row(page, "tiny:F32").facts.text()) == (
        "llama · 63 K parameters · window 2,048 · chat template · 0.3 MB on disk · from this computer"
    )
    assert "window 2,048 · no chat template · 0.1 MB on disk" in plain(row(page, "plain:Q4_1").facts.text())
    assert badges(page, "plain:Q4_1") == ["llama.cpp", "on the disk"]  # its name says the quantisation
    # No weight was read for any of it.
    assert page._engine.shelf.resident is None
    page.look_at(str(whole))
    until(qtbot, lambda: page.add.local)
    assert page.add.local[0].note == "on the shelf as tiny:F32" and page.add.local[0].buttons == ()


def test_a_broken_file_is_refused_in_words(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    whole = build_gguf(tiny_checkpoint, tmp_path / "tiny-F32.gguf")
    cut = tmp_path / "cut-F32.gguf"
    cut.write_bytes(whole.read_bytes()[:-1])
    page = open_page(make_stage(make_engine(folder=None)), qtbot)
    page.look_at(str(cut))
    until(qtbot, lambda: "cut short" in page.notice.words())
    assert "Download the missing or damaged files again." in page.notice.words() and page.add.local == []


def test_a_split_set_is_copied_and_the_copy_can_be_cancelled(
    qtbot: QtBot,
    make_engine: EngineMaker,
    make_stage: StageMaker,
    tiny_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    split = build_gguf(tiny_checkpoint, tmp_path / "parts-F32.gguf", max_tensors=15)
    engine = make_engine(folder=None)
    page = open_page(make_stage(engine), qtbot)
    begun, go_on = threading.Event(), threading.Event()
    count_block = models_page.Copying.check

    def held(copying: models_page.Copying) -> None:
        begun.set()
        go_on.wait(60)
        count_block(copying)

    with monkeypatch.context() as patch:
        patch.setattr(models_page.Copying, "check", held)
        page.look_at(str(split))
        until(qtbot, lambda: page.add.local)
        page.add.local[0].buttons[1].click()
        until(qtbot, begun.is_set)
        assert page.add.copy_stage.full_text() == "Copying parts-F32-00001-of-00003.gguf: 0.0 MB are here"
        assert not page.add.local[0].buttons[1].isEnabled()
        page.add.copy_cancel.click()
        go_on.set()
        until(qtbot, lambda: "was cancelled" in page.notice.words())
    assert page.rows == {} and not page.add.copy_stage.isVisible()
    page.add.local[0].buttons[1].click()
    until(qtbot, lambda: page.rows)
    kept = Path(row(page, "parts:F32").view.local_path or "")
    assert kept.is_relative_to(engine.library.path.parent / "models") and len(list(kept.parent.glob("*.gguf"))) == 3
    assert "on disk" in plain(row(page, "parts:F32").facts.text())


# --- away -------------------------------------------------------------------------------------------------------------


def test_removing_says_what_stays_and_asks_first(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tiny_checkpoint: Path
) -> None:
    stage = make_stage(make_engine(load=False))
    page = open_page(stage, qtbot)
    row(page, "tiny-llama").delete_button.click()
    assert str(tiny_checkpoint) in page.notice.words() and "stay where they are" in page.notice.words()
    press(page, "Keep it")
    assert page.notice.words() == "" and len(stage.engine.shelf.list()) == 1
    row(page, "tiny-llama").delete_button.click()
    press(page, "Remove it")
    until(qtbot, lambda: not page.rows)
    assert page.empty.isVisible() and tiny_checkpoint.is_dir()
    until(qtbot, lambda: page.notice.words() == "tiny-llama is gone from the shelf.")


def test_removing_a_copy_says_how_much_becomes_free(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tiny_checkpoint: Path
) -> None:
    engine = make_engine(folder=None)
    engine.models.import_local(tiny_checkpoint, name="copied", copy=True)
    page = open_page(make_stage(engine), qtbot)
    until(qtbot, lambda: page.memory.disk.rows().get("Models kept here", "0.0 MB") != "0.0 MB")
    row(page, "copied").delete_button.click()
    assert "are deleted from the disk" in page.notice.words()
    press(page, "Delete it")
    until(qtbot, lambda: "are free again" in page.notice.words())


# --- coming in --------------------------------------------------------------------------------------------------------


def test_folders_and_files_are_chosen_in_dialogs(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tiny_checkpoint: Path
) -> None:
    page = open_page(make_stage(make_engine(folder=None)), qtbot)
    page.add.pick_folder.emit()
    dialog = page.dialog
    assert dialog is not None and dialog.fileMode() == QFileDialog.FileMode.Directory
    dialog.setDirectory(str(tiny_checkpoint.parent))
    dialog.selectFile(str(tiny_checkpoint))
    dialog.accept()
    until(qtbot, lambda: page.add.local)
    (offer,) = page.add.local
    assert offer.name == "tiny-llama" and offer.isVisible() and page.rows == {}
    assert plain(offer.about) == (
        "transformers · LlamaForCausalLM · 63 K parameters · window 2,048 · chat template · 0.3 MB"
    )
    assert [each.text() for each in offer.buttons] == ["Add", "Add a copy"]
    offer.buttons[0].click()
    until(qtbot, lambda: page.notice.words() == "tiny-llama is on the shelf.")
    until(qtbot, lambda: [each.view.name for each in page.rows.values()] == ["tiny-llama"])
    assert page.add.local == []
    press(page, "Load it")
    until(qtbot, lambda: badges(page, "tiny-llama")[-1] == "loaded")
    page.add.pick_file.emit()
    assert page.dialog is not None and page.dialog.fileMode() == QFileDialog.FileMode.ExistingFile
    page.dialog.reject()


def test_what_is_dropped_is_put_on_the_shelf(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    stage = make_stage(make_engine(folder=None))
    page = open_page(stage, qtbot)
    text = tmp_path / "notes.txt"
    text.write_text("x")
    assert drop(page, [text])
    until(qtbot, lambda: "notes.txt is nothing that is taken here" in stage.window.bar.message.full_text())
    gguf = build_gguf(tiny_checkpoint, tmp_path / "tiny-F32.gguf")
    assert drop(page, [tiny_checkpoint, gguf])
    until(qtbot, lambda: len(page.rows) == 2)
    assert {each.view.engine for each in page.rows.values()} == {"transformers", "llamacpp"}
    assert drop(page, [tiny_checkpoint])
    until(qtbot, lambda: "in the library already" in page.notice.words())
    empty = tmp_path / "empty"
    empty.mkdir()
    drop(page, [empty])
    until(qtbot, lambda: "config.json" in page.notice.words())


def test_what_comes_of_a_drop_is_told_in_sight(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tiny_checkpoint: Path
) -> None:
    stage = make_stage(make_engine(folder=None))
    page = open_page(stage, qtbot)
    stage.window.resize(900, 420)
    bar = page.verticalScrollBar()
    until(qtbot, lambda: bar.maximum() > 0)
    bar.setValue(bar.maximum())
    stage.window.go(MODELS, files=[tiny_checkpoint])
    until(qtbot, lambda: "is on the shelf" in page.notice.words())
    until(qtbot, lambda: not page.notice.visibleRegion().isEmpty())


def test_models_of_other_programs_are_found_and_added(
    qtbot: QtBot,
    make_engine: EngineMaker,
    make_stage: StageMaker,
    tiny_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "studio" / "acme" / "tiny"
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    place = tmp_path / ".lmstudio" / "models" / "acme" / "tiny"
    place.mkdir(parents=True)
    build_gguf(tiny_checkpoint, place / "tiny-F32.gguf")
    page = open_page(make_stage(make_engine(folder=None)), qtbot)
    page.add.tabs.button(FOUND).click()
    until(qtbot, lambda: page.add.found)
    (offer,) = page.add.found
    assert offer.name == "acme/tiny:F32" and offer.about.startswith("LM Studio · GGUF · ")
    assert offer.button is not None
    offer.button.click()
    until(qtbot, lambda: page.rows)
    until(qtbot, lambda: page.add.found and page.add.found[0].button is None)


# --- the hub ----------------------------------------------------------------------------------------------------------


def look_at(page: ModelsPage, qtbot: QtBot, repo: str) -> None:
    page.add.repo.setText(repo)
    page.add.repo.setFocus()
    qtbot.keyClick(page.add.repo, Qt.Key.Key_Return)
    until(qtbot, page.add.preview_button.isEnabled)


def test_a_repository_is_looked_at_downloaded_and_loaded(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, hub: StandInHub, tiny_checkpoint: Path
) -> None:
    hub.add_folder(REPO, tiny_checkpoint)
    stage = make_stage(make_engine(folder=None))
    page = open_page(stage, qtbot)
    look_at(page, qtbot, f"https://huggingface.co/{REPO}")
    assert plain(page.add.hub_about.text()).startswith(f"{REPO} · LlamaForCausalLM")
    offer = page.add.offers[0]
    assert offer.name == "Checkpoint, as stored"
    assert "to download" in offer.about and "in memory:" in offer.about and "weights" in offer.about
    assert offer.button is not None
    offer.button.click()
    until(qtbot, lambda: page.rows and badges(page, "tiny-llama") == ["transformers", "on the disk"])
    until(qtbot, lambda: page.notice.words() == "tiny-llama is here.")
    press(page, "Load it")
    until(qtbot, lambda: badges(page, "tiny-llama")[-1] == "loaded")


def test_the_ggufs_of_a_repository_are_offered_with_what_the_hub_read_in_them(
    qtbot: QtBot,
    make_engine: EngineMaker,
    make_stage: StageMaker,
    hub: StandInHub,
    tiny_checkpoint: Path,
    tmp_path: Path,
) -> None:
    whole = build_gguf(tiny_checkpoint, tmp_path / "tiny-F32.gguf")
    small = quantise(whole, tmp_path / "tiny-Q8_0.gguf", "Q8_0")
    hub.add("acme/tiny-GGUF", {file.name: file.read_bytes() for file in (whole, small)})
    hub.repos["acme/tiny-GGUF"].gguf = {"total": 62_752, "architecture": "llama", "context_length": 2048}
    page = open_page(make_stage(make_engine(folder=None)), qtbot)
    look_at(page, qtbot, "acme/tiny-GGUF")
    assert plain(page.add.hub_about.text()).startswith(
        "acme/tiny-GGUF · llama · 63 K parameters · window 2,048 · no chat template · 2 files, "
    )
    assert [offer.name for offer in page.add.offers] == ["Q8_0", "F32"]
    page.add.offers[0].button.click()  # type: ignore[union-attr]
    until(qtbot, lambda: page.rows and badges(page, "tiny-GGUF:Q8_0")[-1] == "on the disk")
    # The header itself says more than the hub did.
    assert "llama · 63 K parameters · window 2,048 · chat template" in plain(row(page, "tiny-GGUF:Q8_0").facts.text())


def test_a_download_is_paused_gone_on_with_and_cancelled(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, hub: StandInHub, tiny_checkpoint: Path
) -> None:
    hub.add_folder(REPO, tiny_checkpoint)
    hub.held["model.safetensors"] = 0.5
    stage = make_stage(make_engine(folder=None))
    page = open_page(stage, qtbot)
    look_at(page, qtbot, REPO)
    page.add.offers[0].button.click()  # type: ignore[union-attr]
    until(qtbot, lambda: hub.hanging.is_set() and page.rows)
    one = row(page, "tiny-llama")
    until(qtbot, lambda: one.pause_button.isVisible() and " of " in one.stage.full_text())
    until(qtbot, lambda: 0 < one.progress.value() < 100)
    one.pause_button.click()
    hub.held.clear()
    hub.let_go.set()
    until(qtbot, lambda: badges(page, "tiny-llama") == ["transformers", "paused"])
    assert one.resume_button.isVisible() and not one.load_button.isVisible() and not one.error.isVisible()
    assert stage.engine.models.downloads.wait_ended(one.view.id)
    one.resume_button.click()
    until(qtbot, lambda: badges(page, "tiny-llama") == ["transformers", "on the disk"])
    assert [record.id for record in stage.engine.shelf.list()] == [one.view.id]


def test_a_download_is_cancelled_after_asking(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, hub: StandInHub, tiny_checkpoint: Path
) -> None:
    hub.add_folder(REPO, tiny_checkpoint)
    hub.held["model.safetensors"] = 0.5
    stage = make_stage(make_engine(folder=None))
    page = open_page(stage, qtbot)
    look_at(page, qtbot, REPO)
    page.add.offers[0].button.click()  # type: ignore[union-attr]
    until(qtbot, lambda: hub.hanging.is_set() and page.rows)
    one = row(page, "tiny-llama")
    until(qtbot, lambda: one.cancel_button.isVisible())
    one.cancel_button.click()
    assert "What has come so far is deleted" in page.notice.words()
    hub.let_go.set()
    press(page, "Cancel the download")
    until(qtbot, lambda: not page.rows)
    assert stage.engine.shelf.list() == []


def test_what_the_hub_refuses_is_said_in_words(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, hub: StandInHub, tiny_checkpoint: Path
) -> None:
    page = open_page(make_stage(make_engine(folder=None)), qtbot)
    look_at(page, qtbot, "nobody/nothing")
    assert "nobody/nothing" in page.add.notice.words()
    look_at(page, qtbot, "no/repository/at all")
    assert "owner/name" in page.add.notice.words()
    hub.add_folder(REPO, tiny_checkpoint, gated=True)
    look_at(page, qtbot, REPO)
    assert "gated" in page.add.notice.words() or "gated" in page.add.hub_about.text()
    hub.add("acme/pickles", {"config.json": json.dumps({}).encode(), "pytorch_model.bin": b"x"})
    look_at(page, qtbot, "acme/pickles")
    assert page.add.offers == [] and "pickle" in page.add.notice.words()


def test_offline_is_said(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, hub: StandInHub) -> None:
    page = open_page(make_stage(make_engine(folder=None, HF_HUB_OFFLINE=True)), qtbot)
    look_at(page, qtbot, REPO)
    assert "HF_HUB_OFFLINE" in page.add.notice.words()


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (40.4, "40 s"), (120, "2 min"), (5400, "1 h 30 min"), (7265, "2 h 01 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


def test_transfers() -> None:
    assert words.transfer(40_000_000, 98_000_000, 2_000_000.0) == "40 MB of 98 MB · 2.0 MB/s · 29 s left"
    assert words.transfer(0, 98_000_000, None) == "0.0 MB of 98 MB"
    assert words.transfer(None, None, None) == "Waiting for its turn…"


def test_a_paused_download_is_no_failure(make_engine: EngineMaker) -> None:
    engine = make_engine(folder=None)
    kept = engine.library.models.add(
        ModelRecord(
            "half", ModelSource.HUGGINGFACE, EngineKind.TRANSFORMERS, repo_id=REPO, status=ModelStatus.DOWNLOADING
        )
    )
    engine.library.models.set_status(kept.id, ModelStatus.ERROR, error_message=CANCELLED)
    assert words.state(engine.models.get(kept.id)) == ("paused", "warn")
    engine.library.models.set_status(kept.id, ModelStatus.ERROR, error_message="The hub broke off.")
    view = engine.models.get(kept.id)
    assert words.state(view) == ("failed", "bad") and words.is_unfinished(view)


def test_a_card_that_lies_idle_is_told_in_the_bar_and_on_the_page(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judge(SeenGpus(("NVIDIA H200",), "2.13.0+cpu", None, False, False))
    monkeypatch.setattr(models_page, "unused_gpu", lambda: found)
    monkeypatch.setattr(main_window, "unused_gpu", lambda: found)
    stage = make_stage(make_engine(load=False))
    page = open_page(stage, qtbot)
    until(qtbot, page.idle_gpu.isVisible)
    bar = stage.window.bar
    until(qtbot, lambda: bar.model.caption.full_text() == "Model · GPU not used")
    assert "NVIDIA H200" in bar.model.toolTip() and "Which PyTorch" in bar.model.toolTip()
    bar.show_unused_gpu("")
    page.show_unused_gpu(None)
    assert bar.model.caption.full_text() == "Model" and "NVIDIA" not in bar.model.toolTip()
    assert not page.idle_gpu.isVisible()


def test_words_search_the_hub_for_models(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, hub: StandInHub
) -> None:
    hub.add("acme/small-talk", {"config.json": b"{}"}, downloads=7, parameters=135_000_000)
    hub.add("acme/small-saes", {}, pipeline_tag=None, downloads=9)
    page = open_page(make_stage(make_engine(None)), qtbot)
    page.add.show_tab(0)
    page.add.repo.setText("small")
    qtbot.keyClick(page.add.repo, Qt.Key.Key_Return)
    until(qtbot, lambda: len(page.add.finds.rows) == 1)
    told = told_in(page.add.finds.rows[0])
    assert "135 M parameters" in told and "7 downloads a month" in told
    page.add.finds.rows[0].findChildren(Button)[0].click()
    until(qtbot, lambda: page.add.repo.text() == "acme/small-talk" and page.add.preview_button.isEnabled())

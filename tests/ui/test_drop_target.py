"""Files dropped anywhere on the window go where they belong, or are told what they are not; the veil always goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QObject, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.engine import Engine
from tests.conftest import EngineMaker
from tests.gguf_files import build_gguf
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.drops import drag_away, drag_over, drop
from tests.ui.full import PAGES
from tests.ui.look import until
from tests.ui.stage import Stage
from tests.ui.steer_stage import ONE, add_saes, attach_both, circuit, cluster, write
from ui.context.page_context import CHAT, CIRCUITS, CLUSTERS, FEATURES, HOME, MODELS, PROFILES, SAES, SETTINGS
from ui.steer.library_frame import LibraryFrame
from ui.talk.chat import ChatPage
from ui.window.dropped import sort_out

HOW = (Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier)


@pytest.fixture
def engine(make_engine: EngineMaker) -> Engine:
    return make_engine(folder=None)


@pytest.fixture
def stage(make_stage: StageMaker, engine: Engine) -> Stage:
    return make_stage(engine)


def said(stage: Stage) -> str:
    return stage.window.bar.message.full_text()


def test_each_thing_finds_its_page(engine: Engine, tmp_path: Path, tiny_checkpoint: Path) -> None:
    empty, labels = tmp_path / "empty", tmp_path / "labels"
    empty.mkdir()
    labels.mkdir()
    (labels / "part-0.jsonl").write_text('{"index": 1, "label": "a"}\n')
    sae = make_sae(tmp_path / "sae", layer=1)
    weights = next(each for each in sae.iterdir() if each.suffix == ".safetensors")
    table = tmp_path / "labels.csv"
    table.write_text("feature_idx,label\n1,harbour\n")
    listed, other = write(tmp_path, "labels.json", [{"index": 1, "label": "a"}]), tmp_path / "notes.txt"
    other.write_text("x")
    where = {
        tiny_checkpoint: MODELS,
        build_gguf(tiny_checkpoint, tmp_path / "tiny-F32.gguf"): MODELS,
        sae: SAES,
        weights: SAES,
        write(tmp_path, "one.json", cluster()): CLUSTERS,
        write(tmp_path, "two.json", circuit()): CIRCUITS,
        write(tmp_path, "three.json", {"name": "p", "steering": {"1": 2.0}}): PROFILES,
        table: FEATURES,
        listed: FEATURES,
        labels: FEATURES,
    }
    for path, page in where.items():
        assert sort_out(engine, [path], HOME).pages == {page: (path,)}, path
    found = sort_out(engine, [other, empty, tmp_path / "gone.safetensors", tmp_path / "gone"], HOME)
    assert found.pages == {}
    notes, folder, lost, gone = found.refused
    assert notes.startswith("notes.txt is nothing that is taken here: drop a model")
    assert folder.startswith("empty is neither the folder of a model nor of an SAE.")
    assert lost.startswith("gone.safetensors") or "no file" in lost
    assert gone == f"There is no file at {tmp_path / 'gone'} any more."


def test_a_weight_file_of_a_model_is_told_from_an_sae(engine: Engine, tiny_checkpoint: Path) -> None:
    weights = next(each for each in tiny_checkpoint.iterdir() if each.suffix == ".safetensors")
    found = sort_out(engine, [weights], HOME)
    assert found.refused == (f"{weights.name} holds no SAE. A model is dropped as its folder.",)


@pytest.mark.parametrize("key", PAGES)
def test_a_document_is_taken_on_every_page(qtbot: QtBot, stage: Stage, tmp_path: Path, key: str) -> None:
    window = stage.window
    window.show_page(key)
    assert drop(window.page(key), [write(tmp_path, "a.circuit.json", circuit("Dropped"))])
    until(qtbot, lambda: [each.record.name for each in stage.engine.circuits.list().circuits] == ["Dropped"])
    assert window.open_page == (key if key in (PROFILES, CLUSTERS) else CIRCUITS)
    assert window.door.veil.isHidden()


@pytest.mark.parametrize("key", PAGES)
def test_what_nothing_takes_is_told_on_every_page(qtbot: QtBot, stage: Stage, tmp_path: Path, key: str) -> None:
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"x")
    stage.window.show_page(key)
    assert drop(stage.window.page(key), [picture])
    until(qtbot, lambda: "picture.png is nothing that is taken here" in said(stage))
    assert stage.window.open_page == key


def test_a_refusal_goes_with_the_next_drop_and_nothing_else_does(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    picture, window = tmp_path / "picture.png", stage.window
    picture.write_bytes(b"x")
    window.show_page(HOME)
    assert drop(window, [picture])
    until(qtbot, lambda: "picture.png is nothing that is taken here" in said(stage))
    assert window.bar.toast.isVisible()
    # What is taken says so on its page; the line of the one before is over.
    assert drop(window, [write(tmp_path, "a.json", cluster("First"))])
    until(qtbot, lambda: len(stage.engine.clusters.list().clusters) == 1)
    assert said(stage) == "" and not window.bar.toast.isVisible()
    # A link, and what did not come, are refused by the door itself; words that are dropped are taken, too.
    fall(window, mime("https://example.org/a.json"))
    assert drop(window, [picture])
    until(qtbot, lambda: "picture.png" in said(stage))
    window.door.text.emit(json.dumps(cluster("Second")))
    assert said(stage) == ""
    # Another message that lasts is none of a drop's business.
    assert drop(window, [picture])
    until(qtbot, lambda: "picture.png" in said(stage))
    window.say("The program failed the last time it ran.", lasting=True)
    assert drop(window, [write(tmp_path, "b.json", cluster("Third"))])
    until(qtbot, lambda: len(stage.engine.clusters.list().clusters) == 3)
    assert said(stage) == "The program failed the last time it ran."


def test_several_kinds_at_once(qtbot: QtBot, stage: Stage, tmp_path: Path, tiny_checkpoint: Path) -> None:
    sae = make_sae(tmp_path / "sae", layer=1)
    bad = tmp_path / "bad.txt"
    bad.write_text("x")
    assert drop(stage.window, [tiny_checkpoint, sae, write(tmp_path, "a.json", cluster()), bad])
    until(qtbot, lambda: stage.engine.models.list())
    until(qtbot, lambda: stage.engine.library.saes.list())
    until(qtbot, lambda: stage.engine.clusters.list().clusters)
    assert "bad.txt" in said(stage)


def test_labels_go_to_the_sae_that_is_chosen_or_say_that_none_is(
    qtbot: QtBot, stage: Stage, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("feature_idx,label\n1,harbour\n")
    assert drop(stage.window, [table])
    until(qtbot, lambda: "Attach the SAE that the labels in labels.csv belong to" in said(stage))
    engine = make_engine()
    add_saes(engine, tmp_path / "saes")
    attach_both(engine)
    other = make_stage(engine)
    assert drop(other.window, [table])
    until(qtbot, lambda: engine.library.labels.count(ONE[0]) == 1)


def mime(*urls: str, text: str = "") -> QMimeData:
    data = QMimeData()
    if urls:
        data.setUrls([QUrl(each) for each in urls])
    if text:
        data.setText(text)
    return data


def enter(target: QObject, data: QMimeData) -> bool:
    event = QDragEnterEvent(QPointF(40, 40).toPoint(), Qt.DropAction.CopyAction, data, *HOW)
    event.ignore()
    QApplication.sendEvent(target, event)
    return event.isAccepted()


def fall(target: QObject, data: QMimeData) -> None:
    QApplication.sendEvent(target, QDropEvent(QPointF(40, 40), Qt.DropAction.CopyAction, data, *HOW))


def test_a_drop_whose_data_do_not_come_leaves_no_veil(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    window = stage.window
    accepted, _data = drag_over(window.page(HOME), [tmp_path])
    assert accepted and window.door.veil.isVisible()
    fall(window, QMimeData())
    assert window.door.veil.isHidden()
    assert said(stage).startswith("What was dropped did not come.")


def test_a_drag_that_ends_elsewhere_leaves_no_veil(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    window = stage.window
    drag_over(window, [tmp_path])
    drag_away(window)
    assert window.door.veil.isHidden()
    drag_over(window, [tmp_path])
    assert window.door.veil.isVisible()
    # Nothing more is heard of it.
    until(qtbot, window.door.veil.isHidden)


def test_a_file_on_another_computer_is_told(qtbot: QtBot, stage: Stage) -> None:
    data = mime("smb://nas/share/model.gguf")
    assert enter(stage.window, data)
    fall(stage.window, data)
    assert said(stage).startswith("smb://nas/share/model.gguf is not a file of this computer.")


def test_over_a_field_too_a_file_is_a_file_and_words_are_words(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    window = stage.window
    window.show_page(CHAT)
    chat = window.page(CHAT)
    assert isinstance(chat, ChatPage)
    handle = window.windowHandle()
    assert handle is not None
    file = write(tmp_path, "a.circuit.json", circuit("Dropped"))
    data = mime(QUrl.fromLocalFile(str(file)).toString())
    assert enter(handle, data) and window.door.veil.isVisible()
    fall(handle, data)
    until(qtbot, lambda: stage.engine.circuits.list().circuits)
    assert chat.composer.field.toPlainText() == ""
    window.show_page(CHAT)
    words = mime(text='{"a": "question about JSON"}')
    field = chat.composer.field.viewport()
    assert enter(field, words)
    fall(field, words)
    assert chat.composer.field.toPlainText() == '{"a": "question about JSON"}'


def test_a_document_dropped_as_text_is_taken(qtbot: QtBot, stage: Stage) -> None:
    stage.window.show_page(SETTINGS)
    data = mime(text=json.dumps(cluster("As words")))
    assert enter(stage.window.page(SETTINGS), data)
    fall(stage.window.page(SETTINGS), data)
    until(qtbot, lambda: [each.record.name for each in stage.engine.clusters.list().clusters] == ["As words"])
    assert isinstance(stage.window.page(CLUSTERS), LibraryFrame)
    assert not enter(stage.window.page(SETTINGS), mime(text="hello"))

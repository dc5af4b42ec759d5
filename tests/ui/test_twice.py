"""Whatever begins something long is clicked twice, or begun from two pages: it is done once, and said once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from engine.events import Event, ModelLoadComplete, SaeAttached, ServerStateChanged
from tests.conftest import EngineMaker
from tests.engine.actions.steering.stage import cluster, member, raw
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import plain, until
from tests.ui.stage import Stage
from ui.bridge import Bridge
from ui.context.page_context import CLUSTERS, MODELS, SAES, SERVER, SETTINGS, STEERING


class Hears(QObject):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[object] = []


def test_a_second_click_joins_and_each_page_hears_the_outcome_once(bridge: Bridge, qtbot: QtBot) -> None:
    go = threading.Event()
    begun: list[str] = []
    one, two = Hears(), Hears()

    def work(name: str, outcome: object) -> Callable[[], object]:
        def task() -> object:
            begun.append(name)
            assert go.wait(30)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return task

    assert bridge.run_once("key", work("first", 1), one.heard.append, one.heard.append, owner=one)
    assert not bridge.run_once("key", work("again", 2), one.heard.append, one.heard.append, owner=one)
    assert bridge.run_once("key", work("other page", 3), two.heard.append, two.heard.append, owner=two)
    assert bridge.run_once("another key", work("beside", 4), one.heard.append, owner=one)
    go.set()
    until(qtbot, lambda: len(one.heard) == 2 and two.heard)
    assert (sorted(map(str, one.heard)), two.heard) == (["1", "4"], [1])
    assert sorted(begun) == ["beside", "first"]
    # What has ended can be begun again, and a failure is everybody's.
    error = ValueError("no")
    assert bridge.run_once("key", work("third", error), None, one.heard.append, owner=one)
    assert bridge.run_once("key", work("fourth", 5), two.heard.append, two.heard.append, owner=two)
    until(qtbot, lambda: two.heard[-1] is error)
    assert one.heard[-1] is error
    assert "fourth" not in begun


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path) -> Stage:
    """The tiny model, not loaded, and an SAE on the shelf that fits it."""
    engine = make_engine(load=False)
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id="made-sae")
    made: Stage = make_stage(engine)
    return made


def settled(stage: Stage, qtbot: QtBot) -> None:
    """Until everything that was asked for in the background so far has come back, and what that asked for, too."""
    until(qtbot, lambda: not stage.bridge._under_way and not stage.bridge._busy)


def words(stage: Stage, page: str) -> str:
    notice = stage.window.page(page).notice  # type: ignore[attr-defined]
    return str(notice.words())


def test_loads_from_three_places_are_one(stage: Stage, qtbot: QtBot) -> None:
    engine, window = stage.engine, stage.window
    (record,) = engine.shelf.list()
    loaded: list[Event] = []
    engine.events.subscribe(loaded.append, ModelLoadComplete)
    until(qtbot, lambda: window.home.model.rows and window.home.steps.load.button.isEnabled())
    models = window.page(MODELS)
    window.home.model.load.emit(record.id)
    window.home.model.load.emit(record.id)
    window.home.steps.load.button.clicked.emit()
    models.load(record.id)  # type: ignore[attr-defined]
    models.load(record.id)  # type: ignore[attr-defined]
    window.chat.gate._offered = record.id
    window.chat.composer.remedy.emit()
    until(qtbot, lambda: loaded)
    settled(stage, qtbot)
    assert len(loaded) == 1
    assert window.home.model.notice.words() == words(stage, MODELS) == ""


def test_attaching_from_two_pages_is_one(stage: Stage, qtbot: QtBot) -> None:
    engine, window = stage.engine, stage.window
    engine.loader.load(engine.shelf.list()[0].id).result(60)
    attached: list[Event] = []
    engine.events.subscribe(attached.append, SaeAttached)
    saes, steering = window.page(SAES), window.page(STEERING)
    settled(stage, qtbot)
    for _ in range(2):
        saes.attach("made-sae", None)  # type: ignore[attr-defined]
        steering.attach("made-sae", None)  # type: ignore[attr-defined]
    settled(stage, qtbot)
    assert len(attached) == 1
    assert "already" not in words(stage, SAES)
    assert steering.shelf.notice.words() == ""  # type: ignore[attr-defined]
    for _ in range(2):
        saes.detach("made-sae")  # type: ignore[attr-defined]
        steering.detach("made-sae")  # type: ignore[attr-defined]
    settled(stage, qtbot)
    assert engine.desk.state.attachments == ()
    assert steering.shelf.notice.words() == ""  # type: ignore[attr-defined]
    assert not saes._working  # type: ignore[attr-defined]


def test_what_is_deleted_twice_is_deleted_once_and_nothing_is_said_to_be_missing(stage: Stage, qtbot: QtBot) -> None:
    engine, window = stage.engine, stage.window
    (record,) = engine.shelf.list()
    models, saes = window.page(MODELS), window.page(SAES)
    settled(stage, qtbot)
    for _ in range(2):
        models._delete(record.id, record.name)  # type: ignore[attr-defined]
        saes._delete("made-sae")  # type: ignore[attr-defined]
    settled(stage, qtbot)
    assert engine.shelf.list() == [] and engine.saes.list() == []
    assert words(stage, MODELS) == f"{record.name} is gone from the shelf."
    assert words(stage, SAES) == ""


def test_what_is_taken_in_twice_is_there_once(stage: Stage, qtbot: QtBot, tmp_path: Path) -> None:
    engine, window = stage.engine, stage.window
    place = {"mistudio_sae_id": "made-sae", "layer": 1, "n_features": 64}
    file = tmp_path / "harbour.cluster.json"
    file.write_bytes(raw(cluster("Harbour", member(3, 8.0), sae=place)))
    make_sae(tmp_path / "second", layer=0)
    clusters, saes = window.page(CLUSTERS), window.page(SAES)
    for _ in range(2):
        clusters.import_files([file])  # type: ignore[attr-defined]
        saes.import_folder(str(tmp_path / "second"))  # type: ignore[attr-defined]
    settled(stage, qtbot)
    assert [each.record.name for each in engine.clusters.list().clusters] == ["Harbour"]
    assert len(engine.saes.list()) == 2
    assert "is imported." in words(stage, SAES)


def test_the_server_is_restarted_once(stage: Stage, qtbot: QtBot) -> None:
    window = stage.window
    states: list[str] = []
    stage.server.start(0)
    until(qtbot, lambda: stage.server.state == "running")
    stage.engine.events.subscribe(lambda event: states.append(event.state), ServerStateChanged)  # type: ignore[attr-defined]
    server, settings = window.page(SERVER), window.page(SETTINGS)
    server.restart()  # type: ignore[attr-defined]
    server.restart()  # type: ignore[attr-defined]
    settings._restart_server()  # type: ignore[attr-defined]
    until(qtbot, lambda: states[-1:] == ["running"])
    settled(stage, qtbot)
    assert states.count("stopped") == 1 and states.count("running") == 1


def twice(qtbot: QtBot, button: QWidget) -> None:
    """As an impatient hand does: a double click and one more."""
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    qtbot.mouseDClick(button, Qt.MouseButton.LeftButton)
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def test_a_double_click_loads_once(stage: Stage, qtbot: QtBot) -> None:
    engine, window = stage.engine, stage.window
    (record,) = engine.shelf.list()
    loaded: list[Event] = []
    engine.events.subscribe(loaded.append, ModelLoadComplete)
    window.show_page(MODELS)
    models = window.page(MODELS)
    until(qtbot, lambda: record.id in models.rows)  # type: ignore[attr-defined]
    twice(qtbot, models.rows[record.id].load_button)  # type: ignore[attr-defined]
    until(qtbot, lambda: loaded)
    settled(stage, qtbot)
    assert len(loaded) == 1 and words(stage, MODELS) == ""


def test_a_file_is_written_once_and_said_once(stage: Stage, qtbot: QtBot, tmp_path: Path) -> None:
    window = stage.window
    file = tmp_path / "harbour.cluster.json"
    place = {"mistudio_sae_id": "made-sae", "layer": 1, "n_features": 64}
    file.write_bytes(raw(cluster("Harbour", member(3, 8.0), sae=place)))
    window.show_page(CLUSTERS)
    clusters = window.page(CLUSTERS)
    clusters.import_files([file])  # type: ignore[attr-defined]
    settled(stage, qtbot)
    made: list[int] = []

    def document() -> dict[str, object]:
        made.append(1)
        return {"name": "Harbour"}

    clusters.export("Harbour", document)  # type: ignore[attr-defined]
    dialog = clusters.save_dialog  # type: ignore[attr-defined]
    for _ in range(2):
        dialog.fileSelected.emit(str(tmp_path / "out.json"))
    dialog.reject()
    settled(stage, qtbot)
    assert made == [1]
    assert (tmp_path / "out.json").exists() and words(stage, CLUSTERS) == f"Written to {tmp_path / 'out.json'}."


def test_a_long_word_in_the_bar_is_whole_in_its_tip(stage: Stage, qtbot: QtBot) -> None:
    bar = stage.window.bar
    said = "The <b>file</b> could not be read. " * 20
    stage.window.say(said, lasting=True)
    until(qtbot, lambda: bar.message.text().endswith("…"))
    assert " ".join(plain(bar.message.toolTip()).replace("\u2060", "").split()) == said.strip()

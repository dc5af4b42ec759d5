"""Downloads, records and sets that are begun twice, from one page or from both faces: there once, and said once."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from engine.actions.downloading import finding
from engine.actions.downloading.finding import KnownPair
from engine.actions.downloading.models import DownloadRequest
from engine.errors import InvalidParameter
from engine.events import Event, SaeAttached
from engine.library.records import ExperimentRecord, ModelStatus, SaeStatus
from tests.conftest import EngineMaker
from tests.hub import StandInHub
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import chat_of, send, until
from tests.ui.stage import Stage
from ui.context.page_context import CHAT, MODELS, SAES, SWEEP
from ui.shelf.models import ModelsPage
from ui.shelf.saes import SaesPage
from ui.steer.sweep import SweepPage
from ui.talk.compare_message import CompareMessage

REPO, SAE_REPO = "made/tiny-llama", "acme/tiny-saes"
ASKED: dict[str, object] = {"source": "huggingface", "repo_id": REPO}
WEIGHTS = "layer_1/width_16k/sae_weights.safetensors"


@pytest.fixture
def stage(
    make_engine: EngineMaker, make_stage: StageMaker, hub: StandInHub, tiny_checkpoint: Path, tmp_path: Path
) -> Stage:
    """An empty shelf, and a hub that has the tiny model and one SAE for it."""
    hub.add_folder(REPO, tiny_checkpoint)
    make_sae(tmp_path / "repo" / "layer_1" / "width_16k", layer=1)
    hub.add_folder(SAE_REPO, tmp_path / "repo")
    return make_stage(make_engine(folder=None))


class Api:
    """The other face: each call on a connection of its own."""

    def __init__(self, stage: Stage) -> None:
        stage.server.start()
        self._base = stage.server.wait_ready(60).removesuffix("/v1") + "/api"

    def post(self, path: str, body: dict[str, object]) -> httpx.Response:
        return httpx.post(self._base + path, json=body, timeout=60)

    def forget_set(self, name: str) -> None:
        httpx.delete(f"{self._base}/saes/attach-sets", params={"name": name}, timeout=60).raise_for_status()


def settled(stage: Stage, qtbot: QtBot) -> None:
    until(qtbot, lambda: not stage.bridge._under_way and not stage.bridge._busy)


def twice(qtbot: QtBot, button: QWidget) -> None:
    """As an impatient hand does: a double click and one more."""
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    qtbot.mouseDClick(button, Qt.MouseButton.LeftButton)
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def models_of(stage: Stage) -> ModelsPage:
    stage.window.show_page(MODELS)
    page = stage.window.page(MODELS)
    assert isinstance(page, ModelsPage)
    return page


def saes_of(stage: Stage) -> SaesPage:
    stage.window.show_page(SAES)
    page = stage.window.page(SAES)
    assert isinstance(page, SaesPage)
    return page


def look_at(page: ModelsPage | SaesPage, qtbot: QtBot, repo: str) -> None:
    page.add.repo.setText(repo)
    page.add.repo.setFocus()
    qtbot.keyClick(page.add.repo, Qt.Key.Key_Return)
    until(qtbot, page.add.preview_button.isEnabled)


# --- downloads --------------------------------------------------------------------------------------------------------


def test_a_model_is_fetched_once_by_an_impatient_hand(qtbot: QtBot, stage: Stage, hub: StandInHub) -> None:
    page = models_of(stage)
    look_at(page, qtbot, REPO)
    button = page.add.offers[0].button
    assert button is not None
    twice(qtbot, button)
    until(qtbot, lambda: [each.status for each in stage.engine.shelf.list()] == [ModelStatus.READY])
    settled(stage, qtbot)
    assert len(hub.fetched("model.safetensors")) == 1
    assert "already" not in page.notice.words()
    # And once it is here, one more click says so, and not as something that went wrong.
    button.click()
    settled(stage, qtbot)
    assert page.notice.words().startswith(f"{REPO} is in the library already")
    assert page.notice.property("tone") == "info"
    assert len(stage.engine.shelf.list()) == 1


def test_a_model_is_fetched_once_for_both_faces(qtbot: QtBot, stage: Stage, hub: StandInHub) -> None:
    hub.held["model.safetensors"] = 0.5
    page, api = models_of(stage), Api(stage)
    page.download(DownloadRequest(REPO))
    until(qtbot, hub.hanging.is_set)
    answers = [api.post("/models", ASKED) for _ in range(2)]
    hub.held.clear()
    hub.let_go.set()
    assert [each.status_code for each in answers] == [409, 409], answers[0].text
    until(qtbot, lambda: [each.status for each in stage.engine.shelf.list()] == [ModelStatus.READY])
    assert page.notice.property("tone") != "bad"


def test_posts_at_once_make_one_model(stage: Stage, hub: StandInHub) -> None:
    api = Api(stage)
    gate, codes = threading.Barrier(4), []

    def post() -> None:
        gate.wait(30)
        codes.append(api.post("/models", ASKED).status_code)

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(codes) == [202, 409, 409, 409]
    (record,) = stage.engine.shelf.list()
    assert stage.engine.models.downloads.wait_ended(record.id, 60)
    assert stage.engine.shelf.get(record.id).status is ModelStatus.READY
    assert len(hub.fetched("model.safetensors")) == 1


def test_an_sae_is_fetched_once_from_both_faces(qtbot: QtBot, stage: Stage, hub: StandInHub) -> None:
    page, api = saes_of(stage), Api(stage)
    look_at(page, qtbot, SAE_REPO)
    page.add.tree.topLevelItem(0).setCheckState(0, Qt.CheckState.Checked)
    hub.held[WEIGHTS] = 0.5
    twice(qtbot, page.add.download_button)
    until(qtbot, hub.hanging.is_set)
    body: dict[str, object] = {"repository_id": SAE_REPO, "file_path": WEIGHTS}
    answers = [api.post("/saes/download", body) for _ in range(2)]
    hub.held.clear()
    hub.let_go.set()
    assert [each.json()["data"]["status"] for each in answers] == ["already_downloading"] * 2, answers[0].text
    until(qtbot, lambda: [each.status for each in stage.engine.saes.list()] == [SaeStatus.CACHED])
    settled(stage, qtbot)
    until(qtbot, lambda: page.notice.words().endswith(" is here."))
    assert len(hub.fetched("sae_weights.safetensors")) == 1


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> KnownPair:
    made = KnownPair("tiny", REPO, SAE_REPO, WEIGHTS, 1, False, "64 features")
    monkeypatch.setattr(finding, "PAIRS", (made,))
    return made


def test_a_pair_is_fetched_once_from_two_pages(qtbot: QtBot, stage: Stage, hub: StandInHub, pair: KnownPair) -> None:
    models, saes = models_of(stage), saes_of(stage)
    weights = [name for repo in hub.repos.values() for name in repo.files if name.endswith(".safetensors")]
    hub.held.update(dict.fromkeys(weights, 0.5))
    for _ in range(2):
        models.fetch_pair(pair)
        saes.fetch_pair(pair)
    settled(stage, qtbot)
    for page in (models, saes):
        assert page.notice.words().startswith(f"{REPO} is being downloaded; its SAE: ")
        assert page.notice.words().endswith("is being downloaded.")
    hub.held.clear()
    hub.let_go.set()
    (record,) = stage.engine.shelf.list()
    assert stage.engine.models.downloads.wait_ended(record.id, 60)
    (sae,) = stage.engine.saes.list()
    assert stage.engine.sae_downloads.wait_ended(sae.id, 60)
    assert len(hub.fetched("model.safetensors")) == 1


# --- records ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def steered(make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path) -> Stage:
    engine = make_engine()
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id="made-sae")
    engine.attachments.attach("made-sae")
    engine.hand_steering.set_values({3: 20.0}, sae_id="made-sae", layer=1)
    return make_stage(engine)


def compared(stage: Stage, qtbot: QtBot) -> CompareMessage:
    chat = chat_of(stage, qtbot, tokens=3)
    stage.window.show_page(CHAT)
    chat.set_comparing(True)
    send(chat, qtbot, "the sea")
    until(qtbot, lambda: not chat.busy)
    view = chat.messages.view(1)
    assert isinstance(view, CompareMessage)
    return view


def test_a_comparison_is_kept_once(qtbot: QtBot, steered: Stage) -> None:
    view = compared(steered, qtbot)
    twice(qtbot, view.keep_button)
    steered.window.chat._keep_record(1)
    settled(steered, qtbot)
    assert [each.title for each in steered.engine.experiments.list()] == ["the sea"]
    assert view.keep_button.text() == " Saved"


def test_a_comparison_that_could_not_be_kept_does_not_say_that_it_was(
    qtbot: QtBot, steered: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = compared(steered, qtbot)
    experiments = steered.engine.experiments
    add = experiments.add

    def refuse(_new: ExperimentRecord) -> object:
        raise InvalidParameter("The disk is full.")

    monkeypatch.setattr(experiments, "add", refuse)
    view.keep_button.click()
    until(qtbot, lambda: view.keep_button.isEnabled())
    assert view.keep_button.text() == " Save as record"
    monkeypatch.setattr(experiments, "add", add)
    view.keep_button.click()
    settled(steered, qtbot)
    assert len(experiments.list()) == 1 and view.keep_button.text() == " Saved"


def test_a_sweep_is_kept_once_whatever_comes_after(qtbot: QtBot, steered: Stage) -> None:
    steered.window.show_page(SWEEP)
    page = steered.window.page(SWEEP)
    assert isinstance(page, SweepPage)
    until(qtbot, lambda: page.form.ready and page.run_button.isEnabled())
    page.form.prompts.setPlainText("the sea")
    page.form.intensities.setText("1")
    page.form.tokens.setValue(2)
    page.run_button.click()
    until(qtbot, lambda: page.outcome is not None and page.keep_button.isEnabled())
    twice(qtbot, page.keep_button)
    page.keep()
    settled(steered, qtbot)
    # Another look at what can be swept does not offer it anew.
    page.refresh()
    settled(steered, qtbot)
    assert not page.keep_button.isEnabled() and page.csv_button.isEnabled()
    page.keep()
    settled(steered, qtbot)
    assert len(steered.engine.experiments.list()) == 1


# --- sets -------------------------------------------------------------------------------------------------------------


def test_a_set_is_saved_attached_and_forgotten_once(qtbot: QtBot, steered: Stage) -> None:
    engine, page, api = steered.engine, saes_of(steered), Api(steered)
    until(qtbot, lambda: page.sets.save_button.isEnabled())
    page.sets.name.setText("both")
    twice(qtbot, page.sets.save_button)
    settled(steered, qtbot)
    until(qtbot, lambda: len(page.sets.rows) == 1)
    assert [each.name for each in engine.library.attach_sets.list()] == ["both"]
    engine.attachments.detach("made-sae")
    until(qtbot, lambda: page.sets.rows[0].button.isEnabled())
    attached: list[Event] = []
    engine.events.subscribe(attached.append, SaeAttached)
    twice(qtbot, page.sets.rows[0].button)
    page.attach_set("both")
    settled(steered, qtbot)
    assert len(attached) == 1 and page.notice.words() == "both is attached: 1 SAE."
    # Forgotten by a program while the window asks.
    page.ask_delete_set("both")
    api.forget_set("both")
    page._delete_set("both")
    page._delete_set("both")
    settled(steered, qtbot)
    until(qtbot, lambda: not page.sets.rows)
    assert page.sets.notice.words() == ""

"""A window in which every page has something to show, named as a test wishes, and ways through all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from engine.documents.loading import decode
from engine.engine import Engine
from engine.library.conversations import StoredMessage
from engine.library.records import ExperimentRecord, FeatureLabel
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.stage import Stage
from tests.ui.steer_stage import ONE, TWO, attach_both, circuit, cluster, member, raw
from ui.context.page_context import GROUPS
from ui.look.features import FeaturesPage
from ui.steer.library_frame import LibraryFrame
from ui.talk.chat import ChatPage
from ui.talk.records import RecordsPage

PAGES = tuple(spec.key for _group, specs in GROUPS for spec in specs)
SIDES = {"completion_tokens": 3, "finish_reason": "stop"}


def fill(engine: Engine, folder: Path, name: str) -> None:
    """The library gets one of everything, called ``name``; two SAEs are attached and steer."""
    library = engine.library
    resident = engine.shelf.resident
    assert resident is not None
    for number, (sae_id, layer) in enumerate((ONE, TWO)):
        engine.saes.import_local(make_sae(folder / sae_id, layer=layer, seed=number), sae_id=sae_id)
        engine.saes.import_labels(
            sae_id, [FeatureLabel(index, name, density=0.01, top_tokens=(name,), source=name) for index in range(8)]
        )
    attach_both(engine)
    engine.attachments.save_set(name)
    engine.hand_steering.set_values({3: 4.0, 5: -2.0}, sae_id=ONE[0], layer=ONE[1])
    engine.profiles.create(name, description=name, sae_id=ONE[0], layer=ONE[1], steering={3: 4.0})
    members = [member(1, 4.0, label=name), member(2, 6.0, sign=-1, label=name)]
    engine.clusters.import_document(raw(cluster(name, narrative=name, display_token=name, members=members)))
    document = circuit(name, narrative=name)
    for each in document["members"]:
        if "feature" in each:
            each["feature"]["label"] = name
        else:
            each["cluster_name"] = name
    assert decode(raw(document))
    engine.circuits.import_document(raw(document))
    library.conversations.create(
        name, name, [StoredMessage("user", name, {}), StoredMessage("assistant", name, {"model": name, **SIDES})]
    )
    library.experiments.add(
        ExperimentRecord(
            title=name,
            model=name,
            prompt=name,
            plain=name,
            steered=name,
            settings={"temperature": 0.0, "max_tokens": 12, "seed": None, "noise_seed": 7, "system_prompt": name},
            steering={
                "text": name,
                "changed": False,
                "items": [{"kind": "circuit", "id": "c1", "name": name, "intensity": "0.5"}],
            },
            evidence={"rung": 1, "language": name},
            versions={name: name},
            plain_details=dict(SIDES),
            steered_details=dict(SIDES),
        )
    )


def full_stage(make_stage: StageMaker, engine: Engine, folder: Path, name: str, **options: object) -> Stage:
    """The window on such an engine, a conversation and a record chosen."""
    fill(engine, folder, name)
    return make_stage(engine, **options)


def every_page(stage: Stage, qtbot: QtBot) -> Iterator[tuple[str, QWidget]]:
    """Each page in front, in order, once it has read what it shows."""
    for key in PAGES:
        yield key, open_page(stage, qtbot, key)


def open_page(stage: Stage, qtbot: QtBot, key: str) -> QWidget:
    stage.window.show_page(key)
    page = stage.window.page(key)
    if isinstance(page, LibraryFrame):
        until(qtbot, lambda: page.loaded)
        page.list.list.setCurrentRow(0)
    elif isinstance(page, FeaturesPage):
        until(qtbot, lambda: page.picker.shown())
    elif isinstance(page, RecordsPage):
        until(qtbot, lambda: page.list.count())
        page.list.setCurrentRow(0)
    elif isinstance(page, ChatPage):
        kept = stage.engine.library.conversations.list()[0].id
        stage.window.go(key, conversation=kept)
        until(qtbot, lambda: page.session.conversation_id == kept)
    settle(stage)
    return page


def settle(stage: Stage) -> None:
    """What is waiting in the loop is done: layouts, redraws, deletions."""
    for _ in range(3):
        QApplication.processEvents()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)

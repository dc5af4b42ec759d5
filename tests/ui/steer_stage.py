"""Stages for the pages of profiles, clusters and circuits: the tiny model, made-up SAEs at layers 1 and 2, documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from engine.engine import Engine
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.stage import Stage
from ui.context.page_context import CIRCUITS, CLUSTERS, PROFILES
from ui.steer.circuits import CircuitsPage
from ui.steer.clusters import ClustersPage
from ui.steer.profiles import ProfilesPage

ONE, TWO = ("sae-one", 1), ("sae-two", 2)


def add_saes(engine: Engine, folder: Path) -> None:
    """Put two SAEs of 64 features into the library, for layers 1 and 2."""
    for number, (sae_id, layer) in enumerate((ONE, TWO)):
        engine.saes.import_local(make_sae(folder / sae_id, layer=layer, seed=number), sae_id=sae_id)


def attach_both(engine: Engine) -> None:
    engine.attachments.attach_set([ONE, TWO])


def open_page(make_stage: StageMaker, engine: Engine, key: str, qtbot: QtBot) -> tuple[Stage, QWidget]:
    """The window with one of the pages in front, read."""
    stage = make_stage(engine)
    stage.window.show_page(key)
    page = stage.window.page(key)
    assert isinstance(page, ProfilesPage | ClustersPage | CircuitsPage)
    until(qtbot, lambda: page.loaded)
    return stage, page


def profiles_page(make_stage: StageMaker, engine: Engine, qtbot: QtBot) -> ProfilesPage:
    page = open_page(make_stage, engine, PROFILES, qtbot)[1]
    assert isinstance(page, ProfilesPage)
    return page


def clusters_page(make_stage: StageMaker, engine: Engine, qtbot: QtBot) -> ClustersPage:
    page = open_page(make_stage, engine, CLUSTERS, qtbot)[1]
    assert isinstance(page, ClustersPage)
    return page


def circuits_page(make_stage: StageMaker, engine: Engine, qtbot: QtBot) -> CircuitsPage:
    page = open_page(make_stage, engine, CIRCUITS, qtbot)[1]
    assert isinstance(page, CircuitsPage)
    return page


def member(index: int, strength: float, **more: Any) -> dict[str, Any]:
    return {"feature_idx": index, "strength": strength, **more}


def cluster(name: str = "Harbour", **changes: Any) -> dict[str, Any]:
    """A cluster for the SAE at layer 1; its dial is 0.5 in a range from 0.25 to 1.75."""
    return {
        "kind": "mistudio.cluster-definition",
        "schema_version": "1",
        "name": name,
        "narrative": "Words of the sea.",
        "display_token": "quay",
        "model": {"hf_id": "acme/tiny"},
        "sae": {"mistudio_sae_id": "sae-one", "layer": 1, "n_features": 64},
        "members": [member(1, 4.0, label="ships"), member(2, 6.0, sign=-1)],
        "budget": {"B": 18.5, "formula_id": "demo@1", "intensity": 0.5, "intensity_range": [0.25, 1.75]},
        **changes,
    }


def circuit(name: str = "question → hedge", *, rung: int = 2, first: int = 1, **changes: Any) -> dict[str, Any]:
    """A circuit over layers 1 and 2 with one measured and one unmeasured edge; its dial is 0.5 from 0.25 to 1.5."""
    return {
        "kind": "mistudio.circuit-definition",
        "schema_version": "1",
        "name": name,
        "narrative": "Questions make the answer careful.",
        "saes": [
            {"mistudio_sae_id": "sae-one", "layer": 1, "n_features": 64},
            {"mistudio_sae_id": "sae-two", "layer": 2, "n_features": 64},
        ],
        "members": [
            {"layer": 1, "feature": member(first, 8.0, label="question", max_activation=4.0)},
            {
                "layer": 2,
                "member_kind": "cluster_ref",
                "cluster_name": "hedging",
                "expanded_members": [member(first + 1, 4.0), member(first + 2, -2.0)],
            },
        ],
        "edges": [
            {
                "up": {"layer": 1, "feature_idx": first},
                "down": {"layer": 2, "feature_idx": first + 1},
                "rung": rung,
                "effect_size": 0.25,
                "evidence": {"prompts": 17, "controls": 12, "largest_control": 0.0456},
            },
            {
                "up": {"layer": 1, "feature_idx": first},
                "down": {"layer": 2, "feature_idx": first + 2},
                "rung": rung,
            },
        ],
        "budget": {"intensity": 0.5, "intensity_range": [0.25, 1.5]},
        "calibration": {"onset": 0.25, "sweet_spot": 0.5, "cliff": 1.5},
        **changes,
    }


def raw(document: Any) -> bytes:
    """The document as it arrives."""
    return json.dumps(document, ensure_ascii=False).encode()


def write(folder: Path, name: str, document: Any) -> Path:
    """The document as a file."""
    path = folder / name
    path.write_bytes(raw(document))
    return path


def drop(page: QWidget, *, paths: tuple[Path, ...] = (), text: str = "") -> bool:
    """Drag something over the page and let it fall; whether the page wanted it."""
    data = QMimeData()
    if paths:
        data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    if text:
        data.setText(text)
    where, none = QPointF(40, 40), Qt.KeyboardModifier.NoModifier
    entering = QDragEnterEvent(where.toPoint(), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, none)
    QApplication.sendEvent(page, entering)
    if not entering.isAccepted():
        return False
    falling = QDropEvent(where, Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, none)
    QApplication.sendEvent(page, falling)
    return falling.isAccepted()

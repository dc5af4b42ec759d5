"""A circuit's drawing: nodes and edges by the document, widths and colours by the evidence, keys, and live light."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from engine.documents.circuit import read_circuit
from engine.engine import Engine
from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import chat_of, send, until
from tests.ui.stage import Stage
from tests.ui.steer_stage import ONE, add_saes, attach_both, circuit, open_page, raw
from ui.context.page_context import CIRCUITS
from ui.kit.live_watch import WatchState
from ui.steer.circuit_card import AUTHOR, DRAWING
from ui.steer.circuit_drawing import CircuitDrawing
from ui.steer.circuit_graph import graph_of
from ui.steer.circuit_items import edge_width
from ui.steer.circuits import CircuitsPage


def edge(up: tuple[int, int], down: tuple[int, int], rung: int, effect: float | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {
        "up": {"layer": up[0], "feature_idx": up[1]},
        "down": {"layer": down[0], "feature_idx": down[1]},
        "rung": rung,
    }
    return made if effect is None else {**made, "effect_size": effect}


def three_layers() -> dict[str, Any]:
    """Two features below, one in the middle, one above, one of them named by an edge alone."""
    return {
        "kind": "mistudio.circuit-definition",
        "schema_version": "1",
        "name": "three",
        "saes": [{"layer": 3}, {"layer": 7}, {"layer": 9}],
        "members": [
            {"layer": 3, "feature": {"feature_idx": 1, "strength": 4.0, "label": "question"}},
            {"layer": 3, "feature": {"feature_idx": 2, "strength": -4.0}},
            {"layer": 7, "feature": {"feature_idx": 5, "strength": 2.0}},
            {"layer": 9, "member_kind": "cluster_ref", "cluster_name": "hedging", "cluster_profile_id": "p"},
        ],
        "edges": [
            edge((3, 1), (7, 5), 2, 0.5),
            edge((3, 2), (7, 5), 1, -0.25),
            edge((3, 1), (9, 8), 0),
            edge((7, 5), (9, 8), 3, 4.0),
        ],
    }


@pytest.fixture
def drawing(qtbot: QtBot) -> CircuitDrawing:
    made = CircuitDrawing()
    qtbot.addWidget(made)
    made.resize(900, 600)
    made.show()
    made.show_graph(graph_of(read_circuit(three_layers()), {(7, 5): "a label of the library"}))
    made.activateWindow()
    until(qtbot, made.isActiveWindow)
    return made


def test_every_member_and_every_edge_is_drawn(drawing: CircuitDrawing) -> None:
    nodes = drawing.view.nodes
    assert list(nodes) == ["1@3", "2@3", "5@7", "cluster p@9", "8@9"]
    assert len(drawing.view.edges) == 4
    assert [nodes[key].node.member for key in nodes] == [True, True, True, True, False]
    assert nodes["5@7"].node.name == "a label of the library"
    assert nodes["cluster p@9"].node.said() == "Layer 9: cluster hedging"
    assert nodes["8@9"].node.said() == "Layer 9: #8 no label, named by an edge and not a member"
    assert nodes["2@3"].node.said() == "Layer 3: #2 no label, strength −4 at λ 1"


def test_layers_go_from_bottom_to_top(drawing: CircuitDrawing) -> None:
    nodes = drawing.view.nodes
    heights = [nodes[key].y() for key in ("1@3", "2@3", "5@7", "8@9")]
    assert heights[0] == heights[1] > heights[2] > heights[3]
    # Neighbours stand apart, and a layer of one stands in the middle.
    assert abs(nodes["1@3"].x() - nodes["2@3"].x()) == pytest.approx(256.0)
    assert nodes["5@7"].x() == pytest.approx(0.0)


def test_edges_are_coloured_by_rung_and_as_thick_as_their_effect(drawing: CircuitDrawing) -> None:
    edges = drawing.view.edges
    assert [each.colour for each in edges] == ["accent", "warn", "muted", "good"]
    assert [each.width for each in edges] == [6.0, 3.0, 1.2, 12.0]
    assert [each.dashed for each in edges] == [False, False, True, False]
    assert edge_width(0.001) == 1.6
    assert drawing.legend_words == (
        "this edge: associated",
        "this edge: suggested (attribution-supported)",
        "this edge: causally validated (edge)",
        "this edge: faithfulness-tested (circuit)",
        "thickness: measured effect",
        "bar at its end: negative effect",
        "thin and dashed: effect not measured",
    )


def test_the_legend_says_only_what_is_there(drawing: CircuitDrawing) -> None:
    document = {**three_layers(), "edges": [edge((3, 1), (7, 5), 1)]}
    drawing.show_graph(graph_of(read_circuit(document)))
    assert drawing.legend_words == (
        "this edge: suggested (attribution-supported)",
        "thin and dashed: effect not measured",
    )


def test_tooltips_tell_the_evidence(drawing: CircuitDrawing) -> None:
    assert drawing.view.edges[0].toolTip().splitlines() == [
        "#1 (layer 3) → #5 (layer 7)",
        "this edge: causally validated (edge)",
        "effect 0.5",
        "computed",
    ]
    assert drawing.view.edges[2].toolTip().splitlines()[2] == "no effect measured"


def test_keys_reach_everything(qtbot: QtBot, drawing: CircuitDrawing) -> None:
    view = drawing.view
    view.setFocus()
    qtbot.keyClick(view, Qt.Key.Key_Up)
    assert view.scene().focusItem() is view.nodes["1@3"]
    assert drawing.said.text() == "Layer 3: #1 question, strength +4 at λ 1"
    qtbot.keyClick(view, Qt.Key.Key_Up)
    assert view.scene().focusItem() is view.nodes["5@7"]
    qtbot.keyClick(view, Qt.Key.Key_Down)
    first = view.scene().focusItem()
    qtbot.keyClick(view, Qt.Key.Key_Right if first is view.nodes["1@3"] else Qt.Key.Key_Left)
    assert view.scene().focusItem() in (view.nodes["1@3"], view.nodes["2@3"])
    assert view.scene().focusItem() is not first
    view.scene().setFocusItem(view.nodes["1@3"])
    for _stop in range(5):
        qtbot.keyClick(view, Qt.Key.Key_Tab)
    assert view.scene().focusItem() is view.edges[0]
    assert drawing.said.text().startswith(
        "#1 (layer 3) → #5 (layer 7) · this edge: causally validated (edge) · effect 0.5"
    )


def test_it_zooms_and_fits(qtbot: QtBot, drawing: CircuitDrawing) -> None:
    view = drawing.view
    fitted = view.transform().m11()
    drawing.zoom_in.click()
    assert view.transform().m11() == pytest.approx(fitted * 1.25)
    view.setFocus()
    qtbot.keyClick(view, Qt.Key.Key_Minus)
    qtbot.keyClick(view, Qt.Key.Key_Minus)
    assert view.transform().m11() == pytest.approx(fitted / 1.25)
    drawing.resize(700, 500)
    assert view.transform().m11() == pytest.approx(fitted / 1.25)
    qtbot.keyClick(view, Qt.Key.Key_0)
    shown = view.mapToScene(view.viewport().rect()).boundingRect()
    assert shown.width() >= view.sceneRect().width() - 1 and shown.height() >= view.sceneRect().height() - 1
    assert not view.horizontalScrollBar().isVisible() and not view.verticalScrollBar().isVisible()


def test_nodes_are_as_bright_as_what_fires(drawing: CircuitDrawing) -> None:
    view = drawing.view
    view.light(3, {1: 2.0})
    # The author gave no largest activation: the largest seen so far stands for it.
    assert (view.nodes["1@3"].lit, view.nodes["2@3"].lit) == (1.0, 0.0)
    view.light(3, {1: 1.0, 2: 4.0})
    assert (view.nodes["1@3"].lit, view.nodes["2@3"].lit) == (0.5, 1.0)
    assert "Activation at the last token: 1" in view.nodes["1@3"].toolTip()
    view.light(3, None)
    assert view.nodes["1@3"].value is None and view.nodes["1@3"].lit == 0.0


# --- with the live monitor ---------------------------------------------------------------------------------------------


@pytest.fixture
def engine(make_engine: EngineMaker, tmp_path: Path) -> Engine:
    made = make_engine()
    add_saes(made, tmp_path)
    return made


def opened(make_stage: StageMaker, engine: Engine, qtbot: QtBot) -> tuple[Stage, CircuitsPage]:
    attach_both(engine)
    engine.circuits.import_document(raw(circuit()))
    stage, page = open_page(make_stage, engine, CIRCUITS, qtbot)
    assert isinstance(page, CircuitsPage)
    until(qtbot, lambda: page.view is not None)
    return stage, page


def test_the_monitor_watches_the_members_while_the_drawing_is_open(
    engine: Engine, make_stage: StageMaker, qtbot: QtBot
) -> None:
    before = engine.monitor.state()
    stage, page = opened(make_stage, engine, qtbot)
    until(qtbot, lambda: engine.monitor.state().monitored_features == (1, 2, 3))
    assert engine.monitor.state().enabled and page.watch.state is WatchState.CHOSEN
    send(chat_of(stage, qtbot, tokens=40), qtbot, "one two three")
    until(qtbot, lambda: not stage.window.chat.busy)
    stage.window.show_page(CIRCUITS)
    nodes = page.card.drawing.view.nodes
    until(qtbot, lambda: any(item.value is not None for item in nodes.values()))
    page.card.open_tab(AUTHOR)
    assert engine.monitor.state().enabled is before.enabled is False
    assert engine.monitor.state().monitored_features is None
    page.card.open_tab(DRAWING)
    assert engine.monitor.state().enabled
    stage.window.close()
    assert not engine.monitor.state().enabled


def test_a_choice_of_somebody_else_stands(engine: Engine, make_stage: StageMaker, qtbot: QtBot) -> None:
    attach_both(engine)
    engine.monitor.configure(True, [40], sae_id=ONE[0])
    _stage, page = opened(make_stage, engine, qtbot)
    assert page.watch.state is WatchState.OTHERS
    assert page.card.drawing.said.text().startswith("The monitor watches other features, so nodes do not light up.")
    page.watch_button.click()
    assert engine.monitor.state().monitored_features == (1, 2, 3)
    page.card.open_tab(AUTHOR)
    state = engine.monitor.state()
    assert (state.enabled, state.monitored_features, state.saes) == (True, (40,), (ONE,))
    # And one that is made meanwhile stands too.
    page.card.open_tab(DRAWING)
    page.watch_button.click()
    engine.monitor.configure(True, [41])
    until(qtbot, lambda: page.watch.state is WatchState.OTHERS)
    page.card.open_tab(AUTHOR)
    assert engine.monitor.state().monitored_features == (41,)


def test_a_monitor_that_watches_everything_is_only_listened_to(
    engine: Engine, make_stage: StageMaker, qtbot: QtBot
) -> None:
    attach_both(engine)
    engine.monitor.configure(True, None, top_k=7)
    _stage, page = opened(make_stage, engine, qtbot)
    assert page.watch.state is WatchState.STRONGEST
    assert engine.monitor.state().top_k == 7
    page.card.open_tab(AUTHOR)
    assert engine.monitor.state().enabled and engine.monitor.state().top_k == 7

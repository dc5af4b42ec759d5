"""The window's queue of hand-set changes: each is one change, also where others manage steering at the same moment."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from engine.library.records import ProfileRecord
from tests.conftest import EngineMaker
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.stage import Stage

FIRST, SECOND = ("one", 1), ("two", 2)


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path) -> Stage:
    engine = make_engine()
    for sae_id, layer in (FIRST, SECOND):
        engine.saes.import_local(make_sae(tmp_path / sae_id, layer=layer, seed=layer), sae_id=sae_id)
        engine.attachments.attach(sae_id)
        engine.hand_steering.set_values({3: 2.0}, sae_id=sae_id, layer=layer)
    return make_stage(engine)


def test_switching_everything_off_is_one_change_and_can_be_undone(qtbot: QtBot, stage: Stage) -> None:
    desk, hand = stage.engine.desk, stage.window.hand
    before = desk.state.version
    hand.switch_all(False)
    until(qtbot, lambda: not hand.busy)
    assert desk.live_plan.is_empty
    assert desk.state.version == before + 1
    hand.undo()
    until(qtbot, lambda: not hand.busy)
    assert [each.layer for each in desk.live_plan.sets] == [1, 2]
    assert desk.state.version == before + 2


def test_an_undo_waits_for_who_is_changing_and_then_gives_way_to_it(qtbot: QtBot, stage: Stage) -> None:
    engine, hand = stage.engine, stage.window.hand
    profile = engine.library.profiles.add(ProfileRecord("Mine", sae_id="one", layer=1, steering={5: 1.0}))
    hand.set_value(FIRST, 3, 9.0)
    until(qtbot, lambda: not hand.busy and engine.desk.state.entry(FIRST).values[3] == 9.0)
    assert hand.can_undo
    held, go = threading.Event(), threading.Event()

    def change() -> None:
        held.set()
        go.wait(60)
        engine.profiles.activate(profile.id)

    other = threading.Thread(target=lambda: engine.hand_steering.alone(change))
    other.start()
    assert held.wait(60)
    hand.undo()
    go.set()
    until(qtbot, lambda: not hand.busy)
    other.join(60)
    # The profile came into force meanwhile: the undone values would not be its.
    assert dict(engine.desk.state.entry(FIRST).values) == {5: 1.0}

"""Runs each steering action again and again in processes that are killed, each at a later point of the action.

``python -m tests.engine.actions.steering.killing FOLDER`` prints a JSON object: by action a list with one entry for each
point: what the process was about to do when it was killed (a change of a row, the commit, an announcement), and whether
the rows are then as they were "before" the action, "halfway" (the one action that is two: it imports, then activates),
as they are "after" it, or "torn". The last entry is the process that lived. After each kill the library is opened as at a start of the program, must say that nothing is active, and the
action must work as if nothing had been.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import event

from engine.events import Event
from engine.library.database import Library
from tests.engine.actions.steering.stage import ELEVEN, SIX, Stage, circuit, cluster, make_stage, one_layer, raw


@dataclass(frozen=True)
class Action:
    """SAEs that are attached, what happened before, and what is done; ``halfway`` is the first of two steps."""

    places: tuple[tuple[str, int], ...]
    before: Callable[[Stage], object]
    act: Callable[[Stage], object]
    halfway: Callable[[Stage], object] | None = None


def named_circuit(stage: Stage, name: str) -> str:
    found = stage.library.circuits.by_name(name)
    assert found is not None
    return found.id


def named_profile(stage: Stage, name: str) -> str:
    found = stage.library.profiles.by_name(name)
    assert found is not None
    return found.id


def nothing(stage: Stage) -> None:
    """Nothing happened before."""


def activate_whole(stage: Stage) -> None:
    stage.circuits.activate(named_circuit(stage, "whole"))


def activate_harbour(stage: Stage) -> None:
    stage.clusters.activate(named_profile(stage, "Harbour"))


NEW = raw(cluster("new"))

ACTIONS: dict[str, Action] = {
    "import a cluster and activate it": Action(
        (SIX,),
        nothing,
        lambda stage: stage.clusters.import_document(NEW, activate=True),
        lambda stage: stage.clusters.import_document(NEW),
    ),
    "activate a profile over a circuit": Action(
        (SIX, ELEVEN), activate_whole, lambda stage: stage.profiles.activate(named_profile(stage, "calm"))
    ),
    "activate a circuit over a cluster": Action((SIX, ELEVEN), activate_harbour, activate_whole),
    "activate a circuit beside another": Action(
        (SIX, ELEVEN),
        activate_whole,
        lambda stage: stage.circuits.activate(named_circuit(stage, "other"), allow_layer_overlap=True),
    ),
    "activate a slice over a cluster": Action((SIX,), activate_harbour, activate_whole),
    "turn a cluster's dial": Action((SIX,), activate_harbour, lambda stage: stage.clusters.set_active_intensity(1)),
    "turn a circuit's dial": Action((SIX, ELEVEN), activate_whole, lambda stage: stage.circuits.set_intensity(1)),
    "deactivate a slice": Action(
        (SIX,), activate_whole, lambda stage: stage.circuits.deactivate(named_circuit(stage, "whole"))
    ),
    "delete a slice's cluster": Action(
        (SIX,), activate_whole, lambda stage: stage.clusters.delete(named_profile(stage, "whole [L6 slice]"))
    ),
}


def prepare(path: Path) -> None:
    with Library.open(path) as library:
        stage = make_stage(library)
        stage.circuits.import_document(raw(circuit("whole")))
        stage.circuits.import_document(raw(one_layer("other", 11, 9)))
        stage.clusters.import_document(raw(cluster()))
        stage.profiles.create("calm", steering={0: 1.0}, sae_id="sae_b", layer=11)


def rows(library: Library) -> list[Any]:
    """What the library says, by name: ids are another one's each time."""
    names = {each.id: each.name for each in library.profiles.list()}
    profiles = [
        (each.name, each.is_active, each.intensity, each.bound, each.sae_id, each.layer, each.warnings)
        for each in library.profiles.list()
    ]
    circuits = [
        (
            each.name,
            each.is_active,
            each.serving_mode,
            each.intensity,
            each.serveable,
            names.get(each.slice_profile_id or ""),
        )
        for each in sorted(library.circuits.list().circuits, key=lambda each: each.name)
    ]
    claims = [(each.circuit_name, each.layer, each.composed, each.steering_keys) for each in library.claims.live()]
    return [profiles, circuits, claims]


def die_at(stage: Stage, number: int, report: int) -> None:
    """Kill this process before its ``number``-th point and write to ``report`` which one that is."""
    seen = 0
    changed: list[str] = []  # a transaction that only reads has a commit too

    def reached(point: str) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            os.write(report, point.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def before_statement(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        words = statement.split()
        if words[0] in ("INSERT", "UPDATE", "DELETE"):
            changed.append(statement)
            reached(f"{words[0]} {words[1 if words[0] == 'UPDATE' else 2]}".lower())

    def before_commit(_connection: Any) -> None:
        if changed:
            reached("commit")

    def announced(each: Event) -> None:
        reached(each.name)

    engine = stage.library._sessions._engine
    event.listen(engine, "before_cursor_execute", before_statement)
    event.listen(engine, "commit", before_commit)
    stage.events.subscribe(announced)


def started(path: Path, action: Action) -> Stage:
    """As at a start of the program: rows put right, nothing steers, the SAEs attached anew."""
    library = Library.open(path)
    assert library.reset_after_restart() == ()
    assert library.profiles.active() is None and library.circuits.active() == [] and library.claims.live() == []
    return make_stage(library, *action.places, CIRCUIT_ALLOW_CONCURRENT=True)


def lived(folder: Path, action: Action, *steps: Callable[[Stage], object]) -> list[Any]:
    """What the rows say after steps that nobody disturbs."""
    path = folder / "lived.db"
    shutil.copy(folder / "before.db", path)
    stage = started(path, action)
    action.before(stage)
    for step in steps:
        step(stage)
    stage.agrees()
    said = rows(stage.library)
    stage.library.close()
    return said


def run(folder: Path, action: Action) -> list[tuple[str, str]]:
    known = {"before": lived(folder, action), "after": lived(folder, action, action.act)}
    if action.halfway is not None:
        known["halfway"] = lived(folder, action, action.halfway)
    found: list[tuple[str, str]] = []
    while not found or found[-1][0] != "done":
        path = folder / "during.db"
        shutil.copy(folder / "before.db", path)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            stage = started(path, action)
            action.before(stage)
            die_at(stage, len(found) + 1, writing)
            action.act(stage)
            os.write(writing, b"done")
            os.kill(os.getpid(), signal.SIGKILL)
        os.close(writing)
        os.waitpid(child, 0)
        with os.fdopen(reading) as reported:
            point = reported.read()
        if not point:
            raise RuntimeError("the action failed")
        with Library.open(path) as left:
            said = rows(left)
        found.append((point, next((name for name, each in known.items() if each == said), "torn")))
        again = started(path, action)
        action.before(again)
        action.act(again)
        again.agrees()
        again.library.close()
    return found


if __name__ == "__main__":
    where = Path(sys.argv[1])
    prepare(where / "before.db")
    print(json.dumps({name: run(where, action) for name, action in ACTIONS.items()}))

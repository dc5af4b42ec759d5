"""Runs each action on SAEs again and again in processes that are killed, each at a later point of it.

``python -m tests.engine.actions.saes.killing FOLDER`` prints a JSON object: by action a list with, for each point, what
the process was about to do when it was killed and what a new start finds: ``before`` or ``after``, or what is wrong.
A process of its own, since forking needs one without threads.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers  # noqa: F401 - so that the forks need not
from sqlalchemy import event

from engine.actions.models.importing import import_local_model
from engine.actions.written import MARKER
from engine.config import EngineSettings
from engine.engine import Engine
from engine.events import SaeAttached, SaeDetached, SteeringUpdated
from engine.library.database import Library
from tests.made_saes import make_sae
from tests.tiny import build_checkpoint

SOURCE = "source"
"""Folder of the SAE that is imported."""


class Points:
    """Counts what an action does to files, rows and the desk; at the ``number``-th it says what it is and is killed."""

    def __init__(self, number: int, report: int, engine: Engine, folder: str = "saes") -> None:
        self._number = number
        self._report = report
        self._seen = 0
        self._root = str(engine.library.path.parent / folder)
        sys.addaudithook(self._file)
        event.listen(engine.library._sessions._engine, "before_cursor_execute", self._statement)
        event.listen(engine.library._sessions._engine, "commit", self._commit)
        self._writing = False
        engine.events.subscribe(lambda each: self._reached(each.name), SteeringUpdated, SaeAttached, SaeDetached)

    def _reached(self, point: str) -> None:
        self._seen += 1
        if self._seen == self._number:
            os.write(self._report, point.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def _file(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name not in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
            return
        if name == "open" and not isinstance(arguments[0], int) and not arguments[2] & (os.O_WRONLY | os.O_CREAT):
            return
        path = os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes | os.PathLike) else ""
        point = name.removeprefix("os.")
        if path.startswith(self._root):
            inside = re.sub(r"[.](importing|removed)-[^/]+", r".\1", os.path.relpath(path, self._root))
            self._reached(f"{point} {inside}")
        elif point in ("remove", "rmdir") and not os.path.isabs(path):
            # A tree is removed by names relative to an open folder, in the order the file system gives them.
            self._reached(point)

    def _statement(self, _connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        words = statement.split()
        if words[0] in ("INSERT", "UPDATE", "DELETE"):
            self._writing = True
            self._reached(f"{words[0]} {words[1 if words[0] == 'UPDATE' else 2]}".lower())

    def _commit(self, _connection: Any) -> None:
        if self._writing:
            self._writing = False
            self._reached("commit")


Action = Callable[[Engine, Path], object]


def imported(engine: Engine, folder: Path) -> None:
    engine.saes.import_local(folder / SOURCE, sae_id="sea", copy=True)


def by_reference(engine: Engine, folder: Path) -> None:
    engine.saes.import_local(folder / SOURCE, sae_id="sea")


def nothing(engine: Engine, folder: Path) -> None: ...


def attached(engine: Engine, folder: Path) -> None:
    engine.attachments.attach("sea", 1)
    engine.hand_steering.set_value(1, 1.0)


ACTIONS: dict[str, tuple[Action, Action, bool]] = {
    "import": (nothing, imported, False),
    "import again": (by_reference, imported, False),
    "delete": (imported, lambda engine, folder: engine.saes.delete("sea"), False),
    "attach": (imported, lambda engine, folder: engine.attachments.attach("sea", 1), True),
    "detach": (
        lambda engine, folder: (imported(engine, folder), attached(engine, folder)),
        lambda engine, folder: engine.attachments.detach("sea"),
        True,
    ),
}
"""What there is before, what is done, and whether a model is loaded."""


def start(data: Path, model: Path | None) -> Engine:
    library = Library.open(data / "millm.db")
    engine = Engine(EngineSettings(DTYPE="float32", CPU_THREADS=1), library)
    if model is not None:
        engine.start()
        known = library.models.list()
        found = known[0] if known else import_local_model(library, engine.events, model)
        engine.loader.load(found.id).result(120)
    return engine


def found_by_a_new_start(data: Path, folder: Path, before: Any) -> Any:
    """What the files are like, then what a start makes of them: ``before``, ``after`` or what is wrong."""
    whole = contents(folder / SOURCE)
    for entry in (data / "saes").iterdir() if (data / "saes").exists() else ():
        if not entry.name.startswith(".") and contents(entry) != whole:
            return f"half-made: {entry.name} with {sorted(contents(entry))}"
    with Library.open(data / "millm.db") as library:
        library.reset_after_restart()
        engine = Engine(EngineSettings(), library)
        engine.saes.sweep()
        now = state(library, data)
        rows = {each.id: each for each in library.saes.list()}
        copies = {sae_id for sae_id, row in rows.items() if row.copied}
        if copies != set(now["folders"]):
            return f"rows {sorted(rows)} and folders {now['folders']} do not agree"
        if any(row.status.value != "cached" or not Path(str(row.local_path)).is_file() for row in rows.values()):
            return "a row without its files, or one that says it is attached"
        if any(each.locked for each in library.models.list()):
            return "a model is still locked"
        imported(engine, folder)
        if state(library, data)["folders"] != ["sea"] or len(library.saes.list()) != 1:
            return "the import does not work any more"
    return "before" if now == before else "after"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != MARKER
    }


def state(library: Library, data: Path) -> dict[str, Any]:
    root = data / "saes"
    return {
        "rows": [(each.id, each.copied) for each in library.saes.list()],
        "folders": sorted(entry.name for entry in root.iterdir()) if root.exists() else [],
        "hidden": sorted(path.name for path in root.rglob(".*")) if root.exists() else [],
    }


def run(folder: Path, name: str) -> list[tuple[str, Any]]:
    prepare, action, with_model = ACTIONS[name]
    found: list[tuple[str, Any]] = []
    while not found or found[-1][0] != "done":
        data = folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)
            engine = start(data, folder / "model" if with_model else None)
            prepare(engine, folder)
            before = state(engine.library, data)
            os.write(writing, json.dumps(before).encode() + b"\n")
            Points(len(found) + 1, writing, engine)
            action(engine, folder)
            os.write(writing, b"done")
            # Not closed: that would tidy up, as a program that is killed cannot.
            os.kill(os.getpid(), signal.SIGKILL)
        os.close(writing)
        os.waitpid(child, 0)
        with os.fdopen(reading) as reported:
            before_text, _, point = reported.read().partition("\n")
        if not point:
            raise RuntimeError(f"{name} failed")
        before = json.loads(before_text)
        before["rows"] = [tuple(row) for row in before["rows"]]
        found.append((point, found_by_a_new_start(data, folder, before)))
    return found


if __name__ == "__main__":
    place = Path(sys.argv[1])
    torch.set_num_threads(1)
    make_sae(place / SOURCE)
    build_checkpoint(place / "model")
    print(json.dumps({name: run(place, name) for name in sys.argv[2:] or ACTIONS}))

"""Runs each action on model files again and again in processes that are killed, each at a later point of it.

``python -m tests.engine.actions.killing FOLDER`` prints a JSON object: by action a list with, for each point, what the
process was about to do when it was killed and what a new start finds: ``before`` or ``after``, or what is wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers  # noqa: F401 - so that the forks need not

from engine.config import EngineSettings
from engine.engine import Engine
from engine.library.database import Library
from tests.engine.actions.saes.killing import Points
from tests.tiny import build_checkpoint

THEIRS = "my notes.txt"


def imported(engine: Engine, folder: Path) -> None:
    engine.models.import_local(folder / "source", name="sea", copy=True)


def with_a_file_of_ones_own(engine: Engine, folder: Path) -> None:
    imported(engine, folder)
    (engine.library.path.parent / "models" / "sea" / THEIRS).write_text("not to be lost")


def by_reference(engine: Engine, folder: Path) -> None:
    mine = shutil.copytree(folder / "source", engine.library.path.parent / "models" / "mine")
    engine.models.import_local(mine)


def deleted(engine: Engine, folder: Path) -> None:
    (only,) = engine.models.list()
    engine.models.delete(only.id)


Action = Callable[[Engine, Path], object]

ACTIONS: dict[str, tuple[Action, Action]] = {
    "import": (lambda engine, folder: None, imported),
    "delete": (imported, deleted),
    "delete beside a person's file": (with_a_file_of_ones_own, deleted),
    "delete a person's own": (by_reference, deleted),
}
"""What there is before, and what is done."""


def state(library: Library) -> dict[str, Any]:
    models = library.path.parent / "models"
    return {
        "rows": [[each.name, each.local_path] for each in library.models.list()],
        "files": sorted(path.relative_to(models).as_posix() for path in models.rglob("*")) if models.exists() else [],
    }


def found_by_a_new_start(data: Path, folder: Path, before: Any) -> str:
    whole = sorted(path.name for path in (folder / "source").iterdir())
    with Library.open(data / "millm.db") as library:
        library.reset_after_restart()
        Engine(EngineSettings(), library).models.sweep()
        now = state(library)
        for name, place in now["rows"]:
            lacking = set(whole) - set(os.listdir(place))
            if lacking:
                return f"the row {name} lacks {sorted(lacking)}"
        owned = {Path(place).name for _, place in now["rows"]}
        strange = [each for each in now["files"] if each.split("/")[0] not in owned | {"mine"}]
        if [each for each in strange if each not in ("sea", f"sea/{THEIRS}")]:
            return f"left over: {strange}"
        if [each for each in now["files"] if "/." in f"/{each}"]:
            return f"left over: {now['files']}"
    if "sea/" + THEIRS in before["files"] and "sea/" + THEIRS not in now["files"]:
        return "a person's file is gone"
    if "mine" in before["files"] and [each for each in before["files"] if each not in now["files"]]:
        return "a person's model is gone"
    return "before" if now == before else "after"


def run(folder: Path, name: str) -> list[tuple[str, str]]:
    prepare, action = ACTIONS[name]
    found: list[tuple[str, str]] = []
    while not found or found[-1][0] != "done":
        data = folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        (data / "models").mkdir(parents=True)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            engine = Engine(EngineSettings(), Library.open(data / "millm.db"))
            prepare(engine, folder)
            os.write(writing, json.dumps(state(engine.library)).encode() + b"\n")
            Points(len(found) + 1, writing, engine, "models")
            action(engine, folder)
            os.write(writing, b"done")
            # Not closed: that would tidy up, as a program that is killed cannot.
            os.kill(os.getpid(), signal.SIGKILL)
        os.close(writing)
        os.waitpid(child, 0)
        with os.fdopen(reading) as reported:
            before, _, point = reported.read().partition("\n")
        if not point:
            raise RuntimeError(f"{name} failed")
        found.append((point, found_by_a_new_start(data, folder, json.loads(before))))
    return found


if __name__ == "__main__":
    place = Path(sys.argv[1])
    torch.set_num_threads(1)
    build_checkpoint(place / "source")
    print(json.dumps({name: run(place, name) for name in sys.argv[2:] or ACTIONS}))

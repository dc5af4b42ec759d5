"""Runs each step of the library again and again in processes that are killed, each at a later point of the step.

``python -m tests.engine.library.killing FOLDER`` prints a JSON object: by step a list with one entry for each point,
what the process was about to do when it was killed, and whether the library is as it was before the step. The last
entry is the process that lived: ``["done", false]``. A process of its own, since forking needs one without threads.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import event

from engine.library.database import Library
from engine.library.records import (
    AttachItem,
    CircuitRecord,
    FeatureLabel,
    ProfileKind,
    ProfileRecord,
    SaeRecord,
    SaeSource,
    SaeStatus,
    ServingMode,
)


def prepare(path: Path) -> None:
    with Library.open(path) as library:
        library.saes.add(SaeRecord("sea", "sea", SaeSource.LOCAL, d_sae=4096, status=SaeStatus.ATTACHED))
        library.saes.add(SaeRecord("failed", "failed", SaeSource.HUGGINGFACE, status=SaeStatus.ERROR))
        library.labels.upsert("sea", [FeatureLabel(n, "old") for n in range(100)])
        library.attach_sets.save("both", [AttachItem("sea", 3)])
        old = library.profiles.add(ProfileRecord("old", steering={1: 1.0}))
        library.profiles.set_active(old.id)
        library.profiles.add(ProfileRecord("next", source_kind=ProfileKind.CLUSTER, cluster_meta="{}", bound=False))
        for number, name in enumerate(("a", "b")):
            circuit = library.circuits.add(CircuitRecord(name, "{}"))
            library.claims.claim(circuit.id, {6: [number], 7 + number: [number]}, composed=True)
            library.circuits.set_active(circuit.id, ServingMode.FULL)


def circuit_id(library: Library, name: str) -> str:
    found = library.circuits.by_name(name)
    assert found is not None
    return found.id


def bind_and_activate(library: Library) -> None:
    profile = library.profiles.by_name("next")
    assert profile is not None
    library.profiles.set_active(profile.id, bound=True, sae_id="sea", layer=3)


STEPS: dict[str, Callable[[Library], object]] = {
    "retry_sae": lambda library: library.saes.add_or_find(
        SaeRecord("failed", "again", SaeSource.LOCAL, files_sha256="aa"), replace_failed=True
    ),
    "labels": lambda library: library.labels.upsert("sea", [FeatureLabel(n, "new") for n in range(2500)]),
    "attach": lambda library: library.saes.set_statuses(["sea", "failed"], SaeStatus.CACHED),
    "remove_sae": lambda library: library.saes.remove("sea"),
    "attach_set": lambda library: library.attach_sets.save("both", [AttachItem("sea", 4)]),
    "import_profile": lambda library: library.profiles.add(ProfileRecord("old"), rename=True),
    "activate_profile": bind_and_activate,
    "import_circuit": lambda library: library.circuits.add(CircuitRecord("a", "{}"), rename=True),
    "claim": lambda library: library.claims.claim(circuit_id(library, "a"), {6: [5], 9: [5]}, composed=True),
    "deactivate_circuit": lambda library: library.circuits.deactivate(circuit_id(library, "a")),
    "remove_circuit": lambda library: library.circuits.remove(circuit_id(library, "a")),
}


def die_at(library: Library, number: int, report: int) -> None:
    """Kill this process before its ``number``-th change of a row, commits counted, and write to ``report`` which."""
    seen = 0

    def reached(point: str) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            os.write(report, point.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def before_statement(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        words = statement.split()
        if words[0] in ("INSERT", "UPDATE", "DELETE"):
            reached(f"{words[0]} {words[1 if words[0] == 'UPDATE' else 2]}".lower())

    event.listen(library._sessions._engine, "before_cursor_execute", before_statement)

    def before_commit(_connection: Any) -> None:
        if seen:  # not of the reading that came before
            reached("commit")

    event.listen(library._sessions._engine, "commit", before_commit)


def content(path: Path) -> list[list[tuple[Any, ...]]]:
    """Every row of every table, after the file was found to be sound."""
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
        tables = [row[0] for row in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return [raw.execute(f"SELECT * FROM {table}").fetchall() for table in tables]


def run(folder: Path, step: Callable[[Library], object]) -> list[tuple[str, bool]]:
    before = content(folder / "before.db")
    found: list[tuple[str, bool]] = []
    while not found or found[-1][0] != "done":
        path = folder / "during.db"
        shutil.copy(folder / "before.db", path)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            library = Library.open(path)
            die_at(library, len(found) + 1, writing)
            step(library)
            os.write(writing, b"done")
            # Not closed: that would fold the log into the file, as a program that is killed cannot.
            os.kill(os.getpid(), signal.SIGKILL)
        os.close(writing)
        os.waitpid(child, 0)
        with os.fdopen(reading) as reported:
            point = reported.read()
        if not point:
            raise RuntimeError("the step failed")
        Library.open(path).close()  # which also folds the log of the dead process in
        found.append((point, content(path) == before))
    return found


if __name__ == "__main__":
    prepare(Path(sys.argv[1]) / "before.db")
    print(json.dumps({name: run(Path(sys.argv[1]), step) for name, step in STEPS.items()}))

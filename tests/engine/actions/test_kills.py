"""A process killed anywhere while a model's files are written or removed leaves whole models, and nothing besides."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

ACTIONS = {
    "import": "insert models",
    "delete": "delete models",
    "delete beside a person's file": "delete models",
    "delete a person's own": "delete models",
}
"""By action the change of the row: killed before its commit all is as before, and after it the action has happened."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-m", "tests.engine.actions.killing", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=280)
    assert ran.returncode == 0, ran.stderr
    results: dict[str, list[list[str]]] = json.loads(ran.stdout.splitlines()[-1])
    return results


@pytest.mark.skipif(sys.platform == "win32", reason="forks and kills by signal")
@pytest.mark.parametrize("action", ACTIONS)
def test_a_killed_action_leaves_whole_models(found: dict[str, list[list[str]]], action: str) -> None:
    points = [point for point, _ in found[action]]
    change = points.index(ACTIONS[action])
    assert points[change + 1] == "commit"
    assert [outcome for _, outcome in found[action]] == [
        *["before"] * (change + 2),
        *["after"] * (len(points) - change - 2),
    ]
    assert len(points) > change + 2

"""A process killed anywhere inside a steering action leaves a library that a start puts right, and that works on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]

COMMITTED = ["steering:update", "circuits:changed", "clusters:changed", "profiles:changed"]

POINTS = {
    "activate a profile over a circuit": (
        ["update circuits", "update circuit_claims", "update profiles", "update profiles"],
        ["steering:update", "profiles:changed", "clusters:changed", "circuits:changed"],
    ),
    "activate a circuit over a cluster": (
        ["insert circuit_claims", "insert circuit_claims", "update profiles", "update circuits"],
        COMMITTED,
    ),
    "activate a circuit beside another": (
        ["update circuit_claims", "insert circuit_claims", "update circuits"],
        COMMITTED,
    ),
    "activate a slice over a cluster": (
        [
            "insert circuit_claims",
            "insert profiles",
            "update profiles",
            "update profiles",
            "update circuits",
            "update circuits",
        ],
        COMMITTED,
    ),
    "turn a cluster's dial": (["update profiles"], ["steering:update", "clusters:changed"]),
    "turn a circuit's dial": (["update circuits"], ["steering:update", "circuits:changed"]),
    "deactivate a slice": (
        ["update profiles", "update circuits", "update circuit_claims"],
        ["steering:update", "circuits:changed", "clusters:changed"],
    ),
    "delete a slice's cluster": (
        ["update circuits", "update circuit_claims", "update profiles", "delete profiles"],
        ["steering:update", "clusters:changed", "circuits:changed"],
    ),
}
"""By action: the changes inside its one transaction, and what is announced after it."""

EXPECTED = {
    **{
        action: [
            *([point, "before"] for point in (*changes, "commit")),
            *([point, "after"] for point in (*announced, "done")),
        ]
        for action, (changes, announced) in POINTS.items()
    },
    "import a cluster and activate it": [
        ["insert profiles", "before"],
        ["commit", "before"],
        ["update profiles", "halfway"],
        ["update profiles", "halfway"],
        ["commit", "halfway"],
        ["steering:update", "after"],
        ["profiles:changed", "after"],
        ["clusters:changed", "after"],
        ["clusters:changed", "after"],
        ["done", "after"],
    ],
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    command = [sys.executable, "-m", "tests.engine.actions.steering.killing", str(tmp_path_factory.mktemp("killed"))]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # a process that forks has one thread
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=alone, timeout=280)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


@pytest.mark.skipif(sys.platform == "win32", reason="forks and kills by signal")
@pytest.mark.parametrize("action", EXPECTED)
def test_a_killed_action_is_done_or_not(found: dict[str, list[list[str]]], action: str) -> None:
    assert found[action] == EXPECTED[action]
    assert set(found) == set(EXPECTED)

"""A process killed anywhere inside an action leaves whole files and a library that agrees with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]

BEFORE, AFTER = "before", "after"

COPIED = [
    "mkdir .",
    "mkdir .importing",
    "mkdir .importing/files",
    "open .importing/files/sae_weights.safetensors",
    "mkdir .importing/files",
    "open .importing/files/cfg.json",
    "mkdir .importing",
    "rename .importing/files",
    "open .importing/sea/.unsettled",
    "insert state",
    "commit",
    "rename .importing/sea",
]
"""What happens to files before the row is written."""

SETTLED = ["remove sea/.unsettled", "rmdir .importing", "done"]

POINTS = {
    "import": ([*COPIED, "insert saes", "commit"], SETTLED),
    "import again": ([*COPIED, "update saes", "commit"], SETTLED),
    "delete": (
        ["open sea/.unsettled", "delete saes", "commit"],
        [
            "delete state",
            "commit",
            "mkdir .removed",
            "rename sea",
            "remove",
            "remove",
            "remove",
            "rmdir",
            "rmdir .removed",
            "done",
        ],
    ),
    # After a start nothing is attached, whatever was.
    "attach": (["update saes", "commit", "update models", "commit", "steering:update", "sae:attached", "done"], []),
    "detach": (["update saes", "commit", "update models", "commit", "steering:update", "sae:detached", "done"], []),
}
"""By action the points at which it is killed: those after which a start finds things as before it, and as after it."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-m", "tests.engine.actions.saes.killing", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=280)
    assert ran.returncode == 0, ran.stderr
    results: dict[str, list[list[str]]] = json.loads(ran.stdout.splitlines()[-1])
    return results


@pytest.mark.skipif(sys.platform == "win32", reason="forks and kills by signal")
@pytest.mark.parametrize("action", POINTS)
def test_a_killed_action_leaves_a_consistent_library(found: dict[str, list[list[str]]], action: str) -> None:
    before, after = POINTS[action]
    assert found[action] == [*([point, BEFORE] for point in before), *([point, AFTER] for point in after)]

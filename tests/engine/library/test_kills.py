"""A process killed anywhere inside a step leaves the library as it was before it; killed after it, as it is then."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

POINTS = {
    "retry_sae": ["delete saes", "insert saes"],
    "labels": ["insert sae_labels", "insert sae_labels", "insert sae_labels"],
    "attach": ["update saes", "update saes"],
    "remove_sae": ["delete saes"],
    "attach_set": ["update attach_sets"],
    "import_profile": ["insert profiles"],
    "activate_profile": ["update profiles", "update profiles"],
    "import_circuit": ["insert circuits"],
    "claim": ["update circuit_claims", "update circuit_claims", "insert circuit_claims"],
    "deactivate_circuit": ["update circuits", "update circuit_claims", "update circuit_claims"],
    "remove_circuit": ["update circuit_claims", "update circuit_claims", "delete circuits"],
}


@pytest.mark.skipif(sys.platform == "win32", reason="forks and kills by signal")
def test_a_killed_step_is_all_or_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.engine.library.killing", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found == {
        step: [*([point, True] for point in points), ["commit", True], ["done", False]]
        for step, points in POINTS.items()
    }

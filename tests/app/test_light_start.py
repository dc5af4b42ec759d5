"""What the window imports before it paints."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("hypercorn", "llama_cpp", "quart", "torch", "transformers", "werkzeug")


def test_the_window_paints_before_the_heavy_libraries_come() -> None:
    code = f"import app.gui, sys; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"

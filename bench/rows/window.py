"""The window: how soon it is painted, and the longest time its event loop stands still while the engine works."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from bench.harness import Row


def measure(model: Path, rounds: int) -> list[Row]:
    """Each round is a program of its own, started as a person starts it. The peer of each figure is its limit."""
    found = [_probe(model) for _ in range(max(1, rounds // 2))]

    def row(name: str, key: str, limit: float, unit: str, note: str = "") -> Row:
        figures = [each[key] for each in found]
        middle = median(figures)
        spread = (max(figures) - min(figures)) / middle if middle else 0.0
        return Row(name, middle, limit, middle / limit, 1.0, "lower", unit, note, spread)

    return [
        row("longest stall of the window while generating, or loading a second model ÷ 100 ms", "stall_ms", 100, "ms"),
        row(
            "the same during the first import of torch and transformers ÷ 600 ms",
            "import_stall_ms",
            600,
            "ms",
            "from the first paint until the first model is loaded",
        ),
        row("start of the process to a painted window ÷ 3 s", "paint_s", 3, "s"),
    ]


def _probe(model: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "bench.window_probe", "--data-dir", folder, "--checkpoint", str(model)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    if done.returncode != 0:
        raise RuntimeError(f"the window's probe failed: {done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures

"""The window: how soon it is painted, and the longest time its event loop stands still while the engine works."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bench.harness import Row
from bench.window_stage import build

STALLS = (
    ("longest stall of the window while generating ÷ 100 ms", "generate", 100),
    ("longest stall of the window while loading a second model ÷ 100 ms", "load", 100),
    ("longest stall of the window while bringing in and attaching 3 SAEs ÷ 100 ms", "attach", 100),
    ("longest stall of the window while importing a cluster and a circuit ÷ 100 ms", "document", 100),
    ("longest stall of the window during the first import of torch and transformers ÷ 600 ms", "import", 600),
)
"""What each figure is called, its key in what the probe prints, and its limit in ms. The first two are one row of the
design.
"""


def measure(model: Path, rounds: int) -> list[Row]:
    """Each round is a program of its own, started as a person starts it. The peer of each figure is its limit."""
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), model)
        found = [_probe(model, Path(folder)) for _ in range(max(1, rounds // 2))]

    def row(name: str, figures: list[float], limit: float, unit: str, note: str = "") -> Row:
        middle = median(figures)
        spread = (max(figures) - min(figures)) / middle if middle else 0.0
        return Row(name, middle, limit, middle / limit, 1.0, "lower", unit, note, spread)

    return [
        *(
            row(name, [each[key]["total"] for each in found], limit, "ms", _parts([each[key] for each in found]))
            for name, key, limit in STALLS
        ),
        row("start of the process to a painted window ÷ 3 s", [each["paint_s"] for each in found], 3, "s"),
    ]


def _parts(stalls: list[dict[str, float]]) -> str:
    """What the stall in the middle was made of."""
    middle = sorted(stalls, key=lambda stall: stall["total"])[len(stalls) // 2]
    return (
        f"{middle['own']:.0f} ms the window's own work, {middle['waited']:.0f} for the interpreter or a lock, "
        f"{middle['queued']:.0f} without a core"
    )


def _probe(model: Path, stage: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "bench.window_probe", "--data-dir", folder),
                *("--checkpoint", str(model), "--stage", str(stage)),
            ],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    if done.returncode != 0:
        raise RuntimeError(f"the window's probe failed: {done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures

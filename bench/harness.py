"""Timing pairs fairly: ours and the peer take turns, so that both see the same machine; medians are compared."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

OUT = Path(__file__).parent / "out" / "latest.json"


@dataclass(frozen=True)
class Row:
    """One figure. ``ratio`` is ours ÷ peer; ``better`` says which way is good; ``spread`` is (max − min) ÷ median of
    ours.
    """

    row: str
    ours: float
    peer: float
    ratio: float
    target: float
    better: str
    unit: str
    note: str
    spread: float = 0.0


def compare(
    row: str,
    ours: Callable[[], float],
    peer: Callable[[], float],
    *,
    target: float,
    unit: str,
    better: str = "higher",
    note: str = "",
    rounds: int = 5,
) -> Row:
    """Measure ``ours`` and ``peer`` (each returns a figure in ``unit``) in turn, after one unmeasured round of each."""
    ours()
    peer()
    mine: list[float] = []
    theirs: list[float] = []
    for turn in range(rounds):
        # Who goes first changes, so that a machine that slows down over time favours nobody.
        for measure, figures in ((ours, mine), (peer, theirs)) if turn % 2 == 0 else ((peer, theirs), (ours, mine)):
            figures.append(measure())
    middle, other = median(mine), median(theirs)
    return Row(row, middle, other, middle / other, target, better, unit, note, spread=(max(mine) - min(mine)) / middle)


def machine() -> dict[str, Any]:
    """Where the figures were taken: processor, versions, commit."""
    import psutil
    import torch
    import transformers

    return {
        "processor": platform.processor() or platform.machine(),
        "cores": psutil.cpu_count(logical=False),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "commit": _commit(),
    }


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def report(rows: list[Row]) -> str:
    """Write ``latest.json`` and return the table in Markdown."""
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"machine": machine(), "rows": [asdict(row) for row in rows]}, indent=2) + "\n")
    lines = ["| figure | ours | peer | ratio | target | spread | note |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        good = row.ratio >= row.target if row.better == "higher" else row.ratio <= row.target
        sign = "≥" if row.better == "higher" else "≤"
        lines.append(
            f"| {row.row} | {row.ours:.4g} {row.unit} | {row.peer:.4g} {row.unit} | {row.ratio:.3f} "
            f"{'met' if good else 'MISSED'} | {sign} {row.target:g} | {row.spread:.0%} | {row.note} |"
        )
    return "\n".join(lines)

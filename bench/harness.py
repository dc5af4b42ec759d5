"""Timing pairs fairly: ours and the peer take turns, so that both see the same machine; medians are compared."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

OUT = Path(__file__).parent / "out" / "latest.json"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
"""What a page has around the place where the figures go."""


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


@dataclass
class Table:
    """Figures that have no peer, as they are."""

    title: str
    columns: tuple[str, ...]
    lines: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        """One line."""
        self.lines.append(tuple(str(cell) for cell in cells))

    def markdown(self) -> str:
        """The table under its title."""
        lines = [f"**{self.title}**", "", _line(self.columns), _line(["---"] * len(self.columns))]
        return "\n".join([*lines, *(_line(cells) for cells in self.lines)])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


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
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": _processor(),
        "cores": psutil.cpu_count(logical=False),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "llama-cpp-python": _version("llama-cpp-python"),
        "commit": _commit(),
        "load before": " ".join(f"{figure:.1f}" for figure in os.getloadavg()) if hasattr(os, "getloadavg") else "",
    }


def _processor() -> str:
    """The processor's own name where the system tells it, else its kind."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return platform.processor() or platform.machine()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _commit() -> str:
    """The commit, and whether files differ from it."""
    found = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=False)
    return (found.stdout.strip() or "unknown") + (" with changes" if changed.stdout.strip() else "")


def report(rows: list[Row], tables: list[Table], where: dict[str, Any], missing: list[str]) -> str:
    """Write ``latest.json`` and return everything in Markdown. ``missing`` says what could not be measured, and why."""
    OUT.parent.mkdir(exist_ok=True)
    found = {
        "machine": where,
        "rows": [asdict(row) for row in rows],
        "tables": [asdict(table) for table in tables],
        "missing": missing,
    }
    OUT.write_text(json.dumps(found, indent=2) + "\n")
    lines = [", ".join(f"{name} {value}" for name, value in where.items()), ""]
    lines += ["| figure | ours | peer | ratio | target | spread | note |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        good = row.ratio >= row.target if row.better == "higher" else row.ratio <= row.target
        sign = "≥" if row.better == "higher" else "≤"
        lines.append(
            f"| {row.row} | {row.ours:.4g} {row.unit} | {row.peer:.4g} {row.unit} | {row.ratio:.3f} "
            f"{'met' if good else 'MISSED'} | {sign} {row.target:g} | {row.spread:.0%} | {row.note} |"
        )
    return "\n\n".join(["\n".join(lines), *(table.markdown() for table in tables), *missing])


def write_between(page: Path, text: str) -> None:
    """Put ``text`` between the two marks of ``page``; all else stays. Raises ValueError where a mark is missing."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} lacks the line {BEGIN!r} or the line {END!r} after it")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")

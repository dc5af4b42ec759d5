"""What the window's first page says about the demo pack. Reads three small files; imports nothing heavy."""

from __future__ import annotations

import json
from pathlib import Path

from app.demo.fetch import wheel_is_here
from app.demo.index import STATE_KEY, is_older, pack_folder, read_index
from ui.context.services import DemoFacts

SHOWN = "clusters/food.cluster.json"
"""The cluster of the first steps: of those in the pack the one whose topic shows most clearly while fluent."""
REPORT = "REPORT.md"
PROMPT = "Describe a place you like."
"""One of the questions of the sweep in which the dial was measured; it leans to no topic."""
REPETITION_PENALTY = 1.15
"""Of chat with the demo model; measured in docs/steering.md."""


def demo_facts(pack: Path | None = None) -> DemoFacts | None:
    """The pack as the first page needs it; None where no pack lies here or its files cannot be read."""
    folder = pack or pack_folder()
    try:
        index = read_index(folder)
        cluster = json.loads((folder / SHOWN).read_text(encoding="utf-8"))
        manifest = (folder / SHOWN).with_name(SHOWN.rsplit("/", 1)[1].replace(".json", ".manifest.json"))
        calibration = json.loads(manifest.read_text(encoding="utf-8"))["calibration"]
        report = folder / REPORT
        return DemoFacts(
            model=str(index["model"]),
            attach_set=str(index["attach_set"]),
            cluster=str(cluster["name"]),
            topic=str(cluster["display_token"]),
            intensity=float(calibration["sweet_spot"]),
            prompt=PROMPT,
            repetition_penalty=REPETITION_PENALTY,
            report=report if report.is_file() else None,
            bundled=wheel_is_here(folder),
            is_older=lambda library: is_older(library.state.get(STATE_KEY), str(index["version"])),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None

"""Renders the window without a screen into ``docs/screenshots/``: ``python -m tests.ui.screenshots [--only NAME] …``.

Each page is taken in light and dark, at 1280 × 800 and 1920 × 1200, from the real window on a real engine; further
states of it at 1280 × 800 unless ``--size`` says otherwise. What is pictured is in :mod:`tests.ui.scenes`. ``--only``
takes the name of a scene, the beginning of one, or an area; ``--scale 1.5`` draws as on a screen with larger letters,
``--size 900x640`` in a window of another size.
"""

from __future__ import annotations

import os

os.environ.update(QT_QPA_PLATFORM="offscreen", OMP_WAIT_POLICY="PASSIVE", GOMP_SPINCOUNT="0", HF_HUB_OFFLINE="1")

import argparse
import tempfile
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from tests.ui.scenes.studio import ROOT, SCHEMES, Photographer, Scene, areas, studio
from ui.kit import theme

OUT = ROOT / "docs" / "screenshots"


def chosen(only: list[str]) -> dict[str, list[Scene]]:
    """The scenes to render, by area: all, or those called, beginning with, or in an area called one of ``only``."""
    found: dict[str, list[Scene]] = {}
    for area, scenes in areas().items():
        exact = [scene for scene in scenes if scene.name in only]
        wanted = exact or [
            scene for scene in scenes if any(area == name or scene.name.startswith(name) for name in only)
        ]
        if picked := (wanted if only else list(scenes)):
            found[area] = picked
    if not found:
        names = ", ".join(f"{area}: {' '.join(s.name for s in scenes)}" for area, scenes in areas().items())
        raise SystemExit(f"no scene is called {' or '.join(only)}; there are {names}")
    return found


def _size(words: str) -> tuple[int, int]:
    """``1280x800`` as numbers."""
    width, height = words.lower().split("x")
    return int(width), int(height)


def main() -> None:
    parser = argparse.ArgumentParser(description="Render the window into pictures.")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--data", type=Path, default=ROOT / ".data", help="data directory that may hold the demo model")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a scene or an area; may be repeated"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="as on a screen scaled so")
    parser.add_argument(
        "--size", action="append", default=[], metavar="WxH", type=_size, help="of the window; may be repeated"
    )
    parser.add_argument("--scheme", action="append", default=[], choices=[name for name, _ in SCHEMES])
    parser.add_argument("--list", action="store_true", help="say which scenes there are")
    arguments = parser.parse_args()
    if arguments.list:
        for area, scenes in areas().items():
            print(f"{area}: {' '.join(scene.name for scene in scenes)}")
        return
    picked = chosen(arguments.only)
    if arguments.scale != 1.0:
        os.environ["QT_SCALE_FACTOR"] = f"{arguments.scale:g}"
    theme.set_high_dpi_policy()
    app = QApplication([])
    theme.install(app, Qt.ColorScheme.Light)
    mark = f"@{arguments.scale:g}" if arguments.scale != 1.0 else ""
    camera = Photographer(app, arguments.out, arguments.size, arguments.scheme or [name for name, _ in SCHEMES], mark)
    for wanted in picked.values():
        with tempfile.TemporaryDirectory() as scratch, studio(camera, arguments.data, Path(scratch)) as made:
            for scene in wanted:
                scene.shoot(made)
    if not (arguments.only or arguments.size or arguments.scheme or mark) and arguments.out == OUT:
        # Of scenes that are no more.
        for path in set(OUT.glob("*.png")) - set(camera.taken):
            path.unlink()
    size = sum(path.stat().st_size for path in camera.taken)
    print(f"{len(camera.taken)} pictures in {arguments.out}, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

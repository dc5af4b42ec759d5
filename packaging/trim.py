"""Makes a frozen folder smaller: ``python packaging/trim.py FOLDER``.

A wheel cannot hold links, so a library with version numbers in its name lies in it three times. On systems with links
the longest name keeps the file and the others point to it.

On Linux torch's libraries and Python's carry symbols that only a debugger reads; ``strip`` takes them out where it is
installed. Other wheels' libraries are left alone: many were rewritten by patchelf, and strip can break those.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

STRIPPED = ("_internal/torch/lib/*.so", "_internal/libpython3*.so*")
"""Libraries whose makers left the symbols in, by their place in the frozen folder."""


def same_files(folder: Path) -> list[list[Path]]:
    """Groups of equal shared libraries of one folder, the longest name first."""
    groups: dict[tuple[Path, str], list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*.so*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                groups[path.parent, hashlib.file_digest(file, "sha256").hexdigest()].append(path)
    return [sorted(group, key=lambda p: (-len(p.name), p.name)) for group in groups.values() if len(group) > 1]


def link_copies(folder: Path) -> int:
    """Make links of copies; the bytes that saved."""
    saved = 0
    for first, *others in same_files(folder):
        for other in others:
            saved += other.stat().st_size
            other.unlink()
            other.symlink_to(first.name)
    return saved


def strip_symbols(folder: Path) -> int:
    """Take the symbols nobody needs at run time out of torch's and Python's libraries; the bytes that saved."""
    program = shutil.which("strip")
    if program is None or not sys.platform.startswith("linux"):
        return 0
    saved = 0
    for pattern in STRIPPED:
        for path in sorted(folder.glob(pattern)):
            if path.is_symlink():
                continue
            before = path.stat().st_size
            subprocess.run([program, "--strip-unneeded", str(path)], check=True)
            saved += before - path.stat().st_size
    return saved


def main() -> int:
    """Do both and say how much that saved."""
    if os.name == "nt":
        return 0
    folder = Path(sys.argv[1])
    print(f"{link_copies(folder) / 1e6:.0f} MB of copies linked")
    print(f"{strip_symbols(folder) / 1e6:.0f} MB of symbols taken out")
    return 0


if __name__ == "__main__":
    sys.exit(main())

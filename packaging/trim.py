"""Makes copies of one shared library into links again: ``python packaging/trim.py FOLDER``.

A wheel cannot hold links, so a library with version numbers in its name lies in it three times. On systems with links
the longest name keeps the file and the others point to it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections import defaultdict
from pathlib import Path


def same_files(folder: Path) -> list[list[Path]]:
    """Groups of equal shared libraries of one folder, the longest name first."""
    groups: dict[tuple[Path, str], list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*.so*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                groups[path.parent, hashlib.file_digest(file, "sha256").hexdigest()].append(path)
    return [sorted(group, key=lambda p: (-len(p.name), p.name)) for group in groups.values() if len(group) > 1]


def main() -> int:
    """Link what is equal and say how much that saved."""
    if os.name == "nt":
        return 0
    saved = 0
    for first, *others in same_files(Path(sys.argv[1])):
        for other in others:
            saved += other.stat().st_size
            other.unlink()
            other.symlink_to(first.name)
    print(f"{saved / 1e6:.0f} MB of copies linked")
    return 0


if __name__ == "__main__":
    sys.exit(main())

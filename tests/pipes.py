"""Named pipes under names that programs open: whoever opens one to read waits for somebody to write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pipe(path: Path) -> Path:
    """Make a named pipe; the test is skipped where there are none."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path

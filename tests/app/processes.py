"""Starting the program as a user does: a process of its own, with nothing of this machine's settings in its environment."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_SECONDS = 180.0
"""Generous: importing torch on a busy machine takes long. No test passes or fails by it unless something hangs."""


def clean_environment(**changes: str) -> dict[str, str]:
    """The environment without our settings, plus ``changes``."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MILLM_") and name not in {"API_KEY", "AUTO_LOAD_MODEL", "CORS_ORIGINS", "ALLOWED_HOSTS"}
    }
    return {**kept, "QT_QPA_PLATFORM": "offscreen", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), **changes}


def app(*arguments: str, timeout: float = START_SECONDS, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m app …`` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        cwd=ROOT,
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )


class Running:
    """A process whose output lines are waited for."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def line(self, timeout: float = START_SECONDS) -> str:
        """The next line of standard output, without its end."""
        text = self._queue.get(timeout=timeout)
        if text is None:
            code = self.process.wait(timeout)
            raise AssertionError(f"it ended with status {code}: {self.errors()}")
        self.lines.append(text.rstrip("\n"))
        return self.lines[-1]

    def errors(self) -> str:
        """What it wrote to standard error; for a process that has ended."""
        return self.process.stderr.read() if self.process.stderr is not None else ""

    def _read(self) -> None:
        if self.process.stdout is not None:
            for text in self.process.stdout:
                self._queue.put(text)
        self._queue.put(None)


@contextmanager
def started(*command: str, **environment: str) -> Iterator[Running]:
    """A Python process with these arguments; ended hard when the block is left."""
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env=clean_environment(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    running = Running(process)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()

"""Exceptions nobody caught become a report in ``logs/``: the traceback, versions and the last log lines.

Covers the main thread, other threads, and exceptions Python can only mention (in ``__del__`` and callbacks from C). A
crash of the interpreter itself leaves its stacks in ``logs/faults.txt``; the next start makes a report of them. What is
there to be read is found by :func:`newest_since`.
"""

from __future__ import annotations

import datetime
import faulthandler
import logging
import os
import platform
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from app.about import versions
from app.logs import FILE_NAME as LOG

log = logging.getLogger(__name__)

FAULTS = "faults.txt"
FATAL = ("Fatal Python error", "Windows fatal exception: access violation", "Windows fatal exception: stack overflow")
"""What the interpreter writes when it goes down. On Windows it also notes exceptions that others handle."""
REPORTS_PER_RUN = 20
"""A failing timer must not fill the disk."""
LINES_OF_LOG = 200

Told = Callable[[Path], None]


class CrashReporter:
    """Holds the hooks while the program runs. Made by :func:`install`; :meth:`remove` puts the former ones back."""

    def __init__(self, folder: Path, tail: Callable[[], list[str]]) -> None:
        self._folder = folder
        self._tail = tail
        self._told: Told | None = None
        self._written = 0
        self._lock = threading.Lock()
        self._former = (sys.excepthook, threading.excepthook, sys.unraisablehook)
        self._faults: IO[str] | None = None

    def start(self) -> None:
        """Put the hooks in force."""
        sys.excepthook = self._on_main
        threading.excepthook = self._on_thread
        sys.unraisablehook = self._on_unraisable
        self._keep_faults()
        try:
            self._faults = (self._folder / FAULTS).open("w", encoding="utf-8")
            faulthandler.enable(self._faults)
        except OSError as error:
            log.warning("stacks of a crashed interpreter will not be kept: %s", error)

    def tell(self, told: Told | None) -> None:
        """Call ``told`` with each report's path, on the thread that failed."""
        self._told = told

    def remove(self) -> None:
        """Put the former hooks back."""
        sys.excepthook, threading.excepthook, sys.unraisablehook = self._former
        if self._faults is not None:
            faulthandler.disable()
            self._faults.close()
            self._faults = None

    def report(self, error: BaseException, where: str) -> Path | None:
        """Log ``error`` and write a report; None when it could not be written or there are enough already."""
        log.error("uncaught exception (%s)", where, exc_info=error)
        with self._lock:
            if self._written >= REPORTS_PER_RUN:
                return None
            self._written += 1
            number = self._written
        now = datetime.datetime.now().astimezone()
        path = self._folder / f"crash-{now:%Y%m%d-%H%M%S}-{os.getpid()}-{number}.txt"
        try:
            path.write_text(self._text(error, where, now), encoding="utf-8")
        except OSError as problem:
            log.error("the crash report could not be written: %s", problem)
            return None
        if self._told is not None:
            self._told(path)
        return path

    def _keep_faults(self) -> None:
        """Make a report of the stacks a crashed interpreter left behind."""
        faults = self._folder / FAULTS
        try:
            stacks = faults.read_text(encoding="utf-8", errors="replace") if faults.is_file() else ""
            if not any(word in stacks for word in FATAL):
                return
            when = datetime.datetime.fromtimestamp(faults.stat().st_mtime).astimezone()
            facts = [*_versions(), f"Time: {when.isoformat()}", "Where: the interpreter itself"]
            kept = self._tail_of_log()
            text = "\n".join([*facts, "", stacks, "Last log lines:", *kept, ""])
            (self._folder / f"crash-{when:%Y%m%d-%H%M%S}-fault.txt").write_text(text, encoding="utf-8")
        except OSError as error:
            log.warning("the stacks of the last crash could not be kept: %s", error)

    def _tail_of_log(self) -> list[str]:
        """The last lines of the log file, which this run has not written into yet."""
        file = self._folder / LOG
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
        return lines[-LINES_OF_LOG:]

    def _text(self, error: BaseException, where: str, now: datetime.datetime) -> str:
        facts = [*_versions(), f"Time: {now.isoformat()}", f"Where: {where}"]
        trace = "".join(traceback.format_exception(error))
        return "\n".join([*facts, "", trace, "Last log lines:", *self._tail(), ""])

    def _on_main(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            self._former[0](kind, error, trace)
            return
        path = self.report(error, "main thread")
        place = f" A report is in {path}." if path else ""
        sys.stderr.write(f"miLLM Desktop failed: {kind.__name__}: {error}.{place}\n")

    def _on_thread(self, facts: threading.ExceptHookArgs) -> None:
        if facts.exc_value is not None and not issubclass(facts.exc_type, SystemExit):
            name = facts.thread.name if facts.thread is not None else "a thread"
            self.report(facts.exc_value, f"thread {name}")

    def _on_unraisable(self, facts: Any) -> None:
        if isinstance(facts.exc_value, Exception):
            self.report(facts.exc_value, f"{facts.err_msg or 'ignored in'} {facts.object!r}")


def _versions() -> list[str]:
    return [*(f"{name}: {version}" for name, version in versions().items()), f"System: {platform.platform()}"]


def newest_since(folder: Path, seen: str = "") -> Path | None:
    """The newest report in ``folder`` whose name comes after ``seen``; None when there is none.

    Names begin with the time, so that they sort by it.
    """
    names = sorted(path.name for path in folder.glob("crash-*.txt"))
    return folder / names[-1] if names and names[-1] > seen else None


def install(folder: Path, tail: Callable[[], list[str]]) -> CrashReporter:
    """Report uncaught exceptions into ``folder`` from now on; ``tail`` gives the last log lines."""
    reporter = CrashReporter(folder, tail)
    reporter.start()
    return reporter

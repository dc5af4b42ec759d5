"""Exceptions nobody caught become a report in ``logs/``: the traceback, versions and the last log lines.

Covers the main thread, other threads, and exceptions Python can only mention (in ``__del__`` and callbacks from C). A
crash of the interpreter itself leaves its stacks in ``logs/faults.txt``.
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

log = logging.getLogger(__name__)

FAULTS = "faults.txt"
REPORTS_PER_RUN = 20
"""A failing timer must not fill the disk."""

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

    def _text(self, error: BaseException, where: str, now: datetime.datetime) -> str:
        facts = [f"{name}: {version}" for name, version in versions().items()]
        facts += [f"System: {platform.platform()}", f"Time: {now.isoformat()}", f"Where: {where}"]
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


def install(folder: Path, tail: Callable[[], list[str]]) -> CrashReporter:
    """Report uncaught exceptions into ``folder`` from now on; ``tail`` gives the last log lines."""
    reporter = CrashReporter(folder, tail)
    reporter.start()
    return reporter

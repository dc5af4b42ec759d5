"""Starts the processes that run templates, gives them jobs, and ends one that takes too much.

A thread cannot be ended, and one long instruction (``9 ** 9 ** 9``, a text multiplied) stops every other thread of its
process; a process of its own stops nobody. It is started once, before it is needed, and answers in a millisecond. What
counts is the processor time a job takes, so that a busy machine refuses nothing.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import sys
import threading
import time
import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import psutil

from engine.models.backends.templates.worker import MOST_BYTES, serve

CPU_S = 2.0
"""Processor time of one job. The longest real conversations take some hundredths."""

WALL_S = 30.0
"""Time on the clock, for a job that waits instead of computing, or a machine that gives it nothing."""

AT_ONCE = 4
"""Processes that run at most; a job that finds all of them busy waits for one."""

_OWN_BYTES = 256 << 20
_LOOK_S = 0.05
_MOST_ANSWER = 1 << 28


class TooCostly(Exception):
    """The job was ended; the text is the end of a sentence about the template."""


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    ready: bool = False

    def end(self) -> None:
        """End it now, whatever it does."""
        self.process.kill()
        self.process.join(5)
        self.pipe.close()


class Renderer:
    """Runs jobs in processes of its own; any thread may ask."""

    def __init__(self) -> None:
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []

    def warm(self) -> None:
        """Begin to start a process, so that the first job finds it ready."""
        with self._lock:
            if not self._idle:
                self._idle.append(_start())

    def run(self, job: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """The answer to ``job`` and the text that goes with it (see ``worker``). Raises :class:`TooCostly`."""
        with self._places:
            with self._lock:
                worker = self._idle.pop() if self._idle else _start()
            try:
                answer, text = _ask(worker, json.dumps(job).encode())
            except BaseException:
                worker.end()
                raise
            if "costly" in answer:
                # What it took may still lie in its heap.
                worker.end()
                raise TooCostly(answer["costly"])
            with self._lock:
                self._idle.append(worker)
            return answer, text

    def close(self) -> None:
        """End the processes that wait for a job."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()


@cache
def shared() -> Renderer:
    """The program's one."""
    made = Renderer()
    atexit.register(made.close)
    return made


_starting = threading.Lock()


def _start() -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), name="template-renderer", daemon=True)
    with _starting:
        # A started process imports the program's main module again, which may be anybody's script; it needs none.
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            process.start()
        finally:
            sys.modules["__main__"] = main
    theirs.close()
    return _Worker(process, ours)


def _ask(worker: _Worker, job: bytes) -> tuple[dict[str, Any], str]:
    try:
        watched = psutil.Process(worker.process.pid)
        until = time.monotonic() + WALL_S
        if not worker.ready:
            # What its own start takes is not the template's.
            if not worker.pipe.poll(WALL_S):
                raise TooCostly("could not be given to a process of its own in time")
            worker.pipe.recv_bytes(_MOST_ANSWER)
            worker.ready = True
        most = _cpu_seconds(watched) + CPU_S
        worker.pipe.send_bytes(job)
        while not worker.pipe.poll(_LOOK_S):
            if _cpu_seconds(watched) > most or time.monotonic() > until:
                raise TooCostly(f"does not end: it was stopped after {CPU_S:g} seconds of computing")
            if watched.memory_info().rss > MOST_BYTES + _OWN_BYTES:
                raise TooCostly("takes more memory than a template may")
        answer = json.loads(worker.pipe.recv_bytes(_MOST_ANSWER))
        text = worker.pipe.recv_bytes(_MOST_ANSWER).decode("utf-8", "surrogatepass") if "left_out" in answer else ""
    except (EOFError, OSError, psutil.Error) as error:
        raise TooCostly("ended the process it ran in") from error
    return answer, text


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)

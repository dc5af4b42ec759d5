"""What runs in the renderer's own process: jobs come in through a pipe, one at a time, and answers go out.

A job is one JSON object; an answer is one JSON object and, after a rendering, a message with the text. The process ends
itself when the pipe closes and when a job takes far too long, so that none is left behind when the program is killed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

MOST_BYTES = 512 << 20
"""Memory a job may take on top of what the process holds when it starts, where the system can bound that."""

WATCH_S = 60.0
"""After this the process ends itself, also in the middle of a single instruction."""


def serve(pipe: Connection) -> None:
    """Say that it is ready, then answer jobs until the pipe closes."""
    from engine.models.backends.templates import sandbox

    # Ctrl+C in a terminal reaches every process of it; the program ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _bound_memory()
    # The pipe closes, or breaks, when the program has ended: that is the end of this one, too.
    with open(os.devnull, "w") as nowhere, contextlib.suppress(EOFError, OSError):
        pipe.send_bytes(b"ready")
        while True:
            job = json.loads(pipe.recv_bytes())
            faulthandler.dump_traceback_later(WATCH_S, exit=True, file=nowhere)
            answer, text = _done(sandbox, job)
            faulthandler.cancel_dump_traceback_later()
            pipe.send_bytes(json.dumps(answer).encode())
            if text is not None:
                pipe.send_bytes(text)


def _done(sandbox: Any, job: Mapping[str, Any]) -> tuple[dict[str, Any], bytes | None]:
    try:
        if job["do"] == "variables":
            return {"variables": sandbox.variables(job["source"])}, None
        if job["do"] == "levels":
            return {"levels": sandbox.levels(job["source"], job["name"])}, None
        text, left_out = sandbox.render(
            job["source"],
            job["messages"],
            job["variables"],
            parts=job["parts"],
            continue_final=job["continue_final"],
        )
        return {"left_out": left_out}, text.encode("utf-8", "surrogatepass")
    except MemoryError:
        return {"costly": "takes more memory than a template may"}, None
    except sandbox.TooLong:
        return {"costly": f"writes more than {sandbox.MAX_TEXT:,} characters"}, None
    except Exception as error:  # a template is a program: whatever it raises is its refusal
        return {"raised": _words(error)}, None


def _words(error: Exception) -> str:
    try:
        words = " ".join(str(error)[:2000].split())[:500]
    except Exception:  # a message made of what the template made
        words = ""
    return words.encode("utf-8", "backslashreplace").decode() or type(error).__name__


def _bound_memory() -> None:
    """Bound the address space where the system can; elsewhere whoever started the process watches it."""
    if sys.platform != "linux":
        return
    import resource

    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = now + MOST_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))

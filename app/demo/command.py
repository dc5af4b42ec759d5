"""``demo install``, ``demo status`` and ``demo remove`` on the terminal."""

from __future__ import annotations

import sys
import time

from app.demo.index import PackStanding, content_of
from app.demo.pack import SMOLLM2, status
from app.instance import current_holder, in_use
from app.options import Options
from app.paths import Paths
from engine.errors import DownloadFailed


def run(options: Options) -> int:
    """Carry out the action; the exit status."""
    match options.action:
        case "install":
            return _install(options)
        case "remove":
            return _remove(options)
        case _:
            return _status(options)


def _install(options: Options) -> int:
    if options.wheel is not None and not options.wheel.is_file():
        raise DownloadFailed(f"There is no file {options.wheel}.", remedy="Give --wheel the file you fetched.")

    from app.demo.content import Installed, install_content, own_documents
    from app.demo.install import install
    from app.startup import opened, start_engine

    with opened(options) as program:
        there = status(program.paths).installed
        record = install(program.paths, program.library, _Lines(quiet=there), wheel=options.wheel)
        engine = start_engine(program)
        try:
            before = Installed.of(engine.library)
            added = install_content(engine, _Lines(quiet=False))
            theirs = own_documents(engine) if added and before is not None else []
        finally:
            engine.stop()
    print(f"{record.name} is installed." if not there else f"{record.name} is installed already.", flush=True)
    if added:
        print("Its SAEs, labels, profiles, clusters and circuits are in the library; nothing is attached.", flush=True)
    if theirs:
        print(
            f"Made for the SAEs that were replaced, and left as they are: {', '.join(theirs)}. A feature's number may "
            "stand for something else now.",
            flush=True,
        )
    return 0


def _remove(options: Options) -> int:
    from app.demo.content import remove_content
    from app.demo.install import remove
    from app.startup import opened, start_engine

    paths = Paths.find(options.data_dir)
    if not paths.data_dir.exists():
        print("The demo model is not installed.", flush=True)
        return 0
    with opened(options) as program:
        engine = start_engine(program)
        try:
            found = remove_content(engine)
        finally:
            engine.stop()
        found = remove(program.paths, program.library) or found
    print("The demo model was removed." if found else "The demo model is not installed.", flush=True)
    return 0


def _status(options: Options) -> int:
    """Only reads, so it works beside a running window; status 1 when something is missing."""
    paths = Paths.find(options.data_dir)
    found = status(paths)
    content = content_of(paths.database)
    if found.installed and content.standing is not PackStanding.CURRENT:
        print(f"{SMOLLM2.model_name} is in {paths.data_dir}, {content.in_words}.", flush=True)
        return 1
    if found.installed:
        print(f"{SMOLLM2.model_name} is installed in {paths.data_dir}.", flush=True)
        return 0
    part = " (only its GGUF file is there)" if found.gguf else ""
    print(f"{SMOLLM2.model_name} is not installed in {paths.data_dir}{part}.", flush=True)
    if (holder := current_holder(paths)) is not None and holder.role == "demo":
        print(in_use(paths, holder).message, flush=True)
    return 1


class _Lines:
    """Progress as lines: each phrase once, and the share done every second where it moves."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._phrase = ""
        self._last = 0.0

    def __call__(self, percent: float, phrase: str) -> None:
        if self._quiet:
            return
        now = time.monotonic()
        if phrase == self._phrase and now - self._last < 1.0:
            return
        self._phrase, self._last = phrase, now
        print(f"{percent:3.0f} %  {phrase}", file=sys.stdout, flush=True)

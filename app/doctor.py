"""``doctor``: what works here and what does not, as lines a person can paste into a report. Changes nothing."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from app import about, system_libraries
from app.demo.pack import SMOLLM2, status
from app.instance import Holder, current_holder
from app.options import Options
from app.paths import Paths
from app.settings import Settings
from app.startup import settings_of
from engine.errors import MillmError

GB = 1e9


@dataclass(frozen=True)
class Finding:
    """One line. ``bad`` means the program cannot do its main work like this."""

    topic: str
    text: str
    bad: bool = False


def run(options: Options) -> int:
    """Print the findings; status 1 when one of them is bad."""
    worst = 0
    for finding in examine(options):
        mark = "!" if finding.bad else " "
        print(f"{mark} {finding.topic + ':':<16} {finding.text}", flush=True)
        worst = max(worst, int(finding.bad))
    return worst


def examine(options: Options) -> Iterator[Finding]:
    """Look at everything, one finding after the other."""
    for name, version in about.versions().items():
        yield Finding(name, version)
    yield Finding("Interpreter", sys.executable)
    yield from _machine()
    yield from _engines()
    yield from _window()
    paths = Paths.find(options.data_dir)
    holder = current_holder(paths)
    yield from _data_directory(paths, holder)
    try:
        settings = settings_of(options, paths)
    except MillmError as error:
        yield Finding("Settings", error.one_line(), bad=True)
        return
    yield Finding("Settings", f"read ({paths.settings_file if paths.settings_file.exists() else 'no settings file'})")
    yield _port(settings, holder)


def _machine() -> Iterator[Finding]:
    memory = psutil.virtual_memory()
    yield Finding("System", platform.platform())
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    yield Finding("Processor", f"{platform.machine()}, {cores} cores, {os.cpu_count()} threads")
    yield Finding("Memory", f"{memory.total / GB:.1f} GB, {memory.available / GB:.1f} GB of it free")


def _engines() -> Iterator[Finding]:
    try:
        import torch
        import transformers
    except (ImportError, OSError) as error:
        yield Finding("Engine", f"transformers cannot be used: {error}", bad=True)
    else:
        yield Finding("Engine", f"transformers {transformers.__version__} on torch {torch.__version__}")
        yield Finding("Devices", ", ".join(_devices()))
    if importlib.util.find_spec("llama_cpp") is None:
        yield Finding("Engine (GGUF)", "not usable: this version cannot run GGUF files yet")
    else:
        yield Finding("Engine (GGUF)", "llama-cpp-python is installed, but this version cannot run GGUF files yet")


def _devices() -> list[str]:
    import torch

    from engine.models.devices import cpu_has_native_bfloat16, describe_device

    found = [describe_device(torch.device("cuda", index)) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps (Apple GPU)")
    return [*found, "cpu (with bfloat16 arithmetic)" if cpu_has_native_bfloat16() else "cpu (computes in float32)"]


def _window() -> Iterator[Finding]:
    screen = system_libraries.has_display()
    lacking = system_libraries.missing(screen=screen and system_libraries.needs_x())
    if lacking:
        yield Finding("Window", system_libraries.explain(lacking))
    elif not screen:
        yield Finding("Window", system_libraries.NO_DISPLAY)
    else:
        yield Finding("Window", "Qt has all it needs")


def _data_directory(paths: Paths, holder: Holder | None) -> Iterator[Finding]:
    where = paths.data_dir
    existing: Path = where
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    problem = None
    if not existing.is_dir():
        problem = f"{existing} is a file, not a folder"
    elif not os.access(existing, os.W_OK):
        problem = f"{existing} cannot be written"
    if problem:
        yield Finding("Data directory", f"{where}: {problem}", bad=True)
        return
    free = shutil.disk_usage(existing).free
    used = f"in use by {holder.in_words()}" if holder else "not in use"
    made = "" if where.exists() else ", made at the first start"
    yield Finding("Data directory", f"{where} ({used}; {free / GB:.1f} GB free{made})")
    demo = status(paths)
    yield Finding("Demo model", f"{SMOLLM2.model_name} is {'installed' if demo.installed else 'not installed'}")


def _port(settings: Settings, holder: Holder | None) -> Finding:
    host, port = settings.HOST, settings.PORT
    if holder is not None and holder.port == port:
        return Finding("Port", f"{port} on {host}: held by this program (pid {holder.pid})")
    try:
        with socket.create_connection((host, port), timeout=0.5):
            return Finding("Port", f"{port} on {host}: another program answers there; choose one with --port", bad=True)
    except OSError:
        return Finding("Port", f"{port} on {host}: free")

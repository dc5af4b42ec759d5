"""``doctor``: what works here and what does not, as lines a person can paste into a report. Changes nothing."""

from __future__ import annotations

import importlib
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
from app.demo.fetch import wheel_is_here
from app.demo.index import PackStanding, content_of, pack_folder
from app.demo.pack import SMOLLM2, status
from app.instance import Holder, current_holder
from app.options import Options
from app.paths import Paths
from app.settings import Settings
from app.startup import settings_of
from engine.errors import MillmError
from engine.models.backends import engines
from engine.models.hardware.unused_gpus import judge, look
from ui.kit.text import counted

GB = 1e9


@dataclass(frozen=True)
class Finding:
    """One line; an empty topic goes on with the line before. ``bad``: the program cannot do its main work like this."""

    topic: str
    text: str
    bad: bool = False


def run(options: Options) -> int:
    """Print the findings; status 1 when one of them is bad."""
    worst = 0
    for finding in examine(options):
        mark = "!" if finding.bad else " "
        topic = f"{finding.topic}:" if finding.topic else ""
        print(f"{mark} {topic:<20} {finding.text}", flush=True)
        worst = max(worst, int(finding.bad))
    return worst


def examine(options: Options) -> Iterator[Finding]:
    """Look at everything, one finding after the other."""
    for name, version in about.versions().items():
        yield Finding(name, version)
    yield _build()
    yield from _machine()
    yield from _engines()
    yield from _formats()
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


def _build() -> Finding:
    if getattr(sys, "frozen", False):
        return Finding("Build", f"installed program, {sys.executable}")
    return Finding("Build", f"from its source, with {sys.executable}")


def _machine() -> Iterator[Finding]:
    memory = psutil.virtual_memory()
    yield Finding("System", platform.platform())
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    yield Finding(
        "Processor", f"{platform.machine()}, {counted(cores, 'core')}, {counted(os.cpu_count() or 1, 'thread')}"
    )
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
    idle = judge(look())
    if idle is not None:
        yield Finding("Graphics card", idle.in_words())
    yield Finding("Engine (GGUF)", engines.examine_gguf_engine().in_words())
    yield Finding("Quantisation", engines.quantizer_in_words())


def _formats() -> Iterator[Finding]:
    """Which SAEs and which answers in a form of their own can be had."""
    try:
        from engine.saes.architectures import RULES
        from engine.saes.formats import FORMATS
    except (ImportError, OSError) as error:
        yield Finding("SAE formats", f"none can be read: {error}", bad=True)
    else:
        kinds = ", ".join(kind.value for kind in RULES)
        yield Finding("SAE formats", f"{', '.join(each.LABEL for each in FORMATS)}; {kinds}")
        yield Finding("", "not usable: transcoders, crosscoders and temporal SAEs, which do not write where they read")
    try:
        importlib.import_module("llguidance")
    except (ImportError, OSError) as error:
        yield Finding("Structured output", f"not usable: llguidance cannot be imported: {error}")
    else:
        yield Finding("Structured output", f"llguidance {about.version_of('llguidance') or ''}".rstrip())


def _devices() -> list[str]:
    import torch

    from engine.models.hardware.devices import cpu_has_native_bfloat16, describe_device

    found = [describe_device(torch.device("cuda", index)) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps (Apple GPU)")
    return [*found, "cpu (with bfloat16 arithmetic)" if cpu_has_native_bfloat16() else "cpu (computes in float32)"]


def _window() -> Iterator[Finding]:
    """Whether a window can open, and through which of Qt's platforms."""
    screen = system_libraries.has_display()
    lacking = system_libraries.missing(screen=screen and system_libraries.needs_x())
    if lacking:
        yield Finding("Window", system_libraries.explain(lacking))
    elif not screen:
        yield Finding("Window", system_libraries.NO_DISPLAY)
    else:
        yield Finding("Window", f"Qt has all it needs; it will use {system_libraries.platform()}")


def _data_directory(paths: Paths, holder: Holder | None) -> Iterator[Finding]:
    where = paths.data_dir
    if paths.remembered and not where.is_dir():
        yield Finding("Data directory", f"{where}, chosen at the first start, is not there", bad=True)
        return
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
    yield Finding("Demo model", _demo(paths))
    reports = sorted(paths.logs.glob("crash-*.txt")) if paths.logs.is_dir() else []
    if reports:
        yield Finding("Crash reports", f"{len(reports)}, the newest {reports[-1]}")


def _demo(paths: Paths) -> str:
    if not status(paths).installed:
        came = "; its file came with this program" if wheel_is_here(pack_folder()) else ""
        return f"{SMOLLM2.model_name} is not installed{came}"
    content = content_of(paths.database)
    if content.standing is not PackStanding.CURRENT:
        return f"{SMOLLM2.model_name} is installed, {content.in_words}"
    return f"{SMOLLM2.model_name} is installed, with its SAEs and documents"


def _port(settings: Settings, holder: Holder | None) -> Finding:
    host, port = settings.HOST, settings.PORT
    if holder is not None and holder.port is not None:
        # What the settings say counts at the next start; whether that will be free is not known now.
        later = "" if holder.port == port else f"; the settings say {port}"
        return Finding("Port", f"{holder.port} on {host}: held by this program (pid {holder.pid}){later}")
    try:
        with socket.create_connection((host, port), timeout=0.5):
            return Finding("Port", f"{port} on {host}: another program answers there; choose one with --port", bad=True)
    except OSError:
        return Finding("Port", f"{port} on {host}: free")

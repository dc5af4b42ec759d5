"""The start, in order, for every command that works on a data directory.

1. The environment that must stand before heavy imports (``app.environment``, from the entry point's first lines), and
   how many files may be open.
2. The data directory: found, made, proved writable, closed to others (``app.paths``).
3. The settings: command line, environment, file, defaults (``app.settings``).
4. Logs and crash reports, from here on into the data directory (``app.logs``, ``app.crash``).
5. The claim: one process per data directory (``app.instance``).
6. The library: the database, created or upgraded (``engine.library``).
7. The engine: built and its thread started; torch is not imported before the first load (``engine.engine``).
8. The faces: ``app.serve`` starts the server, ``app.gui`` paints the window and then starts it.

Each step that fails raises a typed error with what to do; :func:`opened` then undoes the steps before it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from app import about, crash, environment, logs
from app.demo.pack import SMOLLM2, PackPaths
from app.instance import Instance
from app.options import Options
from app.paths import ENVIRONMENT_NAME, Paths, keep_to_oneself
from app.settings import Settings, load_settings, unknown_names
from app.token_store import VARIABLES as TOKEN_NAMES
from engine.config import EngineSettings
from engine.engine import Engine
from engine.errors import MillmError, ModelNotFound
from engine.library.database import Library
from engine.library.records import ModelRecord, ModelSource

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Program:
    """What the steps up to the library have made; faces and the engine are built on it."""

    options: Options
    paths: Paths
    settings: Settings
    logs: logs.Logs
    instance: Instance
    library: Library
    crashes: crash.CrashReporter


@contextmanager
def opened(options: Options) -> Iterator[Program]:
    """Steps 2 to 6; on the way out they are undone in reverse, whatever happened.

    Raises:
        DataDirectoryUnusable, SettingsInvalid, DataDirectoryInUse, LibraryUnusable: with what to do.
    """
    environment.allow_open_files()
    with ExitStack() as undo:
        if (former := keep_to_oneself()) is not None:
            undo.callback(os.umask, former)
        paths = Paths.find(options.data_dir)
        paths.prepare()
        settings = settings_of(options, paths)
        claim = Instance.claim(paths, role=options.command, port=None if options.command == "demo" else settings.PORT)
        undo.callback(claim.release)
        # After the claim: a second start must not write into the log file of the first.
        logging_ = logs.set_up(paths.logs, level=settings.LOG_LEVEL, style=settings.LOG_FORMAT, debug=settings.DEBUG)
        undo.callback(logging_.close)
        reporter = crash.install(paths.logs, logging_.tail)
        undo.callback(reporter.remove)
        log.info("%s %s starts (%s) on %s", about.NAME, about.VERSION, options.command, paths.data_dir)
        for name in unknown_names(also_known=frozenset({ENVIRONMENT_NAME, *TOKEN_NAMES})):
            log.warning("the environment variable %s is set, but no setting has that name", name)
        library = Library.open(paths.database)
        undo.callback(library.close)
        yield Program(options, paths, settings, logging_, claim, library, reporter)


def settings_of(options: Options, paths: Paths) -> Settings:
    """The settings with this command line's values on top."""
    return load_settings({"HOST": options.host, "PORT": options.port}, file=paths.settings_file)


def start_engine(program: Program, settings: EngineSettings | None = None) -> Engine:
    """Step 7. ``settings`` take the place of the program's where they are to change while it runs."""
    engine = Engine(program.settings if settings is None else settings, program.library)
    engine.start()
    return engine


@dataclass(frozen=True)
class FolderChoice:
    """The model to begin with. ``named``: a person named it, so that nothing may take its place."""

    record: ModelRecord
    named: bool


def choose_model(program: Program, engine: Engine, *, restore: bool) -> FolderChoice | None:
    """The model to load at the start: ``--model``, else AUTO_LOAD_MODEL, else the one used last, else the demo model.

    Args:
        restore: Whether the model used last counts.

    Raises:
        ModelNotFound, AmbiguousModelName: for a name given by a person; what they asked for is never replaced.
    """
    if program.options.model is not None:
        return FolderChoice(_named(engine, program.options.model, "--model"), named=True)
    if program.settings.AUTO_LOAD_MODEL:
        return FolderChoice(_named(engine, program.settings.AUTO_LOAD_MODEL, "AUTO_LOAD_MODEL"), named=True)
    if restore and (last := program.library.models.last_used()) is not None:
        return FolderChoice(last, named=False)
    demo = program.library.models.by_name(SMOLLM2.model_name)
    places = PackPaths.of(program.paths, SMOLLM2)
    if demo is not None and demo.source is ModelSource.DEMO and places.whole(places.checkpoint):
        return FolderChoice(demo, named=False)
    return None


def _named(engine: Engine, name: str, origin: str) -> ModelRecord:
    try:
        return engine.shelf.resolve(name)
    except ModelNotFound as error:
        if name.isdecimal():
            return engine.shelf.get(int(name))
        names = ", ".join(record.name for record in engine.shelf.list()) or "none yet"
        raise ModelNotFound(
            f"{origin}: there is no model named {name!r}. In the library: {names}.",
            param="model",
            remedy=error.remedy or f"Name one of them, or install the demo model: {about.COMMAND} demo install.",
        ) from None


def could_not_load(record: ModelRecord, error: MillmError) -> str:
    """One line for the terminal."""
    line = error.one_line()
    return line if line.startswith("Could not load") else f"Could not load {record.name!r}: {line}"

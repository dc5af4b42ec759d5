"""Which system libraries Qt needs here, and which of them are missing.

Qt ends the process with a plugin error when one is missing, so this is asked first: by ``make``, ``.ci/run`` and the
program itself. Only the standard library is used: it runs before any package is installed.

    python3 -m app.system_libraries [--offscreen] [--screen] [--window] [--packages]
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FONT_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.fonts", "~/.local/share/fonts")
FONT_ENDINGS = {".ttf", ".otf", ".ttc", ".pfb"}


@dataclass(frozen=True)
class Need:
    """One thing Qt needs: the file the loader looks for (or a word for it) and the Debian package that has it."""

    what: str
    package: str


OFFSCREEN = (
    Need("libGL.so.1", "libgl1"),
    Need("libEGL.so.1", "libegl1"),
    Need("libxkbcommon.so.0", "libxkbcommon0"),
    Need("libdbus-1.so.3", "libdbus-1-3"),
    Need("libfontconfig.so.1", "libfontconfig1"),
    Need("libglib-2.0.so.0", "libglib2.0-0"),
)
"""Needed for importing QtWidgets at all."""

SCREEN = (
    Need("libxcb-cursor.so.0", "libxcb-cursor0"),
    Need("libxkbcommon-x11.so.0", "libxkbcommon-x11-0"),
    Need("libxcb-icccm.so.4", "libxcb-icccm4"),
    Need("libxcb-keysyms.so.1", "libxcb-keysyms1"),
    Need("libxcb-shape.so.0", "libxcb-shape0"),
)
"""Needed on X in addition."""

FONT = Need("a font", "fonts-dejavu-core")
# As in app/about.py, which is not there where this file is run alone.
_COMMAND = "millm-desktop" if getattr(sys, "frozen", False) else "python -m app"
NO_DISPLAY = (
    "There is no screen to open a window on (neither DISPLAY nor WAYLAND_DISPLAY is set). "
    f"Start it from a desktop session, or run the server without a window: {_COMMAND} serve."
)


def _loads(soname: str) -> bool:
    try:
        ctypes.CDLL(soname)
    except OSError:
        return False
    return True


def _has_font() -> bool:
    for folder in FONT_FOLDERS:
        for _, _, names in os.walk(Path(folder).expanduser()):
            if any(Path(name).suffix.lower() in FONT_ENDINGS for name in names):
                return True
    return False


def _missing(*, offscreen: bool, screen: bool) -> Iterator[Need]:
    if offscreen:
        yield from (need for need in OFFSCREEN if not _loads(need.what))
        if not _has_font():
            yield FONT
    if screen:
        yield from (need for need in SCREEN if not _loads(need.what))


def missing(*, offscreen: bool = True, screen: bool = False) -> list[Need]:
    """What is missing here; always empty outside Linux, where Qt's wheels bring everything.

    Args:
        offscreen: Look for what importing QtWidgets needs.
        screen: Look for what a window on X needs in addition.
    """
    if not sys.platform.startswith("linux"):
        return []
    return list(_missing(offscreen=offscreen, screen=screen))


def needs_x(environ: Mapping[str, str] | None = None) -> bool:
    """Whether Qt would open its window on X, by the same signs Qt goes by."""
    env = os.environ if environ is None else environ
    platform = env.get("QT_QPA_PLATFORM", "")
    if platform:
        return platform.split(":")[0].split(";")[0] == "xcb"
    return bool(env.get("DISPLAY")) and not env.get("WAYLAND_DISPLAY")


def has_display(environ: Mapping[str, str] | None = None) -> bool:
    """Whether there is anything to show a window on (always true outside Linux)."""
    env = os.environ if environ is None else environ
    if not sys.platform.startswith("linux"):
        return True
    return any(env.get(name) for name in ("QT_QPA_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY"))


def platform(environ: Mapping[str, str] | None = None) -> str:
    """The name of the Qt platform a window would open on, by the same signs Qt goes by."""
    env = os.environ if environ is None else environ
    if asked := env.get("QT_QPA_PLATFORM", ""):
        return asked
    if not sys.platform.startswith("linux"):
        return {"win32": "windows", "darwin": "cocoa"}.get(sys.platform, "its default")
    if env.get("WAYLAND_DISPLAY"):
        return "wayland"
    return "xcb" if env.get("DISPLAY") else "none"


def explain(needs: list[Need]) -> str:
    """What is missing and how to get it, for a person."""
    names = ", ".join(need.what for need in needs)
    packages = " ".join(dict.fromkeys(need.package for need in needs))
    return (
        f"Qt cannot run here yet: missing {names}. On Debian or Ubuntu: sudo apt-get install {packages}. "
        "Elsewhere install the packages that contain these files."
    )


def main(arguments: list[str] | None = None) -> int:
    """Print what is missing; exit status 1 when something is (0 with ``--packages``, whose output is the answer)."""
    parser = argparse.ArgumentParser(prog="python3 -m app.system_libraries", description=__doc__.split("\n")[0])
    parser.add_argument("--offscreen", action="store_true", help="what importing QtWidgets needs")
    parser.add_argument("--screen", action="store_true", help="what a window on X needs in addition")
    parser.add_argument("--window", action="store_true", help="what a window on the present display needs")
    parser.add_argument("--packages", action="store_true", help="print only the names of the Debian packages")
    options = parser.parse_args(arguments)
    if options.window and not has_display():
        sys.stderr.write(NO_DISPLAY + "\n")
        return 1
    needs = missing(
        offscreen=options.offscreen or options.window,
        screen=options.screen or (options.window and needs_x()),
    )
    if options.packages:
        sys.stdout.write(" ".join(dict.fromkeys(need.package for need in needs)) + "\n")
        return 0
    if not needs:
        return 0
    sys.stderr.write(explain(needs) + "\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())

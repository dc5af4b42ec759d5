"""A desk: a virtual screen, a window manager, the program on it, and hands that click and type.

Where things are comes from the program (see ``program.py``); what is done comes from the X server alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app import system_libraries

ROOT = Path(__file__).resolve().parents[2]
NEEDED = {"Xvfb": "xvfb", "openbox": "openbox", "xdotool": "xdotool", "import": "imagemagick"}
"""Programs, and the Debian packages that have them."""
PATIENCE = 120.0


def missing() -> list[str]:
    """The Debian packages that a desk wants and this machine has not."""
    programs = {package for program, package in NEEDED.items() if shutil.which(program) is None}
    return sorted(programs | {need.package for need in system_libraries.missing(screen=True)})


class Gone(Exception):
    """What was looked for did not come."""


@dataclass(frozen=True)
class Seen:
    """A widget as it stands on the screen. ``shown``: the part of it that can be seen, in pixels."""

    facts: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.facts[name]

    @property
    def middle(self) -> tuple[int, int]:
        """The middle of what can be seen of it."""
        x, y, width, height = self.facts["shown"]
        return x + width // 2, y + height // 2

    @property
    def label(self) -> str:
        """What a person would call it."""
        return self.facts["name"] or self.facts["text"].split("\n")[0][:60] or self.facts["class"]


class Desk:
    """One screen with one program.

    Args:
        data: The program's data folder; None lets it ask, as at the very first start.
        size: Of the screen, in pixels.
        scale: What 100 % is multiplied by.
        pictures: Where pictures go.
    """

    def __init__(
        self,
        pictures: Path,
        *,
        data: Path | None,
        home: Path,
        size: tuple[int, int] = (1280, 800),
        scale: float = 1.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.pictures, self.size = pictures, size
        self.data = data or home / ".local" / "share" / "miLLM Desktop"
        self._taken = 0
        self._children: list[subprocess.Popen[Any]] = []
        read, write = os.pipe()
        width, height = size
        self._start(
            ["Xvfb", "-displayfd", str(write), "-screen", "0", f"{width}x{height}x24", "-nolisten", "tcp"],
            pass_fds=[write],
        )
        os.close(write)
        with os.fdopen(read) as told:
            display = told.readline().strip()
        self.environment = {
            **os.environ,
            **(environment or {}),
            "DISPLAY": f":{display}",
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / ".local" / "share"),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "PYTHONPATH": str(ROOT),
            "QT_SCALE_FACTOR": f"{scale:g}",
        }
        for name in ("QT_QPA_PLATFORM", "MILLM_DATA_DIR", "WAYLAND_DISPLAY"):
            self.environment.pop(name, None)
        self._start(["openbox"])
        self.wait("the window manager", lambda: self.run("xdotool", "get_desktop").isdigit())
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        command = [sys.executable, "-m", "tests.by_hand.program", str(self._port), "gui", "--port", "0"]
        if data is not None:
            command += ["--data-dir", str(data)]
        self.began = time.monotonic()
        self.program = self._start(command)
        self._link: Any = None

    def _start(self, command: list[str], **options: Any) -> subprocess.Popen[Any]:
        log = self.pictures / "output.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            child = subprocess.Popen(
                command, stdout=out, stderr=out, cwd=ROOT, env=getattr(self, "environment", None), **options
            )
        self._children.append(child)
        return child

    def close(self) -> None:
        """End everything; the program as its window's owner would."""
        for child in reversed(self._children):
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
                try:
                    child.wait(20)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()

    # --- looking ----------------------------------------------------------------------------------------------------

    def look(self) -> list[dict[str, Any]]:
        """The windows on the screen, each with its visible widgets; the active one last."""
        if self._link is None:
            self._link = self.wait("the program", self._linked).makefile("rw")
        self._link.write("look\n")
        self._link.flush()
        answer = self._link.readline()
        if not answer:
            raise Gone("the program has ended")
        return sorted(json.loads(answer)["windows"], key=lambda window: window["active"])

    def _linked(self) -> socket.socket | None:
        if self.program.poll() is not None:
            raise Gone(f"the program ended with {self.program.returncode}")
        try:
            return socket.create_connection(("127.0.0.1", self._port), 300)
        except OSError:
            return None

    def page(self) -> str | None:
        """The key of the page that is open."""
        return next((window["page"] for window in self.look() if window["page"]), None)

    def there(self) -> list[Seen]:
        """Everything of all windows, also what would have to be scrolled to."""
        return [Seen(facts) for window in self.look() for facts in window["widgets"]]

    def widgets(self) -> list[Seen]:
        """Everything that can be seen, of all windows."""
        return [each for each in self.there() if each.shown[2] > 2 and each.shown[3] > 2]

    def all(
        self, text: str = "", *, kind: str | None = None, cls: str | None = None, inside: str | None = None
    ) -> list[Seen]:
        """Widgets whose name or text begins so; ``inside`` is the class of something around them."""
        return [
            each
            for each in self.widgets()
            if (each.name.startswith(text) or each.text.replace("&", "").strip().startswith(text))
            and (kind is None or each.kind == kind)
            and (cls is None or cls in each.facts["class"])
            and (inside is None or inside in each.inside)
        ]

    def find(
        self,
        text: str = "",
        *,
        kind: str | None = None,
        cls: str | None = None,
        inside: str | None = None,
        patience: float = 20,
    ) -> Seen:
        """The first widget whose name or text begins so; waited for."""
        found: list[Seen] = self.wait(
            f"{kind or cls or 'widget'} {text!r}",
            lambda: self.all(text, kind=kind, cls=cls, inside=inside),
            patience,
        )
        return found[0]

    def same(self, as_before: Seen) -> Seen | None:
        """The same widget as it stands now, where it can still be seen."""
        return next((each for each in self.widgets() if each.id == as_before.id), None)

    def says(self, text: str) -> bool:
        """Whether these words stand anywhere."""
        return any(text in each.text or text in each.name for each in self.widgets())

    def focus(self) -> Seen | None:
        """What has the keyboard."""
        return next((each for each in self.widgets() if each.focus), None)

    def wait(self, what: str, until: Callable[[], Any], patience: float = PATIENCE) -> Any:
        """What ``until`` gives once it gives something."""
        deadline = time.monotonic() + patience
        while True:
            found = until()
            if found:
                return found
            if time.monotonic() > deadline:
                self.picture("gone")
                raise Gone(f"{what} did not come in {patience:g} s")
            time.sleep(0.2)

    def picture(self, name: str) -> Path:
        """The whole screen."""
        self._taken += 1
        path = self.pictures / f"{self._taken:02}-{name}.png"
        self.run("import", "-window", "root", str(path))
        return path

    def shot(self, place: list[int]) -> bytes:
        """A part of the screen, to be compared with itself at another time."""
        x, y, width, height = place
        done = subprocess.run(
            ["import", "-window", "root", "-crop", f"{width}x{height}+{x}+{y}", "rgb:-"],
            env=self.environment,
            capture_output=True,
            check=True,
            timeout=60,
        )
        return done.stdout

    # --- hands ------------------------------------------------------------------------------------------------------

    def run(self, *command: str) -> str:
        """A command on this screen; what it prints."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout.strip()

    def move(self, place: Seen | tuple[int, int]) -> None:
        """Put the pointer there."""
        x, y = place.middle if isinstance(place, Seen) else place
        self.run("xdotool", "mousemove", str(x), str(y))
        time.sleep(0.05)

    def click(self, place: Seen | tuple[int, int], *, times: int = 1, button: int = 1) -> None:
        """Click there."""
        self.move(place)
        self.run("xdotool", "click", "--repeat", str(times), "--delay", "60", str(button))

    def wheel(self, place: Seen | tuple[int, int], steps: int) -> None:
        """Turn the wheel there; downwards for a positive number."""
        self.move(place)
        self.run("xdotool", "click", "--repeat", str(abs(steps)), "--delay", "15", "5" if steps > 0 else "4")

    def drag(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Press, move in steps, let go."""
        self.move(start)
        self.run("xdotool", "mousedown", "1")
        steps = 12
        for step in range(1, steps + 1):
            x = start[0] + (end[0] - start[0]) * step // steps
            y = start[1] + (end[1] - start[1]) * step // steps
            self.run("xdotool", "mousemove", str(x), str(y))
            time.sleep(0.05)
        time.sleep(0.2)
        self.run("xdotool", "mouseup", "1")

    def key(self, *keys: str) -> None:
        """Press keys as xdotool names them."""
        self.run("xdotool", "key", "--clearmodifiers", "--delay", "40", *keys)

    def type(self, text: str) -> None:
        """Type a text."""
        self.run("xdotool", "type", "--delay", "12", text)

    def copy(self, text: str) -> None:
        """Put a text on the clipboard, as another program would; it stays there until the next."""
        command = [sys.executable, "-m", "tests.by_hand.clipboard", text]
        source = subprocess.Popen(command, env=self.environment, cwd=ROOT, stdout=subprocess.PIPE)
        self._children.append(source)
        assert source.stdout is not None
        source.stdout.readline()

    def resize(self, width: int, height: int) -> None:
        """Give the program's window a size, at the corner of the screen."""
        window = self.run("xdotool", "search", "--onlyvisible", "--name", "miLLM Desktop").splitlines()[0]
        self.run("xdotool", "windowsize", "--sync", window, str(width), str(height))
        self.run("xdotool", "windowmove", "--sync", window, "0", "0")


@contextmanager
def desk(pictures: Path, **options: Any) -> Iterator[Desk]:
    """A desk that is cleared afterwards."""
    made = Desk(pictures, **options)
    try:
        yield made
    finally:
        made.close()

"""What every scene uses: its notes, a desk with a data folder of its own, and the ways to a page and to a model."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.by_hand.desk import Desk, Gone, Seen, desk

PAGES = ("Home", "Chat", "Records", "Steering", "Profiles", "Clusters", "Circuits", "Sweep", "Features", "Monitor")
SHELVES = ("Models", "SAEs", "Server", "Settings")
ALL = (*PAGES, *SHELVES)
SOON = 0.6
"""Seconds in which a page settles after a key or a click."""


@dataclass
class Notes:
    """What a scene saw: (what, whether it is right, details), and times in seconds."""

    rows: list[tuple[str, bool, str]] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)

    def note(self, what: str, right: object, details: object = "") -> None:
        """Write one down, and say it."""
        self.rows.append((what, bool(right), str(details)))
        print(f"  {'ok  ' if right else 'BAD '} {what}{f' | {details}' if details else ''}", flush=True)

    def timed(self, what: str, since: float) -> None:
        """How long something took."""
        self.times[what] = round(time.monotonic() - since, 1)
        print(f"  {self.times[what]:6.1f} s  {what}", flush=True)


@contextmanager
def seated(pictures: Path, data: Path | None, **options: Any) -> Iterator[Desk]:
    """A desk with a copy of the data folder, so that no scene sees what another did."""
    with tempfile.TemporaryDirectory(prefix="by-hand-") as home:
        own = None
        if data is not None:
            own = Path(home) / "data"
            shutil.copytree(data, own)
            # What was in memory last is not loaded at the start: the scenes load it as a newcomer does.
            options["environment"] = {**options.get("environment", {}), "MILLM_RESTORE_LAST": "false"}
        with desk(pictures, data=own, home=Path(home), **options) as made:
            yield made


def open_page(at: Desk, title: str) -> None:
    """Open a page by its button in the navigation."""
    at.click(at.find(title, inside="Navigation", kind="button", patience=120))
    at.wait(f"the page {title}", lambda: at.page() == title.lower(), 30)
    time.sleep(SOON)


def turn_to(at: Desk, title: str) -> None:
    """Open a page by keys."""
    number = ALL.index(title)
    at.key(*([f"ctrl+{number + 1}"] if number < 9 else ["ctrl+9", *["ctrl+Next"] * (number - 8)]))
    at.wait(f"the page {title}", lambda: at.page() == title.lower(), 30)
    time.sleep(SOON)


def ready(at: Desk) -> None:
    """The window is there and nothing of a welcome lies over it."""
    at.wait("the window", at.page)
    comes(at, lambda: at.all("Not now", kind="button"), 10)
    for _ in range(5):
        # It makes way for what comes under it, also for a moment after it was looked for.
        for each in at.all("Not now", kind="button"):
            at.click(each)
        if comes(at, lambda: not at.all("Not now", kind="button"), 1):
            return
    raise Gone("the welcome does not go")


def load(at: Desk) -> None:
    """A model in memory and the demo's SAEs attached, by whatever Home offers."""
    ready(at)
    # One that is kept in memory is loaded at the start.
    if not comes(at, lambda: _in_memory(at) or first(at, "Cancel"), 5):
        _until(at, "Load SmolLM2-135M-Instruct", lambda: _in_memory(at))
    at.wait("the model", lambda: _in_memory(at), 120)
    _until(at, "Attach “", lambda: at.says("Attached on layer"))


def _in_memory(at: Desk) -> bool:
    """Whether Home says that a model is loaded: in a small window its button may lie further up."""
    return first(at, "Unload") is not None or any(each.text == "loaded" for each in at.widgets())


def _until(at: Desk, button: str, done: Callable[[], Any]) -> None:
    """Press a button, again where the press came too early, until something is so."""
    for number in range(4):
        at.click(still(at, button))
        if comes(at, done, 45):
            return
        print(f"  pressed {button!r} in vain, {number + 1}", flush=True)
        at.picture("in-vain")
        if at.all("Not now", kind="button"):
            at.click(at.find("Not now", kind="button"))
    raise Gone(f"{button!r} does nothing")


def still(at: Desk, text: str) -> Seen:
    """A button that can be pressed, once it stays where it is: cards grow when a load ends."""
    found: Seen | None = None
    deadline = time.monotonic() + 120
    missed = 0
    while time.monotonic() < deadline:
        before, found = found, first(at, text)
        if before is not None and found is not None and before.rect == found.rect:
            return found
        missed = 0 if found is not None else missed + 1
        if missed > 6:
            # Down the page bit by bit, and from its end to the top again.
            at.wheel((at.size[0] * 2 // 3, at.size[1] - 60), -80 if missed % 30 == 0 else 1)
        time.sleep(0.4)
    at.picture("gone")
    raise Gone(f"{text!r} does not come, or does not stay where it is")


def scrolled_to(at: Desk, text: str) -> Seen:
    """A button that can be pressed, scrolled to where it is out of sight."""
    at.move((at.size[0] * 2 // 3, at.size[1] - 60))
    for _ in range(20):
        if found := first(at, text):
            return found
        at.run("xdotool", "click", "--repeat", "2", "5")
        time.sleep(0.3)
    raise Gone(f"{text!r} is nowhere on the page")


def first(at: Desk, text: str) -> Seen | None:
    """The first button of that name that can be pressed."""
    found = [each for each in at.all(text, kind="button") if each.enabled]
    # Another may begin alike: a model, and its quantised file.
    return next((each for each in found if each.name == text), found[0] if found else None)


def comes(at: Desk, until: Callable[[], Any], patience: float = 30) -> bool:
    """Whether something comes about in time."""
    deadline = time.monotonic() + patience
    while not until():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def writing(at: Desk) -> bool:
    """Whether an answer is being written."""
    return bool(at.all("Stop (Esc)", kind="button"))


def answers(at: Desk) -> list[str]:
    """The texts of the answers of the conversation, from the first to the last, each with all its parts."""
    found: dict[int, list[str]] = {}
    for each in at.there():
        if each.facts["class"] == "FlowText" and "AnswerMessage" in each.inside and each.text.strip():
            answer = each.around[each.inside.index("AnswerMessage")]
            found.setdefault(answer, []).append(each.text.strip())
    return ["\n".join(parts) for parts in found.values()]


def typed(at: Desk) -> str | None:
    """What stands in the field of Chat where the keyboard is in it."""
    focus = at.focus()
    return str(focus.text) if focus is not None and focus.name == "Your message" else None

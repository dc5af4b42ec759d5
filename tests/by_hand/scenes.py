"""What is done by hand, scene by scene. A scene notes what it saw and goes on; the first of its pictures tells the rest.

Each takes a place for pictures and a prepared data folder (with the demo model installed), and gives its notes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.by_hand.desk import ROOT, Desk, Gone, Seen, desk

PAGES = ("Home", "Chat", "Records", "Steering", "Profiles", "Clusters", "Circuits", "Sweep", "Features", "Monitor")
SHELVES = ("Models", "SAEs", "Server", "Settings")
TURNED = ("combo", "spin", "slider", "tabs", "dial")


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
def _desk(pictures: Path, data: Path | None, **options: Any) -> Iterator[Desk]:
    """A desk with a copy of the data folder, so that no scene sees what another did."""
    with tempfile.TemporaryDirectory(prefix="by-hand-") as home:
        own = None
        if data is not None:
            own = Path(home) / "data"
            shutil.copytree(data, own)
        with desk(pictures, data=own, home=Path(home), **options) as made:
            yield made


def _open(at: Desk, title: str) -> str | None:
    """Open a page by its button in the navigation; its key."""
    button = at.find(title, cls="Nav", kind="button", patience=120)
    at.click(button)
    at.wait(f"the page {title}", lambda: any(b.value for b in at.all(title, cls="Nav", kind="button")), 30)
    time.sleep(0.6)
    return at.page()


def _ready(at: Desk) -> None:
    """The window is there and nothing of a welcome lies over it."""
    at.find("Home", cls="Nav", kind="button", patience=120)
    for word in ("Skip", "Not now", "Close the welcome"):
        for each in at.all(word, kind="button"):
            at.click(each)


def _load(at: Desk) -> None:
    """A model in memory and the demo's SAEs attached, by whatever Home offers."""
    _ready(at)
    _open(at, "Home")
    at.click(at.find("Load SmolLM2-135M-Instruct", kind="button"))
    attach = at.wait("the model", lambda: _first(at, "Attach"), 300)
    at.click(attach)
    at.wait("the SAEs", lambda: not at.all("Attach the demo", kind="button"), 120)


def _first(at: Desk, text: str) -> Seen | None:
    found = [each for each in at.all(text, kind="button") if each.enabled]
    return found[0] if found else None


# --- scenes -----------------------------------------------------------------------------------------------------------


def first_run(pictures: Path, data: Path) -> Notes:
    """From nothing: the folder is asked, then two clicks and Enter to the first steered words; every click twice."""
    notes = Notes()
    with _desk(pictures, None) as at:
        at.find("Start", kind="button", patience=60)
        at.picture("folder")
        at.key("Return")
        at.find("Home", cls="Nav", kind="button", patience=120)
        at.picture("home")
        install = at.find("Install the demo model", kind="button")
        since = time.monotonic()
        at.click(install, times=2)
        for each in at.all("Install the demo model", kind="button"):
            at.click(each)
        seen: list[tuple[float, Any]] = []

        def offered() -> Seen | None:
            bars = [each.value for each in at.widgets() if "Progress" in each.facts["class"]]
            seen.append((time.monotonic() - since, bars[:1]))
            return _first(at, "Compare")

        button = at.wait("Compare", offered, 600)
        notes.timed("installed, loaded and attached", since)
        moved = [b for (_, a), (_, b) in pairwise(seen) if a != b]
        notes.note("the bar moved", len(moved) >= 5, f"{len(moved)} steps seen")
        at.picture("installed")
        at.click(button)
        at.wait("Chat", lambda: at.page() == "chat", 30)
        focus = at.focus()
        notes.note("the keyboard is in the composer", focus is not None and focus.kind == "edit", focus and focus.label)
        at.key("Return")
        began = time.monotonic()
        at.wait("words of both answers", lambda: _words(at) >= 2, 120)
        notes.timed("from Enter to words of both", began)
        notes.timed("from the first click to the first steered words", since)
        at.picture("steered")
    return notes


def _words(at: Desk) -> int:
    """How many answers on the screen have text."""
    return sum(bool(each.text.strip()) for each in at.widgets() if each.facts["class"] in ("MarkdownView", "FlowText"))


def wheel(pictures: Path, data: Path) -> Notes:
    """The wheel over every control of every page changes nothing."""
    notes = Notes()
    with _desk(pictures, data) as at:
        _load(at)
        for title in (*PAGES, *SHELVES):
            _open(at, title)
            before = {_place(each): each for each in at.widgets() if each.kind in TURNED and each.on_top}
            controls = [each for each in before.values() if "ScrollBar" not in each.facts["class"]]
            for each in controls:
                if not _still_there(at, each):
                    continue
                at.wheel(each, 3)
                at.wheel(each, -3)
                at.wheel(each, 2)
                now = next((one for one in at.widgets() if one.label == each.label and one.kind == each.kind), None)
                same = now is None or now.value == each.value
                notes.note(
                    f"{title}: {each.kind} {each.label!r}", same, "" if same else f"{each.value} → {now and now.value}"
                )
                at.wheel(each, -8)
            at.picture(f"wheel-{title.lower()}")
    return notes


def _place(each: Seen) -> tuple[str, str, int, int]:
    return each.facts["class"], each.label, each.rect[0], each.rect[1]


def _still_there(at: Desk, each: Seen) -> bool:
    return any(_place(one) == _place(each) for one in at.widgets())


def shortcuts(pictures: Path, data: Path) -> Notes:
    """Every key that F1 lists does what it says."""
    notes = Notes()
    with _desk(pictures, data) as at:
        _load(at)
        keys = {f"ctrl+{n}": title for n, title in enumerate(PAGES[:9], start=1)}
        for key, title in keys.items():
            at.key(key)
            time.sleep(0.5)
            notes.note(f"{key}: {title}", at.page() == title.lower(), at.page())
        at.key("ctrl+1", "ctrl+Next")
        time.sleep(0.5)
        notes.note("ctrl+PgDown: the page after", at.page() == "chat", at.page())
        at.key("ctrl+Prior")
        time.sleep(0.5)
        notes.note("ctrl+PgUp: the page before", at.page() == "home", at.page())
        at.key("ctrl+comma")
        time.sleep(0.5)
        notes.note("ctrl+,: Settings", at.page() == "settings", at.page())
        at.key("F1")
        time.sleep(0.8)
        notes.note("F1: the list", at.says("a new chat"))
        at.picture("keys")
        at.key("Escape")
        at.key("ctrl+l")
        time.sleep(0.5)
        focus = at.focus()
        notes.note(
            "ctrl+L: the field of Chat",
            at.page() == "chat" and focus is not None and focus.kind == "edit",
            focus and focus.label,
        )
        before = _compare_on(at)
        at.key("ctrl+d")
        time.sleep(0.8)
        notes.note("ctrl+D: Compare", _compare_on(at) != before)
        at.type("Say: one")
        at.key("shift+Return")
        at.type("two")
        focus = at.focus()
        notes.note(
            "shift+Enter breaks the line", focus is not None and focus.text == "Say: one\ntwo", focus and focus.text
        )
        at.key("Return")
        time.sleep(1)
        at.key("Escape")
        notes.note("Esc stops", at.wait("the end of the answer", lambda: not at.all("Stop", kind="button"), 30))
        at.key("ctrl+n")
        time.sleep(0.6)
        notes.note("ctrl+N: a new chat", not any("one" in each.text and "two" in each.text for each in at.widgets()))
        at.key("ctrl+9")
        edit = at.find(kind="edit", patience=20)
        at.click(edit)
        at.type("The ship sailed over the cold grey sea.")
        at.key("ctrl+Return")
        notes.note(
            "ctrl+Enter reads in Features",
            _comes(at, lambda: bool(at.all(cls="TokenChips") or at.all(cls="TokenText"))),
        )
        at.picture("read")
        at.key("ctrl+q")
        notes.note("ctrl+Q ends", _ends(at))
    return notes


def _compare_on(at: Desk) -> object:
    return [each.value for each in at.all("Compare") if each.kind == "button"]


def _comes(at: Desk, until: Callable[[], bool], patience: float = 30) -> bool:
    try:
        return bool(at.wait("it", until, patience))
    except Gone:
        return False


def _ends(at: Desk) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if at.program.poll() is not None:
            return at.program.returncode == 0
        time.sleep(0.1)
    return False


def drops(pictures: Path, data: Path) -> Notes:
    """A document and a file that is none, dropped on every page: read or refused in words, and no veil stays."""
    notes = Notes()
    with tempfile.TemporaryDirectory() as folder, _desk(pictures, data) as at:
        _ready(at)
        document = Path(folder) / "sea.cluster.json"
        facts = json.loads((ROOT / "assets" / "demo" / "clusters" / "sea.cluster.json").read_text(encoding="utf-8"))
        document.write_text(json.dumps({**facts, "name": "Dropped by hand"}), encoding="utf-8")
        strange = Path(folder) / "picture.xyz"
        strange.write_bytes(b"\x00\x01nothing anyone reads")
        for file in (strange, document):
            source = subprocess.Popen(
                [sys.executable, "-m", "tests.by_hand.drag_source", str(file)], env=at.environment, cwd=ROOT
            )
            try:
                at.wait("the source", lambda: at.run("xdotool", "search", "--onlyvisible", "--name", "drag_source"), 30)
                for title in (*PAGES, *SHELVES):
                    _open(at, title)
                    before = {each.text for each in at.widgets() if each.kind == "label"}
                    at.drag((12, 12), (at.size[0] // 2 + 60, at.size[1] // 2))
                    time.sleep(1.2)
                    words = [each.text for each in at.widgets() if each.kind == "label" and each.text not in before]
                    notes.note(f"{title}: {file.name}", words, " / ".join(words)[:120])
                    veil = [each for each in at.widgets() if "Veil" in each.facts["class"]]
                    notes.note(f"{title}: no veil stays", not veil)
                    at.picture(f"drop-{file.suffix[1:]}-{title.lower()}")
                    at.key("Escape")
            finally:
                source.terminate()
                source.wait()
    return notes


def small(pictures: Path, data: Path) -> Notes:
    """800×600, and 200 % on 1280×800: nothing scrolls sideways, everything can be reached."""
    notes = Notes()
    for name, options in (
        ("800x600", {"size": (800, 600)}),
        ("200%", {"size": (1280, 800), "scale": 2.0}),
    ):
        with _desk(pictures, data, **options) as at:
            _ready(at)
            at.resize(*at.size)
            for title in (*PAGES, *SHELVES):
                _go(at, title)
                time.sleep(0.6)
                bars = [
                    each
                    for each in at.widgets()
                    if "ScrollBar" in each.facts["class"] and each.rect[2] > 3 * each.rect[3]
                ]
                notes.note(f"{name} {title}: nothing scrolls sideways", not bars, [each.rect for each in bars])
                outside = [
                    each.label
                    for each in at.widgets()
                    if each.tab and each.enabled and (each.rect[0] < 0 or each.rect[0] + each.rect[2] > at.size[0] + 2)
                ]
                notes.note(f"{name} {title}: nothing stands out at the side", not outside, outside[:4])
                at.picture(f"{name.strip('%')}-{title.lower()}")
    return notes


def _go(at: Desk, title: str) -> None:
    """To a page by the keyboard: at small sizes the navigation may have no words."""
    number = (*PAGES, *SHELVES).index(title)
    if number < 9:
        at.key(f"ctrl+{number + 1}")
    else:
        at.key("ctrl+9", *["ctrl+Next"] * (number - 8))
    at.wait(f"the page {title}", lambda: at.page() == title.lower(), 30)


def keyboard(pictures: Path, data: Path) -> Notes:
    """Without a mouse: Tab comes to every control that can be seen, and what has the keyboard can be seen."""
    notes = Notes()
    with _desk(pictures, data) as at:
        _ready(at)
        for title in (*PAGES, *SHELVES):
            _go(at, title)
            time.sleep(0.4)
            wanted = {
                _named(each) for each in at.widgets() if each.tab and each.enabled and each.kind not in (None, "label")
            }
            reached: set[tuple[str, str]] = set()
            hidden: list[str] = []
            first: tuple[Any, ...] | None = None
            for _ in range(90):
                at.key("Tab")
                focus = at.focus()
                if focus is None:
                    continue
                if focus.shown[2] <= 2 or focus.shown[3] <= 2:
                    hidden.append(focus.label)
                key = (*_named(focus), *focus.rect[:2])
                if first is None:
                    first = key
                elif key == first:
                    break
                reached.add(_named(focus))
                if focus.kind == "edit":
                    at.key("ctrl+Tab")
            left = sorted(str(each) for each in wanted - reached)
            notes.note(f"{title}: Tab comes everywhere", len(left) <= 1, left[:5])
            notes.note(f"{title}: what has the keyboard can be seen", not hidden, hidden[:5])
            at.picture(f"keyboard-{title.lower()}")
    return notes


def _named(each: Seen) -> tuple[str, str]:
    return each.facts["class"], each.label


SCENES: dict[str, Callable[[Path, Path], Notes]] = {
    "first-run": first_run,
    "wheel": wheel,
    "shortcuts": shortcuts,
    "drops": drops,
    "small": small,
    "keyboard": keyboard,
}

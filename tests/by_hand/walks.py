"""Scenes that go through every page: the wheel, things that are dropped, small windows, the keyboard alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.by_hand.common import ALL, Notes, comes, first, load, open_page, ready, scrolled_to, seated, turn_to
from tests.by_hand.desk import ROOT, Desk, Seen
from tests.gguf_files import build_gguf
from tests.tiny import build_checkpoint

TURNED = ("combo", "spin", "slider", "tabs", "dial")
SIZES = (("800x600", {"size": (800, 600)}), ("200%", {"size": (1280, 800), "scale": 2.0}))
TABS = 120
"""More presses of Tab than any page has controls."""


def wheel(pictures: Path, data: Path) -> Notes:
    """The wheel over every control of every page, also those that have to be scrolled to, changes nothing."""
    notes = Notes()
    with seated(pictures, data) as at:
        load(at)
        _something_to_turn(at)
        for title in ALL:
            open_page(at, title)
            done: set[int] = set()
            changed: list[str] = []
            screens = 0
            while True:
                for each in _controls(at, done):
                    done.add(each.id)
                    now = at.same(each)
                    if now is None or not now.on_top:
                        continue
                    at.wheel(now, 2)
                    at.wheel(now, -4)
                    time.sleep(0.1)
                    after = at.same(each)
                    if after is not None and after.value != now.value:
                        changed.append(f"{each.kind} {each.label!r}: {now.value} → {after.value}")
                    at.wheel(now, 2)
                screens += 1
                at.picture(f"{title.lower()}-{screens}")
                if screens > 12 or not _scroll_on(at):
                    break
            notes.note(f"{title}: {len(done)} controls", not changed, changed)
    return notes


def _something_to_turn(at: Desk) -> None:
    """A cluster under Chat's dial, and a feature on Steering."""
    at.click(scrolled_to(at, "Compare in Chat"))
    at.find(cls="DialTrack")
    open_page(at, "Steering")
    field = at.find("Features to add", kind="edit")
    at.click(field)
    at.type("17")
    at.key("Return")
    at.find(cls="FeatureRow")


def _controls(at: Desk, done: set[int]) -> list[Seen]:
    return [
        each
        for each in at.widgets()
        if each.kind in TURNED and each.on_top and each.id not in done and "ScrollBar" not in each.facts["class"]
    ]


def _scroll_on(at: Desk) -> bool:
    """Turn the wheel over the page's own bar; False at its end."""
    bars = [each for each in at.widgets() if "ScrollBar" in each.facts["class"] and each.rect[3] > at.size[1] // 2]
    for bar in bars:
        at.wheel(bar, 4)
        time.sleep(0.2)
        now = at.same(bar)
        if now is not None and now.value != bar.value:
            return True
    return False


def drops(pictures: Path, data: Path) -> Notes:
    """Dropped on every page: each thing goes where it belongs, or is refused in words; no veil stays."""
    notes = Notes()
    with tempfile.TemporaryDirectory() as folder, seated(pictures, data) as at:
        ready(at)
        place = Path(folder)
        strange = place / "holiday.xyz"
        strange.write_bytes(b"\x00\x01nothing anyone reads")
        for number, title in enumerate(ALL):
            page = title.lower()
            document = _document(place / f"sea{number}.cluster.json", f"Dropped on {title}")
            model = _model(place, f"tiny-{page}")
            gguf = build_gguf(model, place / f"small-{page}-F32.gguf", name=f"small-{page}")
            own = page if page in ("profiles", "clusters", "circuits") else "clusters"
            for file, where, words in (
                (strange, page, "holiday.xyz is nothing that is taken here"),
                (document, own, f"Dropped on {title}"),
                (model, "models", model.name),
                (gguf, "models", f"small-{page}:F32"),
            ):
                turn_to(at, title)
                with _source(at, file):
                    at.drag((24, 14), (at.size[0] // 2 + 60, at.size[1] // 2))
                    come = comes(at, lambda words=words, where=where: at.says(words) and at.page() == where, 12)
                    notes.note(f"{title}: {file.name}", come, "" if come else f"{at.page()}, {_said(at)}")
                    veil = [each for each in at.widgets() if each.object == "veil"]
                    notes.note(f"{title}: {file.name}, no veil stays", not veil)
                    at.picture(f"{page}-{file.suffix[1:] or 'folder'}")
                at.key("Escape")
    return notes


def _document(path: Path, name: str) -> Path:
    facts = json.loads((ROOT / "assets" / "demo" / "clusters" / "sea.cluster.json").read_text(encoding="utf-8"))
    path.write_text(json.dumps({**facts, "name": name}), encoding="utf-8")
    return path


def _model(place: Path, name: str) -> Path:
    """A folder of a model of its own: one that is on the shelf already is told otherwise."""
    made = place / "first"
    if not made.exists():
        build_checkpoint(made)
    return Path(shutil.copytree(made, place / name))


def _said(at: Desk) -> list[str]:
    return [each.text[:160] for each in at.widgets() if each.kind == "label" and len(each.text) > 40][-3:]


@contextmanager
def _source(at: Desk, file: Path) -> Iterator[None]:
    source = subprocess.Popen(
        [sys.executable, "-m", "tests.by_hand.drag_source", str(file)], env=at.environment, cwd=ROOT
    )
    try:
        at.wait("the source", lambda: at.run("xdotool", "search", "--onlyvisible", "--name", "drag source"), 30)
        time.sleep(0.3)
        yield
    finally:
        source.terminate()
        source.wait()


def small(pictures: Path, data: Path) -> Notes:
    """800×600, and 200 % on 1280×800: nothing scrolls sideways, stands outside, or has less room than its words."""
    notes = Notes()
    for name, options in SIZES:
        with seated(pictures / name.strip("%"), data, **options) as at:
            load(at)
            at.resize(*at.size)
            for title in ALL:
                turn_to(at, title)
                screens = 0
                sideways: list[str] = []
                outside: list[str] = []
                cut: list[str] = []
                while True:
                    for each in at.widgets():
                        x, _, width, height = each.rect
                        if "ScrollBar" in each.facts["class"] and width > 3 * height and each.on_top:
                            sideways.append(f"in {each.inside[1]}")
                        if each.tab and each.enabled and (x < 0 or x + width > at.size[0] + 2):
                            outside.append(each.label)
                        if each.cut:
                            cut.append(each.label)
                    screens += 1
                    at.picture(f"{title.lower()}-{screens}")
                    if screens > 12 or not _scroll_on(at):
                        break
                for words, found in (
                    ("nothing scrolls sideways", sideways),
                    ("nothing stands out at the side", outside),
                    ("words have the room they want", cut),
                ):
                    notes.note(f"{name} {title}: {words}", not found, list(dict.fromkeys(found))[:6])
            turn_to(at, "Chat")
            send = at.all("Send (Enter)", kind="button")
            inside = [each for each in send if each.rect[1] + each.rect[3] <= at.size[1]]
            notes.note(f"{name} Chat: the button that sends can be reached", inside)
    return notes


def keyboard(pictures: Path, data: Path) -> Notes:
    """Without a mouse: Tab comes to every control that can be seen, and what has the keyboard can be seen."""
    notes = Notes()
    with seated(pictures, data) as at:
        _load_by_keys(at, notes)
        for title in ALL:
            turn_to(at, title)
            wanted = {each.id: each for each in at.widgets() if each.tab and each.enabled and each.kind}
            reached: set[object] = set()
            hidden: list[str] = []
            begun: int | None = None
            for _ in range(TABS):
                at.key("Tab")
                focus = at.focus()
                if focus is None:
                    hidden.append("nothing that can be seen")
                    continue
                if begun is None:
                    begun = focus.id
                elif focus.id == begun:
                    break
                reached |= {focus.id, _named(focus)}
            left = [
                f"{each.label} in {each.inside[0]}"
                for each in wanted.values()
                if each.id not in reached and _named(each) not in reached and at.same(each) is not None
            ]
            notes.note(f"{title}: Tab comes to all {len(wanted)}", not left, left[:6])
            notes.note(f"{title}: what has the keyboard can be seen", not hidden, len(hidden))
            notes.note(f"{title}: Tab comes round", begun is not None and focus is not None and focus.id == begun)
            at.picture(title.lower())
    return notes


def _load_by_keys(at: Desk, notes: Notes) -> None:
    """The first steps with Tab and the space bar."""
    at.wait("the window", at.page)
    if comes(at, lambda: at.all("Not now", kind="button"), 10):
        at.key("Escape")
    notes.note("Esc ends the welcome", comes(at, lambda: not at.all("Not now", kind="button"), 5))
    loaded = comes(at, lambda: first(at, "Unload") or first(at, "Cancel"), 5)
    for words in (*(() if loaded else ("Load SmolLM2-135M-Instruct",)), "Attach “", "Compare in Chat"):
        if words.startswith("Attach"):
            at.wait("the model", lambda: first(at, "Attach “"), 180)
        if words.startswith("Compare"):
            at.wait("the SAEs", lambda: at.says("Attached on layer"), 120)
        pressed = False
        for _ in range(TABS):
            focus = at.focus()
            if focus is not None and focus.label.startswith(words):
                at.key("space")
                pressed = True
                break
            at.key("Tab")
        notes.note(f"{words}: by Tab and space", pressed)
    notes.note("Chat comes, with the keys in its field", comes(at, lambda: at.page() == "chat", 20))


def _named(each: Seen) -> tuple[str, str]:
    return each.facts["class"], each.label

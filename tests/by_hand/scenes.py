"""What is done by hand in the order in which a person does it: the first minute, a comparison, the keys.

Each scene takes a place for pictures and a prepared data folder (with the demo model installed), and gives its notes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.by_hand.common import (
    ALL,
    SOON,
    Notes,
    answers,
    comes,
    first,
    load,
    open_page,
    scrolled_to,
    seated,
    turn_to,
    typed,
    writing,
)
from tests.by_hand.desk import ROOT, Desk, Seen
from tests.by_hand.walks import drops, keyboard, small, wheel

INSTALL = "Install the demo model"
LONGEST_STAND = 8.0
"""Seconds a bar may stand still before a person takes it for dead."""


def first_run(pictures: Path, data: Path) -> Notes:
    """From nothing: the folder is asked, then impatient clicks, *Compare* and Enter to the first steered words."""
    notes = Notes()
    # The wheel that was fetched once is not fetched again, so that the times are those of this machine.
    kept = {"PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip")), "HF_HUB_OFFLINE": ""}
    with seated(pictures, None, environment=kept) as at:
        at.find("Continue", kind="button", patience=60)
        notes.timed("from the start to the question", at.began)
        at.picture("folder")
        entered = time.monotonic()
        at.key("Return")
        at.wait("the window", at.page)
        notes.timed("from Enter to the window", entered)
        at.wait("an offer", lambda: first(at, INSTALL), 60)
        time.sleep(1)
        at.picture("home")
        places = [each for each in at.all(INSTALL, kind="button") if each.enabled and each.on_top]
        notes.note("one or more ways to install", places, [each.inside[0] for each in places])
        since = time.monotonic()
        for each in places:
            at.click(each, times=2)
        for each in places:
            at.click(each)
        left = [each.inside[0] for each in at.all(INSTALL, kind="button") if each.enabled]
        notes.note("no button to install is live while it installs", not left, left)
        at.picture("clicked")
        at.key("ctrl+l")
        time.sleep(SOON)
        stale = [each.label for each in at.all(INSTALL, kind="button") if each.enabled]
        notes.note("Chat does not offer what is under way", not stale, stale)
        at.picture("chat-meanwhile")
        at.key("ctrl+1")
        button, seen = _install_watched(at, since)
        notes.timed("from the first click to Compare", since)
        steps = [value for (_, value), (_, after) in pairwise(seen) if value != after]
        notes.note("the bar moved", len(steps) >= 5, f"{len(seen)} values in {seen[-1][0]:.0f} s")
        back = [(a, b) for (_, a), (_, b) in pairwise(seen) if b is not None and a is not None and b < a]
        notes.note("the bar never went back", not back, back)
        stood = max(((after - before, value) for (before, value), (after, _) in pairwise(seen)), default=(0.0, None))
        notes.note("the bar never stood", stood[0] <= LONGEST_STAND, f"{stood[0]:.1f} s at {stood[1]} %")
        at.picture("installed")
        notes.note("the welcome has gone", not at.all("Show me around", inside="CoachPanel"))
        clicked = time.monotonic()
        at.click(button)
        at.wait("Chat", lambda: at.page() == "chat", 30)
        at.wait("the question in the field", lambda: typed(at), 20)
        notes.timed("from Compare to the question in the field", clicked)
        at.picture("compare")
        at.key("Return")
        began = time.monotonic()
        at.wait("words of both answers", lambda: len(answers(at)) >= 2, 120)
        notes.timed("from Enter to words of both", began)
        notes.timed("from the first click to the first steered words", since)
        at.picture("steered")
        open_page(at, "Models")
        kept = [each.text for each in at.widgets() if each.kind == "label" and each.text.endswith("MB")]
        notes.note("what lies in the data folder is counted as kept there", "0.0 MB" not in kept[:1], kept)
        at.picture("models")
        log = at.data / "logs" / "millm.log"
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        wrong = [row for row in text.splitlines() if " ERROR " in row or "Traceback" in row]
        notes.note("nothing failed in the log", text and not wrong, wrong[:3] or f"{len(text.splitlines())} lines")
    notes.note("the load of this machine", True, os.getloadavg())
    return notes


def _install_watched(at: Desk, since: float) -> tuple[Seen, list[tuple[float, Any]]]:
    """Wait for *Compare*, and note when the bar of the installation showed which value."""
    seen: list[tuple[float, Any]] = [(0.0, None)]

    def offered() -> Seen | None:
        there = at.widgets()
        bars = [each.value for each in there if "Progress" in each.facts["class"] and "ModelCard" in each.inside]
        now = time.monotonic() - since
        if bars and bars[0] != seen[-1][1]:
            seen.append((now, bars[0]))
            words = [each.text for each in there if each.look == "muted" and "ModelCard" in each.inside]
            print(f"  {now:6.1f} s  {bars[0]} %  {' / '.join(words)[:90]}", flush=True)
        return first(at, "Compare in Chat")

    button = at.wait("Compare", offered, 600)
    seen.append((time.monotonic() - since, None))
    return button, seen


def compare(pictures: Path, data: Path) -> Notes:
    """The dial turned by the mouse while both are written; at λ 0 both are the same; the keys stay where one types."""
    notes = Notes()
    with seated(pictures, data) as at:
        load(at)
        at.picture("loaded")
        at.click(scrolled_to(at, "Compare in Chat"))
        at.wait("the question", lambda: typed(at), 30)
        at.picture("question")
        at.key("Return")
        at.wait("words of both", lambda: len(answers(at)) >= 2, 120)
        _drag_dial(at, 0.3)
        notes.note("it was still written when the dial was let go", writing(at))
        at.type("typed after the dial")
        there = comes(at, lambda: typed(at) == "typed after the dial", 3)
        notes.note("what is typed after the dial goes into the field", there, typed(at))
        at.picture("turned")
        at.wait("the end", lambda: not writing(at), 180)
        time.sleep(SOON)
        at.picture("ended")
        told = [
            each.text for each in at.there() if "AnswerMessage" in each.inside and "λ" in each.text and "→" in each.text
        ]
        notes.note("the footer tells the path of λ", told, told)
        at.key("ctrl+n")
        time.sleep(SOON)
        _drag_dial(at, 0.0)
        dial = at.find(cls="DialTrack")
        notes.note("the dial is at 0", dial.value == 0, dial.value)
        at.picture("zero")
        for number, question in enumerate(("Tell me about your day.", "What is a boat for?"), start=1):
            at.key("ctrl+l", "ctrl+a")
            at.type(question)
            at.key("Return")
            at.wait("both", lambda: writing(at) or len(answers(at)) >= 2, 60)
            at.wait("the end", lambda: not writing(at), 180)
            time.sleep(SOON)
            both = answers(at)[-2:]
            notes.note(
                f"λ 0, {number}: both are the same", len(both) == 2 and both[0] == both[1], [len(each) for each in both]
            )
            at.picture(f"zero-{number}")
            at.key("ctrl+n")
            time.sleep(SOON)
        marks = at.all(cls="DialMarks")
        back = first(at, "Back to")
        notes.note("a way back from λ 0 is offered", back is not None and marks)
        if back is not None:
            at.click(back)
            time.sleep(SOON)
            notes.note("and goes there", at.find(cls="DialTrack").value > 0, at.find(cls="DialTrack").value)
            at.type("x")
            notes.note("and the keys are in the field again", comes(at, lambda: typed(at) == "x", 3), typed(at))
    return notes


def _drag_dial(at: Desk, share: float) -> None:
    """Drag the handle of Chat's dial to a share of its track."""
    track = at.find(cls="DialTrack", inside="SteerStrip")
    x, y, width, height = track.rect
    low, high = track.range
    handle = round(20 * height / height)
    here = (track.value - low) / (high - low)

    def place(where: float) -> tuple[int, int]:
        return round(x + handle / 2 + where * (width - handle)), y + height // 2

    at.drag(place(here), place(share))
    time.sleep(0.3)


def shortcuts(pictures: Path, data: Path) -> Notes:
    """Every key that F1 lists does what it says."""
    notes = Notes()
    with seated(pictures, data) as at:
        load(at)
        listed = _listed(at, notes)
        tried: list[str] = []

        def tells(key: str, what: str, right: object, details: object = "") -> None:
            tried.append(key)
            notes.note(f"{key}: {what}", right, details)

        for number, title in enumerate(ALL[:9], start=1):
            at.key(f"ctrl+{number}")
            tells("Ctrl+1 … Ctrl+9", title, comes(at, lambda title=title: at.page() == title.lower(), 10), at.page())
        at.key("ctrl+1")
        at.key("ctrl+Next")
        tells("Ctrl+PgUp, Ctrl+PgDown", "the page after", comes(at, lambda: at.page() == "chat", 10), at.page())
        at.key("ctrl+Prior")
        tells("Ctrl+PgUp, Ctrl+PgDown", "the page before", comes(at, lambda: at.page() == "home", 10), at.page())
        at.key("ctrl+comma")
        tells("Ctrl+,", "Settings", comes(at, lambda: at.page() == "settings", 10), at.page())
        _chat_keys(at, tells)
        _steering_keys(at, tells)
        _document_keys(at, tells)
        turn_to(at, "Features")
        at.click(at.find("Read a text"))
        at.click(at.find("Text to read", kind="edit"))
        at.type("The ship sailed over the cold grey sea.")
        at.key("ctrl+Return")
        tells("Ctrl+Enter", "reads", comes(at, lambda: at.all(cls="TokenChips")))
        at.picture("read")
        at.key("ctrl+q")
        tells("Ctrl+Q", "ends", _ends(at))
        left = [each for each in listed if each not in tried and each != "F1"]
        notes.note("every key of the list was tried", not left, left)
    return notes


def _listed(at: Desk, notes: Notes) -> list[str]:
    at.key("F1")
    shown = comes(at, lambda: at.says("a new chat"), 5)
    notes.note("F1: the list", shown)
    at.picture("keys")
    # Also what has to be scrolled to.
    window = next(each for each in at.look() if each["class"] == "ShortcutsDialog")
    keys = [each["text"] for each in window["widgets"] if each["look"] == "mono"]
    at.key("Escape")
    time.sleep(SOON)
    notes.note("F1: Esc closes it", not at.says("a new chat"))
    return keys


def _chat_keys(at: Desk, tells: Callable[..., None]) -> None:
    at.key("ctrl+l")
    tells("Ctrl+L", "the field of Chat", comes(at, lambda: typed(at) is not None, 10), at.page())
    before = at.find("Compare", kind="button").value
    at.key("ctrl+d")
    time.sleep(SOON)
    tells("Ctrl+D", "Compare", at.find("Compare", kind="button").value != before)
    at.key("ctrl+d")
    at.type("Count from one to five hundred,")
    at.key("shift+Return")
    at.type("in words.")
    two = "Count from one to five hundred,\nin words."
    tells("Shift+Enter", "breaks the line", comes(at, lambda: typed(at) == two, 3), typed(at))
    at.key("Return")
    tells("Enter", "sends", comes(at, lambda: writing(at), 10))
    at.wait("words", lambda: answers(at), 60)
    busy = writing(at)
    at.key("Escape")
    tells("Esc", "stops", busy and comes(at, lambda: not writing(at), 10), "" if busy else "had ended before")
    at.picture("stopped")
    at.key("ctrl+n")
    tells("Ctrl+N", "a new chat", comes(at, lambda: not answers(at), 10) and comes(at, lambda: typed(at) == "", 3))
    rows = at.find("Saved conversations")
    count = rows.value
    at.click((rows.rect[0] + 40, rows.rect[1] + 14))
    comes(at, lambda: answers(at), 10)
    at.key("Delete")
    tells("Del", "deletes the conversation", comes(at, lambda: at.says("Undo"), 10), count)
    at.picture("deleted")


def _steering_keys(at: Desk, tells: Callable[..., None]) -> None:
    open_page(at, "Home")
    at.click(scrolled_to(at, "Compare in Chat"))
    at.wait("the question", lambda: typed(at), 30)
    at.wait("the dial", lambda: at.find(cls="Switch").value, 20)
    at.key("ctrl+t")
    off = comes(at, lambda: not at.find(cls="Switch").value, 10)
    at.key("ctrl+t")
    tells("Ctrl+T", "off and on", off and comes(at, lambda: at.find(cls="Switch").value, 10))
    way: list[str] = []
    while len(way) < 60 and (not way or way[-1] not in ("IntensityDial", "DialTrack")):
        at.key("Tab")
        focus = at.focus()
        way.append(focus.facts["class"] if focus is not None else "nothing")
    before = at.find(cls="DialTrack").value
    at.key("Left")
    one = at.find(cls="DialTrack").value
    at.key("Prior")
    ten = at.find(cls="DialTrack").value
    right = abs(one - before) == 5 and abs(ten - one) == 25
    tells("Arrows, Page Up, Page Down", "small and larger steps", right, (before, one, ten, way[-12:]))
    turn_to(at, "Steering")
    at.click(at.find("Features to add", kind="edit"))
    at.type("17")
    at.key("Return")
    rows = len(at.all(cls="FeatureRow"))
    there = comes(at, lambda: at.says("#17"), 10)
    at.picture("feature")
    at.click(at.find("Steering", inside="Navigation", kind="button"))
    at.key("ctrl+z")
    tells("Ctrl+Z", "takes it back", there and comes(at, lambda: not at.says("#17"), 10), f"{rows} rows")


def _document_keys(at: Desk, tells: Callable[..., None]) -> None:
    document = (ROOT / "assets" / "demo" / "clusters" / "sea.cluster.json").read_text(encoding="utf-8")
    for title in ("Profiles", "Clusters", "Circuits"):
        name = f"Pasted on {title}"
        at.copy(json.dumps({**json.loads(document), "name": name}))
        turn_to(at, title)
        at.key("ctrl+v")
        tells("Ctrl+V", f"pastes on {title}", comes(at, lambda name=name: at.says(name), 15))
        at.picture(f"pasted-{title.lower()}")
    turn_to(at, "Circuits")
    drawing = at.find(cls="CircuitCanvas")
    at.click(drawing)
    before = at.shot(drawing.shown)
    changes = []
    for key in ("plus", "minus", "plus", "0", "Down", "Up"):
        at.key(key)
        time.sleep(0.4)
        after = at.shot(drawing.shown)
        changes.append((key, after != before))
        before = after
    at.key("Tab")
    at.key("Return")
    opened = comes(at, lambda: at.page() == "features", 10)
    tells("Arrows, Tab", "go, zoom and open", all(each for _, each in changes) and opened, (changes, at.page()))
    at.picture("opened")


def _ends(at: Desk) -> bool:
    return comes(at, lambda: at.program.poll() is not None, 20) and at.program.returncode == 0


SCENES: dict[str, Callable[[Path, Path], Notes]] = {
    "first-run": first_run,
    "compare": compare,
    "wheel": wheel,
    "shortcuts": shortcuts,
    "drops": drops,
    "small": small,
    "keyboard": keyboard,
}

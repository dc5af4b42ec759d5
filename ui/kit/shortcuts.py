"""The keys of the window, in words: one list, shown by F1 and held by a test to what the keys do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

HELP: Final = "F1"
SETTINGS: Final = "Ctrl+,"
NEW_CHAT: Final = "Ctrl+N"
COMPARE: Final = "Ctrl+D"
WRITE: Final = "Ctrl+L"
STEERING: Final = "Ctrl+T"
NEXT_PAGE: Final = "Ctrl+PgDown"
FORMER_PAGE: Final = "Ctrl+PgUp"
QUIT: Final = "Ctrl+Q"
STOP: Final = "Esc"
NUMBERED = 9
"""Pages with a key of their own, Ctrl+1 and so on."""

ELSEWHERE: Final = (
    (
        "In Chat",
        (
            ("Enter", "send the message"),
            ("Shift+Enter", "break the line"),
            (STOP, "stop the answer that is being written, else end the tour"),
            ("Del", "delete the conversation that is chosen in the list"),
        ),
    ),
    (
        "In Steering and its documents",
        (
            ("Ctrl+Z", "take the last change of the dials back, on Steering"),
            ("Ctrl+V", "paste a document, on Profiles, Clusters and Circuits"),
            ("Arrows, Tab", "go through the drawing of a circuit; Enter opens a feature, + − 0 zoom"),
            ("Arrows, Page Up, Page Down", "move a dial in small and in larger steps"),
        ),
    ),
    ("In Features", (("Ctrl+Enter", "read the text"),)),
)
"""Keys that a page or a part of it has for itself: head, then (keys, what they do)."""


def key_groups(pages: Sequence[str]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Every key with what it does, under heads. ``pages`` are the titles of the pages, in order."""
    numbered = ", ".join(f"{number} {title}" for number, title in enumerate(pages[:NUMBERED], start=1))
    everywhere = [
        (f"Ctrl+1 … Ctrl+{min(NUMBERED, len(pages))}", f"the pages: {numbered}"),
        (f"{FORMER_PAGE}, {NEXT_PAGE}", "the page before, the page after"),
        (STEERING, "switch what steers off, and on again"),
        (NEW_CHAT, "a new chat"),
        (WRITE, "to the field of Chat"),
        (COMPARE, "Compare on or off, in Chat"),
        (SETTINGS, "Settings"),
        (HELP, "this list"),
        (QUIT, "end the program"),
    ]
    return [("Everywhere", everywhere), *((head, list(rows)) for head, rows in ELSEWHERE)]

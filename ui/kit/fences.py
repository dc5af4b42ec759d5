"""Splits a Markdown text into prose and fenced code, so that code gets its own widget with its own copy button, and
long prose into stretches, so that a text being written is drawn anew only at its end.

Fences follow CommonMark §4.5: at most three spaces of indentation, at least three backticks or tildes, closed by a
run of the same character at least as long. Fences inside lists or quotes stay part of the prose. An unclosed fence
runs to the end, which is what a text that is still being written looks like.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

STRETCH = 1200
"""Characters after which prose is cut at the next paragraph that stands on its own."""

_JOINED = re.compile(r"\s|[-+*] |\d+[.)]|[|>]")
"""Beginnings of a line that may belong to what stands above a blank line: indentation, lists, tables, quotes."""
_OPEN = re.compile(r"^ {0,3}(?P<marks>`{3,}|~{3,})(?P<info>.*)$")


@dataclass(frozen=True)
class Segment:
    """A stretch of a Markdown text. ``language`` is None for prose, else the fence's first word (may be empty)."""

    text: str
    language: str | None = None

    @property
    def is_code(self) -> bool:
        """Whether this is the inside of a fence."""
        return self.language is not None


def _stretches(prose: str) -> list[str]:
    """``prose`` cut after :data:`STRETCH` characters wherever a blank line is followed by a paragraph or a heading."""
    done: list[str] = []
    held: list[str] = []
    length = 0
    for text_line in prose.split("\n"):
        if length >= STRETCH and not held[-1].strip() and text_line.strip() and not _JOINED.match(text_line):
            done.append("\n".join(held).strip("\n"))
            held, length = [], 0
        held.append(text_line)
        length += len(text_line) + 1
    return [*done, "\n".join(held).strip("\n")]


def split_fences(markdown: str) -> list[Segment]:
    """The text as alternating prose and code, in order; stretches of prose that are only blank are left out."""
    segments: list[Segment] = []
    held: list[str] = []
    marks = ""
    language: str | None = None

    def close() -> None:
        text = "\n".join(held)
        held.clear()
        if language is not None:
            segments.append(Segment(text, language))
        elif text.strip():
            segments.extend(Segment(stretch) for stretch in _stretches(text.strip("\n")))

    for text_line in markdown.split("\n"):
        opened = _OPEN.match(text_line)
        if language is None:
            if opened and not (opened["marks"][0] == "`" and "`" in opened["info"]):
                close()
                marks = opened["marks"]
                words = opened["info"].split()
                language = words[0] if words else ""
            else:
                held.append(text_line)
        elif opened and opened["marks"].startswith(marks) and not opened["info"].strip():
            close()
            language = None
        else:
            held.append(text_line)
    close()
    return segments

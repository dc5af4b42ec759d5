"""What a model wrote before an answer stands apart from it; saved answers that hold both are split, once.

Nothing is lost but the tags and the white space around them. Only what an assistant said is split, on either side of a
comparison: where the open tag begins the text, a line, or a word; and at a close tag on a line's edge where none was
opened, since the prompt had opened it. A tag in the midst of a sentence or in a block of code is only spoken of.

The rule stands here, not in the program's splitter, which may change: what a step does to a database stays as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

OPEN, CLOSE = "<think>", "</think>"
FENCE = "```"
_OPENED = re.compile(r"\A\s*<think>|^[ \t]*<think>|(?<![`'\"“‘])<think>(?=\w|\n)", re.MULTILINE)
_CLOSED = re.compile(r"^[ \t]*</think>|</think>(?=[ \t]*\n\s*\S)", re.MULTILINE)
_PUT = "UPDATE messages SET content = :content, reasoning = :reasoning, details = :details WHERE id = :id"


def upgrade() -> None:
    op.add_column("messages", sa.Column("reasoning", sa.Text(), server_default="", nullable=False))
    connection = op.get_bind()
    rows = connection.execute(sa.text("SELECT id, content, details FROM messages WHERE role = 'assistant'")).fetchall()
    for row_id, content, details in rows:
        known, unreadable = _read(details)
        answer = {"content": content, "details": known}
        changed = [_split(side) for side in (answer, known.get("plain"))]
        if any(changed):
            put = {"content": answer["content"], "reasoning": answer.get("reasoning", ""), "id": row_id}
            connection.execute(sa.text(_PUT), {**put, "details": details if unreadable else json.dumps(known)})


def downgrade() -> None:
    connection = op.get_bind()
    for row_id, *kept in connection.execute(sa.text("SELECT id, content, reasoning, details FROM messages")).fetchall():
        content, reasoning, details = kept
        known, unreadable = _read(details)
        answer = {"content": content, "reasoning": reasoning, "details": known}
        changed = [_joined(side) for side in (answer, known.get("plain"))]
        if any(changed):
            put = {"content": answer["content"], "reasoning": "", "id": row_id}
            connection.execute(sa.text(_PUT), {**put, "details": details if unreadable else json.dumps(known)})
    op.drop_column("messages", "reasoning")


def _split(side: Any) -> bool:
    """Split ``side``, an answer with ``content`` and ``details``, in place; whether there was something to split."""
    if not isinstance(side, dict) or not isinstance(side.get("content"), str):
        return False
    text: str = side["content"]
    kinds = kinds_of(text)
    if kinds is None:
        return False
    side["content"], side["reasoning"] = _of("c", text, kinds), _of("r", text, kinds)
    details = side.get("details")
    if isinstance(details, dict) and "pieces" in details:
        pieces = _split_pieces(details["pieces"], text, kinds)
        if pieces is None:
            # They are another text's, and would be shown in the place of this one.
            del details["pieces"]
        else:
            details["pieces"] = pieces
    return True


def _joined(side: Any) -> bool:
    reasoning = side.pop("reasoning", "") if isinstance(side, dict) else ""
    if not reasoning:
        return False
    side["content"] = f"{OPEN}\n{reasoning}\n{CLOSE}\n\n{side.get('content', '')}"
    details = side.get("details")
    if isinstance(details, dict):
        details.pop("pieces", None)
    return True


def kinds_of(text: str) -> str | None:
    """For each character "c" (content), "r" (reasoning), "t" (a tag) or "-" (white space that is not shown); None where
    there is no reasoning.
    """
    opened = next((each for each in _OPENED.finditer(text) if not _in_code(text, each.start())), None)
    closed = next((each for each in _CLOSED.finditer(text) if not _in_code(text, each.start())), None)
    if opened is not None and (closed is None or opened.end() <= closed.end()):
        begin, start = opened.end() - len(OPEN), opened.end()
    elif closed is not None and OPEN not in text[: closed.end()]:
        begin = start = 0
    else:
        return None
    close = text.find(CLOSE, start)
    end, after = (close, close + len(CLOSE)) if close >= 0 else (len(text), len(text))
    said = bool(text[:begin].strip())
    kinds = ("c" if said else "-") * begin + "t" * (start - begin) + _edged(text[start:end], "r", both=True)
    return kinds + "t" * (after - end) + _edged(text[after:], "c", both=not said)


def _in_code(text: str, place: int) -> bool:
    return text.count(FENCE, 0, place) % 2 == 1


def _edged(text: str, kind: str, *, both: bool) -> str:
    """``kind`` for each character, but for the white space at its end and, of ``both``, at its start."""
    kept = text.rstrip()
    ahead = len(kept) - len(kept.lstrip()) if both else 0
    return "-" * ahead + kind * (len(kept) - ahead) + "-" * (len(text) - len(kept))


def _of(wanted: str, text: str, kinds: str) -> str:
    return "".join(letter for letter, kind in zip(text, kinds, strict=True) if kind == wanted)


def _split_pieces(pieces: Any, text: str, kinds: str) -> list[list[Any]] | None:
    """``pieces`` (text, token ids) with "reasoning" as a third part where they are that; None where they are not
    those of ``text``.
    """
    if not isinstance(pieces, list) or not all(
        isinstance(each, list) and len(each) == 2 and isinstance(each[0], str) and isinstance(each[1], list)
        for each in pieces
    ):
        return None
    if "".join(each[0] for each in pieces) != text:
        return None
    made: list[list[Any]] = []
    place, kind = 0, "c"
    for part, tokens in pieces:
        runs = list(_runs(part, kinds[place : place + len(part)], kind))
        place += len(part)
        for words, kind in runs[:-1]:
            made.append([words, []] if kind == "c" else [words, [], "reasoning"])
        words, kind = runs[-1]
        made.append([words, tokens] if kind == "c" else [words, tokens, "reasoning"])
    return made


def _runs(part: str, kinds: str, before: str) -> Iterator[tuple[str, str]]:
    """What is shown of a piece, by kind; one at least. A tag is the reasoning's."""
    place, kind, found = 0, before, False
    for mark, run in groupby(kinds):
        length = len(list(run))
        kind = {"t": "r", "-": kind}.get(mark, mark)
        if mark in "cr":
            found = True
            yield part[place : place + length], kind
        place += length
    if not found:
        yield "", kind


def _read(details: str) -> tuple[dict[str, Any], bool]:
    """What is known of an answer, and whether it could not be read: then it stays as it is."""
    try:
        found = json.loads(details)
    except ValueError:
        return {}, True
    return (found, False) if isinstance(found, dict) else ({}, True)

"""Saved answers of the version before, whose text holds the model's reasoning, are split when the library is opened."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from engine.library import migrate
from engine.library.conversations import StoredMessage
from engine.library.database import Library

PUT = "INSERT INTO messages (conversation_id, position, role, content, details) VALUES (1, ?, ?, ?, ?)"


def opened(path: Path, *messages: tuple[str, str, dict[str, Any]]) -> tuple[StoredMessage, ...]:
    """These messages, written by the version before and read by this one."""
    old = create_engine(f"sqlite:///{path}")
    with old.begin() as connection:
        migrate.upgrade_connection(connection, "0006")
    old.dispose()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(
            "INSERT INTO conversations (title, system_prompt, created_at, updated_at) "
            "VALUES ('t', '', '2026-01-02 03:04:05', '2026-01-02 03:04:06')"
        )
        for place, (role, content, details) in enumerate(messages):
            raw.execute(PUT, (place, role, content, json.dumps(details)))
        raw.commit()
    with Library.open(path) as library:
        saved = library.conversations.get(1)
    assert saved is not None
    return saved.messages


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>why</think>because", "why", "because"),
        ("\n<think>\nwhy\n\nnot\n</think>\n\nbecause \n", "why\n\nnot", "because"),
        ("<think>never closed ", "never closed", ""),
        ("fox<think>qu", "qu", "fox"),
        ("Hm. <think>why</think> So. ", "why", "Hm.  So."),
        ("First.\n<think>\nwhy\n</think>\nSo.", "why", "First.\n\nSo."),
        ("<think></think>x", "", "x"),
        ("<think>a</think><think>b</think>", "a", "<think>b</think>"),
        ("<think> they write <think> and </think>. </think>x", "they write <think> and", ". </think>x"),
        # The prompt had opened the tag.
        ("why\n</think>\n\nbecause", "why", "because"),
        ("why</think>\n\nbecause", "why", "because"),
        ("why\n</think>", "why", ""),
        # Only spoken of.
        ("The <think> tag opens it, </think> closes it.", "", "The <think> tag opens it, </think> closes it."),
        ("Write `<think>` first.", "", "Write `<think>` first."),
        ("It ends with </think>", "", "It ends with </think>"),
        ("no opening</think> here", "", "no opening</think> here"),
        ("So:\n```\n<think>\nx\n</think>\n```\n", "", "So:\n```\n<think>\nx\n</think>\n```\n"),
        (" plain \n", "", " plain \n"),
        ("", "", ""),
    ],
)
def test_an_answer_is_split(tmp_path: Path, text: str, reasoning: str, content: str) -> None:
    (found,) = opened(tmp_path / "millm.db", ("assistant", text, {"model": "tiny"}))
    assert found == StoredMessage("assistant", content, {"model": "tiny"}, reasoning)


def test_what_others_said_stays_as_it_was(tmp_path: Path) -> None:
    said = "<think>why</think>because"
    assert opened(tmp_path / "millm.db", ("user", said, {}), ("system", said, {})) == (
        StoredMessage("user", said, {}),
        StoredMessage("system", said, {}),
    )


def test_either_side_of_a_comparison_is_split(tmp_path: Path) -> None:
    plain = {"content": "<think>p</think>P", "details": {"model": "tiny"}}
    first, second = opened(
        tmp_path / "millm.db",
        ("assistant", "<think>s</think>S", {"plain": plain}),
        ("assistant", "S", {"plain": plain, "seconds_total": float("nan")}),
    )
    split = {"content": "P", "reasoning": "p", "details": {"model": "tiny"}}
    assert (first.content, first.reasoning, first.details) == ("S", "s", {"plain": split})
    assert (second.content, second.reasoning, second.details["plain"]) == ("S", "", split)


def test_pieces_stay_with_their_tokens(tmp_path: Path) -> None:
    pieces = [["<thi", [1]], ["nk>w", [2]], ["hy ", []], ["</think>\nbe", [3, 4]], ["cause", [5]], [" ", [6]]]
    whole = "".join(text for text, _ in pieces)  # type: ignore[misc]
    (found,) = opened(tmp_path / "millm.db", ("assistant", whole, {"pieces": pieces}))
    assert (found.reasoning, found.content) == ("why", "because")
    assert found.details["pieces"] == [
        ["", [1], "reasoning"],
        ["w", [2], "reasoning"],
        ["hy", [], "reasoning"],
        ["be", [3, 4]],
        ["cause", [5]],
        ["", [6]],
    ]


def test_pieces_of_another_text_do_not_stay(tmp_path: Path) -> None:
    (found,) = opened(tmp_path / "millm.db", ("assistant", "<think>a</think>b", {"pieces": [["c", [1]]]}))
    assert found == StoredMessage("assistant", "b", {}, "a")


def test_it_is_split_once(tmp_path: Path) -> None:
    path = tmp_path / "millm.db"
    (found,) = opened(path, ("assistant", "<think>a</think>\n<think>b</think>", {}))
    with Library.open(path) as library:
        again = library.conversations.get(1)
    assert again is not None and again.messages == (found,)
    assert (found.reasoning, found.content) == ("a", "<think>b</think>")

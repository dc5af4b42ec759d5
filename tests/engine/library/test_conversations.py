"""Saved conversations."""

from __future__ import annotations

import pytest

from engine.errors import InvalidParameter, NotFound
from engine.library.conversations import CUT_OFF, StoredMessage
from engine.library.database import Library

USER = StoredMessage("user", "What is the sea?", {})
ANSWER = StoredMessage("assistant", "Salt water. 🙂", {"model": "tiny", "finish_reason": "stop", "tokens": [3, 4]})


def test_a_conversation_comes_back_as_it_was_saved(library: Library) -> None:
    saved = library.conversations.create("The sea", "Be brief.", [USER, ANSWER])
    assert library.conversations.get(saved.id) == saved
    assert (saved.title, saved.system_prompt) == ("The sea", "Be brief.")
    assert saved.messages == (USER, ANSWER)
    assert saved.created_at == saved.updated_at


def test_replacing_keeps_what_is_not_named(library: Library) -> None:
    saved = library.conversations.create("The sea", "Be brief.", [USER])
    changed = library.conversations.replace(saved.id, messages=[USER, ANSWER, USER])
    assert (changed.title, changed.system_prompt) == ("The sea", "Be brief.")
    assert changed.messages == (USER, ANSWER, USER)
    assert changed.created_at == saved.created_at and changed.updated_at >= saved.updated_at
    assert library.conversations.replace(saved.id, title="Water", system_prompt="").messages == (USER, ANSWER, USER)
    assert library.conversations.replace(saved.id, messages=[]).messages == ()
    assert library.conversations.get(saved.id).title == "Water"  # type: ignore[union-attr]


def test_the_list_has_the_last_changed_first_and_counts_messages(library: Library) -> None:
    first = library.conversations.create("first", "", [USER, ANSWER])
    library.conversations.create("second", "", [])
    assert [(row.title, row.message_count) for row in library.conversations.list()] == [("second", 0), ("first", 2)]
    library.conversations.replace(first.id, title="again")
    assert [row.title for row in library.conversations.list()] == ["again", "second"]


def test_search_looks_into_both_sides_of_a_comparison(library: Library) -> None:
    beside = {"content": "He said: a Lighthouse.", "details": {"model": "lantern"}}
    figures: dict[str, object] = {"seconds_total": float("nan")}
    library.conversations.create("one", "", [USER, StoredMessage("assistant", "The sea.", {"plain": beside})])
    library.conversations.create("two", "", [USER, StoredMessage("assistant", "A lighthouse keeper.", figures)])
    library.conversations.create("three", "", [USER, ANSWER])
    assert [row.title for row in library.conversations.list("lightHOUSE")] == ["two", "one"]
    # Only what was written is searched, not what is known about it.
    assert library.conversations.list("lantern") == []


@pytest.mark.parametrize(
    ("search", "titles"),
    [
        (None, ["Groß 50%", "ÄPFEL", "plain"]),
        ("  ", ["Groß 50%", "ÄPFEL", "plain"]),
        ("äpfel", ["ÄPFEL"]),
        ("gross", ["Groß 50%"]),
        ("ПРИВЕТ", ["plain"]),
        ("%", ["Groß 50%"]),
        ("_", []),
        ("\ud800", []),
    ],
)
def test_search_knows_no_case_and_no_wildcards(library: Library, search: str | None, titles: list[str]) -> None:
    library.conversations.create("plain", "", [USER, StoredMessage("assistant", "он сказал: привет", {})])
    library.conversations.create("ÄPFEL", "", [])
    library.conversations.create("Groß 50%", "", [])
    assert [row.title for row in library.conversations.list(search)] == titles


def test_removing_takes_the_messages_along(library: Library) -> None:
    saved = library.conversations.create("a", "", [USER, ANSWER])
    kept = library.conversations.create("b", "", [USER])
    library.conversations.remove(saved.id)
    assert library.conversations.get(saved.id) is None
    assert library.conversations.list("salt water") == []
    assert library.conversations.get(kept.id) == kept
    assert library.conversations.create("c").id == kept.id + 1


@pytest.mark.parametrize("conversation_id", [0, -3, 99, 2**70])
def test_missing_conversations(library: Library, conversation_id: int) -> None:
    assert library.conversations.get(conversation_id) is None
    with pytest.raises(NotFound):
        library.conversations.replace(conversation_id, title="x")
    with pytest.raises(NotFound):
        library.conversations.remove(conversation_id)


def test_a_bad_message_saves_nothing(library: Library) -> None:
    saved = library.conversations.create("a", "", [USER])
    with pytest.raises(InvalidParameter) as caught:
        library.conversations.create("b", "", [USER, StoredMessage("tool", "x", {})])
    assert caught.value.param == "messages.1.role"
    with pytest.raises(InvalidParameter) as caught:
        library.conversations.replace(saved.id, title="changed", messages=[StoredMessage("user", "x", {"a": object()})])
    assert caught.value.param == "messages.0.details"
    assert [row.title for row in library.conversations.list()] == ["a"]
    assert library.conversations.get(saved.id) == saved


def test_lone_surrogates_are_stored_as_replacement_characters(library: Library) -> None:
    saved = library.conversations.create(
        "a\ud800", "", [StoredMessage("user", "x\udc00y \ud83d\ude42", {"k": "\ud800"})]
    )
    assert saved.title == "a\ufffd"
    found = library.conversations.get(saved.id)
    assert found is not None
    assert found.messages[0].content == "x\ufffdy 🙂"
    assert found.messages[0].details == {"k": "\ud800"}


def test_a_growing_answer_is_written_over_itself(library: Library) -> None:
    question = StoredMessage("user", "why", {})
    saved = library.conversations.create("Why", "", [question])
    for text in ("be", "because"):
        library.conversations.put_message(saved.id, 1, StoredMessage("assistant", text, {"finish_reason": CUT_OFF}))
    found = library.conversations.get(saved.id)
    assert found is not None
    assert found.messages == (question, StoredMessage("assistant", "because", {"finish_reason": "interrupted"}))
    assert found.updated_at >= saved.updated_at
    assert [each.title for each in library.conversations.list("because")] == ["Why"]
    with pytest.raises(NotFound):
        library.conversations.put_message(saved.id + 1, 1, question)
    with pytest.raises(InvalidParameter):
        library.conversations.put_message(saved.id, 1, StoredMessage("tool", "x", {}))

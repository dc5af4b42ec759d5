"""What chat clients ask beside the conversation is told from what people ask."""

from __future__ import annotations

from typing import Any

import pytest

from server.auxiliary_tasks import side_call

HISTORY = "\n### Chat History:\n<chat_history>\nUSER: generate a concise title\n</chat_history>"


def chat(text: Any, **more: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}],
        **more,
    }


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n### Guidelines:\n- x"
            + HISTORY,
            "title",
        ),
        ("### Task:\nGenerate a concise title summarizing the chat history." + HISTORY, "title"),
        (
            "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history, along with 1-3 more "
            "specific subtopic tags." + HISTORY,
            "tags",
        ),
        (
            "### Task:\nSuggest 3-5 relevant follow-up questions or prompts that the user might naturally ask next in this "
            "conversation as a **user**, based on the chat history." + HISTORY,
            "follow-up",
        ),
        (
            "### Task:\nPredict 3-5 useful messages this user might naturally send next to advance their current "
            "objective." + HISTORY,
            "follow-up",
        ),
        ("### Task:\nSummarize the conversation history that will be compacted out of the context.", "summary"),
        (
            "### Task:\nAnalyze the chat history to determine the necessity of generating search queries, in the given "
            "language." + HISTORY,
            "search query",
        ),
        (
            "### Task:\nGenerate a detailed prompt for am image generation task based on the given language and context."
            + HISTORY,
            "image prompt",
        ),
        ("### Task:\nYou are an autocompletion system. Continue the text in `<text>`.", "autocomplete"),
        ("### Task:\nSag in drei Worten, worum es geht." + HISTORY, "helper task"),
        ("Your task is to reflect the speaker's likely facial expression through a fitting emoji.", "emoji"),
        ("You have been provided with a set of responses from various models to the latest user query: x", "merge"),
        ("Provide a concise, 5-word-or-less title for the conversation, using title case conventions.", "title"),
        ("Please generate a short title for this chat", "title"),
        ("Based on the chat history, give this conversation a name. Keep it short.", "title"),
    ],
)
def test_tasks_are_known_by_their_wording(text: str, kind: str) -> None:
    assert side_call(chat(text)) == kind
    assert side_call(chat([{"type": "text", "text": text}])) == kind


@pytest.mark.parametrize(
    "text",
    [
        "Generate a concise title for my novel about the sea.",
        "What is a follow-up question?",
        "### Task:\nWrite a poem about tags and titles.",
        "Suggest three broad tags for this photo.",
        "How do I write '### Task: Generate a concise title' in Python?",
        "",
    ],
)
def test_what_a_person_asks_is_not_marked(text: str) -> None:
    assert side_call(chat(text)) is None


def test_a_client_that_says_so_is_believed() -> None:
    assert side_call(chat("Hello", metadata={"task": "title_generation"})) == "title"
    assert side_call(chat("Hello", metadata={"task": "TASKS.TAGS_GENERATION"})) == "tags"
    assert side_call(chat("Hello", metadata={"task": "something_new"})) == "helper task"
    assert side_call(chat("Hello", metadata={"user": "7"})) is None


def test_only_the_last_thing_a_user_said_counts() -> None:
    body = chat("### Task:\nGenerate a concise title summarizing the chat history." + HISTORY)
    body["messages"] += [{"role": "assistant", "content": "Sea"}, {"role": "user", "content": "Thank you"}]
    assert side_call(body) is None


@pytest.mark.parametrize(
    "messages", [None, 3, "x", [3], [{"role": "user"}], [{"role": "user", "content": [7, {}]}], []]
)
def test_no_body_is_too_odd(messages: object) -> None:
    assert side_call({"messages": messages, "metadata": 3}) is None

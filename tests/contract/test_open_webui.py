"""What Open WebUI sends is answered: bodies as its version 0.12.4 sent them to this server.

Recorded between the two programs, from its window and from its API; its tools (36 of them) and the texts of its tasks
are cut to their beginnings, the keys and their order are as they came.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.conftest import MODEL, Live
from tests.waiting import wait_until

IGNORED = "X-miLLM-Ignored-Fields"

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_current_timestamp",
            "description": "Get the current Unix timestamp in seconds.",
            "parameters": {"properties": {}, "type": "object"},
        },
    },
    {
        "type": "function",
        "function": {
            "name": "search_chats",
            "description": "Search the user's previous chats.",
            "parameters": {
                "properties": {
                    "query": {"description": "The text to look for", "type": "string"},
                    "count": {"default": 5, "description": "How many at most", "type": "integer"},
                },
                "required": ["query"],
                "type": "object",
            },
        },
    },
]

FROM_THE_WINDOW: dict[str, Any] = {
    "stream": True,
    "model": MODEL,
    "temperature": 0,
    "max_tokens": 8,
    "messages": [{"role": "user", "content": "the quick brown fox"}],
    "tools": TOOLS,
}
THE_NEXT_TURN: dict[str, Any] = {
    **FROM_THE_WINDOW,
    "messages": [
        {"role": "user", "content": "the quick"},
        {"role": "assistant", "content": "brown fox"},
        {"role": "user", "content": "the lazy"},
    ],
}
FROM_A_PROGRAM: dict[str, Any] = {
    "model": MODEL,
    "stream": False,
    "messages": [{"role": "user", "content": "the quick brown fox"}],
    "max_tokens": 8,
}
SIDE_CALLS: dict[str, dict[str, Any]] = {
    "title": {
        "model": MODEL,
        "messages": [
            {
                "role": "user",
                "content": "### Task:\nGenerate a concise title summarizing the chat history.\n### Guidelines:\n- Short\n"
                "### Chat History:\n<chat_history>\nUSER: the quick brown fox\n</chat_history>",
            }
        ],
        "stream": False,
        "max_tokens": 1000,
    },
    "follow-up": {
        "model": MODEL,
        "messages": [
            {
                "role": "user",
                "content": "### Task:\nPredict 3-5 useful messages this user might naturally send next to advance their "
                "current objective.\n### Guidelines:\n- Short\n### Chat History:\n<chat_history>\nUSER: the quick\n"
                "ASSISTANT: brown fox\n</chat_history>",
            }
        ],
        "stream": False,
    },
    "tags": {
        "model": MODEL,
        "messages": [
            {
                "role": "user",
                "content": "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history, along "
                "with 1-3 more specific subtopic tags.\n\n### Guidelines:\n- Short\n### Chat History:\n<chat_history>\n"
                "USER: the quick\nASSISTANT: brown fox\n</chat_history>",
            }
        ],
        "stream": False,
    },
}


@pytest.fixture
def easy(live: Live, serve: Callable[..., Live]) -> Live:
    """A server that was told to answer without the tools it is offered."""
    return serve(live.engine, IGNORE_OFFERED_TOOLS=True)


def post(server: Live, body: dict[str, Any], **headers: str) -> Any:
    with server.http() as client:
        return client.post("/v1/chat/completions", json=body, headers=headers)


def streamed(text: str) -> str:
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])


def test_a_chat_from_its_window_is_answered(live: Live) -> None:
    answer = post(live, FROM_THE_WINDOW)
    assert answer.status_code == 200
    assert streamed(answer.text)
    # Described to this model they would fill a quarter of its window.
    assert answer.headers[IGNORED] == '"tools"'
    assert "left out" in answer.headers["X-miLLM-Notes"]


@pytest.mark.parametrize("body", [FROM_THE_WINDOW, THE_NEXT_TURN], ids=["first", "next"])
def test_a_chat_from_its_window_is_answered_without_its_tools(easy: Live, body: dict[str, Any]) -> None:
    answer = post(easy, body)
    assert answer.status_code == 200
    assert answer.headers[IGNORED] == '"tools"'
    bare = {name: value for name, value in body.items() if name != "tools"}
    assert streamed(answer.text) == streamed(post(easy, bare).text) != ""


def test_strict_mode_refuses_offered_tools(easy: Live) -> None:
    refused = post(easy, FROM_THE_WINDOW, **{"X-miLLM-Strict": "true"})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "unused_fields_refused"
    assert refused.json()["error"]["param"] == "tools"


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": "search"}, "tools"),
        ({"verbosity": "low"}, "verbosity"),
    ],
    ids=["no list", "another field"],
)
def test_what_is_wrong_is_refused_either_way(easy: Live, more: dict[str, Any], param: str) -> None:
    refused = post(easy, {**FROM_THE_WINDOW, **more})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == param


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_current_timestamp"}}])
def test_who_insists_is_served_with_its_tools(easy: Live, choice: Any) -> None:
    body = {**FROM_THE_WINDOW, "stream": False, "max_tokens": 400, "tool_choice": choice, "parallel_tool_calls": False}
    answer = post(easy, body)
    assert answer.status_code == 200
    assert IGNORED not in answer.headers
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"].startswith(("get_", "search_"))


def test_tool_choice_auto_is_an_offer(easy: Live) -> None:
    assert post(easy, {**FROM_THE_WINDOW, "tool_choice": "auto"}).status_code == 200


def test_text_completions_are_offered_no_tools(easy: Live) -> None:
    refused = easy.text(tools=TOOLS)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "tools"


def test_its_api_gets_the_models_and_an_answer(live: Live) -> None:
    with live.http() as client:
        assert MODEL in [each["id"] for each in client.get("/v1/models").json()["data"]]
    answer = post(live, FROM_A_PROGRAM)
    assert answer.status_code == 200
    assert IGNORED not in answer.headers


@pytest.mark.parametrize("kind", list(SIDE_CALLS))
def test_its_side_calls_are_answered_and_marked(live: Live, kind: str) -> None:
    # The model of this test would write on to the cap.
    answer = post(live, {**SIDE_CALLS[kind], "max_tokens": 8})
    assert answer.status_code == 200

    def marked() -> bool:
        ended = [entry for entry in live.thread.requests() if entry.status is not None]
        return any(entry.side_call == kind for entry in ended)

    wait_until(marked, f"a request marked as {kind}")

"""Calls that have to be written, against the same conversation answered freely."""

from __future__ import annotations

import itertools
import time
from typing import Any

from bench.harness import Row, compare
from bench.world import World

TOKENS = 64
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "Keeps a note.",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string", "minLength": 4000},
                    "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3},
                },
                "required": ["text"],
            },
        },
    }
    for number in range(4)
]


def measure(world: World, rounds: int) -> list[Row]:
    """The first token, and all of them."""
    info = world.loaded.info
    where = f"{info.dtype} on {info.device}; 4 tools, grammar compiled"
    fresh = itertools.count()

    def first(choice: str) -> float:
        return _seconds(world, choice, 1, f"Note number {next(fresh)}: ")

    return [
        compare(
            "first token of a request that has to call ÷ of one that may",
            lambda: first("required"),
            lambda: first("auto"),
            target=1.1,
            better="lower",
            unit="s",
            note=where,
            rounds=2 * rounds,
        ),
        compare(
            "writing a call ÷ writing freely",
            lambda: TOKENS / _seconds(world, "required", TOKENS, "Note: "),
            lambda: TOKENS / _seconds(world, "auto", TOKENS, "Note: "),
            target=0.9,
            unit="tok/s",
            note=f"{where}; {TOKENS} tokens, of which the string in the arguments is most",
            rounds=rounds,
        ),
    ]


def _seconds(world: World, choice: str, tokens: int, text: str) -> float:
    body: dict[str, Any] = {
        "model": world.loaded.record.name,
        "messages": [{"role": "user", "content": f"{text}write down what the sea is like, at length."}],
        "temperature": 0,
        "max_tokens": tokens,
        "min_tokens": tokens,
        "tools": _TOOLS,
        "tool_choice": choice,
    }
    begun = time.perf_counter()
    answer = world.client.post(f"{world.address}/chat/completions", json=body).raise_for_status().json()
    taken = time.perf_counter() - begun
    assert answer["usage"]["completion_tokens"] == tokens, answer
    return taken

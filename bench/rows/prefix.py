"""The prefix cache: time to the first token of a prompt whose first 600 tokens were read before; how many texts are
scored a second, as evaluation harnesses have it done, where all begin alike.
"""

from __future__ import annotations

import itertools
import time

from bench.harness import Row, compare
from bench.world import World

SHARED = 600
ITEMS, BEGINNING = 8, 200
_turns = itertools.count()


def measure(world: World, rounds: int) -> list[Row]:
    """``world`` must have the cache on. Each measurement has a prefix of its own, so nothing is shared by accident."""
    words = "the sea was calm and the ship went slowly along the coast in the evening while gulls cried above "

    def prompt(turn: int, question: str, tokens: int = SHARED) -> str:
        text = f"Story {turn}: " + words * 40
        ids = world.loaded.backend.tokenizer.encode(text, False)[:tokens]
        return world.loaded.backend.tokenizer.decode(ids) + question

    def items(turns: list[int]) -> float:
        prompts = [prompt(turn, f" And then? {item}", BEGINNING) for item, turn in enumerate(turns)]
        body = {"prompt": prompts, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
        begun = time.perf_counter()
        answer = world.client.post(
            f"{world.address}/completions", json={"model": world.loaded.record.name, **body}, timeout=600
        )
        answer.raise_for_status()
        return ITEMS / (time.perf_counter() - begun)

    def alike() -> float:
        return items([next(_turns)] * ITEMS)

    def apart() -> float:
        return items([next(_turns) for _ in range(ITEMS)])

    def cold() -> float:
        return 1000 * world.first_token_seconds(prompt(next(_turns), " What happened then?"))

    def cached() -> float:
        turn = next(_turns)
        world.first_token_seconds(prompt(turn, " Who was aboard?"))
        return 1000 * world.first_token_seconds(prompt(turn, " What happened then?"))

    return [
        compare(
            "time to first token, 600-token shared prefix: cached ÷ cold",
            cached,
            cold,
            target=0.25,
            unit="ms",
            better="lower",
            note=f"{world.loaded.info.dtype}; text completion",
            rounds=rounds,
        ),
        compare(
            f"texts with the figures of their tokens, a common beginning of {BEGINNING} tokens ÷ one each",
            alike,
            apart,
            target=2,
            unit="texts/s",
            note=f"{world.loaded.info.dtype}; {ITEMS} texts in one request",
            rounds=rounds,
        ),
    ]

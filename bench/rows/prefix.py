"""The prefix cache: time to the first token of a prompt whose first 600 tokens were read before."""

from __future__ import annotations

import itertools

from bench.harness import Row, compare
from bench.world import World

SHARED = 600
_turns = itertools.count()


def measure(world: World, rounds: int) -> list[Row]:
    """``world`` must have the cache on. Each measurement has a prefix of its own, so nothing is shared by accident."""
    words = "the sea was calm and the ship went slowly along the coast in the evening while gulls cried above "

    def prompt(turn: int, question: str) -> str:
        text = f"Story {turn}: " + words * 40
        ids = world.loaded.backend.tokenizer.encode(text, False)[:SHARED]
        return world.loaded.backend.tokenizer.decode(ids) + question

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
        )
    ]

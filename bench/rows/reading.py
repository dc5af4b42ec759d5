"""Reading without writing: scoring and embeddings, one request for many texts against a request each."""

from __future__ import annotations

import time
from typing import Any

from bench.harness import Row, compare
from bench.world import World

TEXTS = 16


def measure(world: World, rounds: int) -> list[Row]:
    """Texts per second, in one request and one by one."""
    texts = [f"{turn}. The ship left the harbour at dawn and was seen no more; the answer is" for turn in range(TEXTS)]
    note = f"{TEXTS} prompts of about 20 tokens"

    def score(prompts: list[str] | str) -> dict[str, Any]:
        return {"prompt": prompts, "max_tokens": 1, "logprobs": 2}

    def together(path: str, body: dict[str, Any]) -> float:
        return _per_second(world, [(path, body)])

    return [
        compare(
            "scoring, one request ÷ a request for each prompt",
            lambda: together("completions", score(texts)),
            lambda: _per_second(world, [("completions", score(text)) for text in texts]),
            target=0.95,
            unit="prompts/s",
            note=note,
            rounds=rounds,
        ),
        compare(
            "embeddings, one request ÷ a request for each text",
            lambda: together("embeddings", {"input": texts}),
            lambda: _per_second(world, [("embeddings", {"input": text}) for text in texts]),
            target=0.95,
            unit="texts/s",
            note=note,
            rounds=rounds,
        ),
    ]


def _per_second(world: World, requests: list[tuple[str, dict[str, Any]]]) -> float:
    begun = time.perf_counter()
    for path, body in requests:
        world.client.post(
            f"{world.address}/{path}", json={"model": world.loaded.record.name, **body}
        ).raise_for_status()
    return TEXTS / (time.perf_counter() - begun)

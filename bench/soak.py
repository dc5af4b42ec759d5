"""A thousand short requests of every kind, and what the process weighs before and after: ``python -m bench.soak``."""

from __future__ import annotations

import argparse
import gc
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from app.environment import prepare

prepare()

import httpx  # noqa: E402
import psutil  # noqa: E402

from app.demo.pack import SMOLLM2, PackPaths  # noqa: E402
from app.paths import Paths  # noqa: E402
from bench.world import SAE_IDS, World, open_world  # noqa: E402

MEGABYTE = 1e6


def bodies(world: World, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Requests of changing kinds: chats, steered or not, streamed or not, seeded, constrained, scored, embedded."""
    draw = random.Random(5)
    made: list[tuple[str, dict[str, Any]]] = []
    for turn in range(count):
        chat: dict[str, Any] = {
            "messages": [{"role": "user", "content": f"{draw.randrange(50)}: tell me about the sea"}],
            "max_tokens": draw.randrange(1, 9),
        }
        kind = turn % 8
        if kind == 1:
            chat["steering"] = {"sae_id": SAE_IDS[turn % 3], "features": [{"index": turn % 3000, "strength": 2.0}]}
        elif kind == 2:
            chat["stream"] = True
        elif kind == 3:
            chat["seed"] = turn
        elif kind == 4:
            chat["n"] = 2
        elif kind == 5:
            chat |= {"max_tokens": 24, "response_format": {"type": "json_object"}}
        if kind == 6:
            made.append(("completions", {"prompt": ["a", "b"], "max_tokens": 1, "logprobs": 2}))
        elif kind == 7:
            made.append(("embeddings", {"input": [f"text {turn}", "another"]}))
        else:
            made.append(("chat/completions", chat))
    return made


def main() -> None:
    """Print the weight as it goes."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description="Look for growth over many requests.")
    parser.add_argument("--model", type=Path, default=PackPaths.of(Paths.find(), SMOLLM2).checkpoint)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=6)
    given = parser.parse_args()
    process = psutil.Process()

    def weight() -> float:
        gc.collect()
        return process.memory_info().rss / MEGABYTE

    with open_world(given.model, PREFIX_CACHE_MB=32) as world, httpx.Client(timeout=600) as client:
        world.attach_random_saes()

        def send(request: tuple[str, dict[str, Any]]) -> int:
            path, body = request
            body = {"model": world.loaded.record.name, **body}
            return client.post(f"{world.address}/{path}", json=body).status_code

        everything = bodies(world, given.requests)
        share = max(1, given.requests // 10)
        with ThreadPoolExecutor(given.clients) as pool:
            list(pool.map(send, everything[:share]))
            first = weight()
            print(f"after {share} requests: {first:.0f} MB, {process.num_threads()} threads")
            for start in range(share, given.requests, share):
                statuses = list(pool.map(send, everything[start : start + share]))
                bad = [status for status in statuses if status != 200]
                print(f"after {start + share}: {weight():.0f} MB, {process.num_threads()} threads, refused: {bad}")
        stats = world.engine.generation.stats()
        print(f"growth {weight() - first:+.0f} MB; in flight {stats.in_flight}, waiting {stats.queue_waiting}")


if __name__ == "__main__":
    main()

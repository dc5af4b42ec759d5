"""What a lane costs: speed and memory as lanes grow, joining and leaving, and how near decoding comes to the memory."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import psutil

from bench.harness import Row, Table, compare
from bench.world import PROMPT, World

LANES = (1, 2, 4, 8, 16)
STEPS = 24
PAST = 256
MEGABYTE = 1e6


def measure(world: World, rounds: int) -> list[Row]:
    """Decode against the memory's speed."""
    return [
        compare(
            "decode, one row: bytes of weights read per second ÷ bandwidth of the memory they are in",
            lambda: world.loaded.info.memory_bytes * _decode_steps(world, 1, STEPS) / 1e9,
            lambda: _bandwidth(world) / 1e9,
            target=0.5,
            unit="GB/s",
            note=f"{world.loaded.info.dtype}; {world.loaded.info.memory_bytes / 1e6:.0f} MB of weights",
            rounds=rounds,
        )
    ]


def tables(world: World) -> list[Table]:
    """Lanes 1…16, and what a join and a leave take."""
    backend = world.loaded.backend
    process = psutil.Process()
    lanes = Table("Lanes", ("lanes", "tokens/s in total", "ms a step", "KV MB held", "RSS MB"))
    costs = Table("Joining and leaving a batch", ("rows of 256 tokens there", "join ms", "leave ms"))
    for count in LANES:
        batch = _batch(world, count)
        per_second = _steps_per_second(world, batch, count)
        lanes.add(
            count,
            f"{count * per_second:.1f}",
            f"{1000 / per_second:.1f}",
            f"{batch.nbytes / MEGABYTE:.0f}",
            f"{process.memory_info().rss / MEGABYTE:.0f}",
        )
        store = _store(world, PAST)
        joins, leaves = [], []
        for _ in range(5):
            begun = time.perf_counter()
            row = backend.join(batch, store)
            _wait(world)
            joined = time.perf_counter()
            backend.leave(batch, row)
            _wait(world)
            joins.append(joined - begun)
            leaves.append(time.perf_counter() - joined)
        costs.add(count, f"{1000 * median(joins):.2f}", f"{1000 * median(leaves):.2f}")
    return [lanes, costs]


def _decode_steps(world: World, rows: int, steps: int) -> float:
    return _steps_per_second(world, _batch(world, rows), rows, steps)


def _steps_per_second(world: World, batch: Any, rows: int, steps: int = STEPS) -> float:
    def run() -> float:
        begun = time.perf_counter()
        for _ in range(steps):
            world.loaded.backend.decode(batch, [7] * rows)
        _wait(world)
        return steps / (time.perf_counter() - begun)

    return world.on_engine_thread(run)


def _batch(world: World, rows: int) -> Any:
    backend = world.loaded.backend
    batch = backend.new_batch()
    store = _store(world, PAST)
    for _ in range(rows):
        backend.join(batch, store)
    return batch


def _store(world: World, tokens: int) -> Any:
    backend = world.loaded.backend
    ids = (backend.tokenizer.encode(PROMPT * 30, False))[:tokens]
    store = backend.new_store()
    backend.extend(store, ids)
    return store


def _wait(world: World) -> None:
    """Wait for what a GPU does behind the program's back."""
    import torch

    if world.loaded.backend.device.type == "cuda":
        torch.cuda.synchronize()


def _bandwidth(world: World) -> float:
    """Bytes per second read from the memory the weights are in: the sum of an array far larger than any cache.

    On a CPU by as many threads as the model has.
    """
    import torch

    device = world.loaded.backend.device

    def run() -> float:
        block = torch.ones(64_000_000, dtype=torch.float32, device=device)
        block.sum()
        _wait(world)
        begun = time.perf_counter()
        for _ in range(4):
            block.sum()
        _wait(world)
        return 4 * block.nbytes / (time.perf_counter() - begun)

    return world.on_engine_thread(run)

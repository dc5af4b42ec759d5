"""``python -m bench``: measure, print the table, write ``bench/out/latest.json``."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.environment import prepare

prepare()  # OpenMP settings, before torch is imported

from app.demo.pack import SMOLLM2, Places  # noqa: E402
from app.paths import Paths  # noqa: E402
from bench.harness import Row, compare, report  # noqa: E402
from bench.world import World, open_world  # noqa: E402

TOKENS = 64


def measure(world: World, rounds: int) -> list[Row]:
    """Every row, each against its peer."""
    info = world.loaded.info
    where = f"{info.dtype} on {info.device}; {TOKENS} tokens"
    rows = [
        compare(
            "over HTTP, one stream ÷ generate in process",
            lambda: world.stream_tokens_per_second(TOKENS),
            lambda: world.generate_tokens_per_second(TOKENS),
            target=1.0,
            unit="tok/s",
            note=where,
            rounds=rounds,
        )
    ]
    world.attach_random_saes()

    def steered() -> float:
        world.steer_three_layers(2.0)
        try:
            return world.decode_tokens_per_second(TOKENS)
        finally:
            world.steer_three_layers(0.0)

    def monitored() -> float:
        world.engine.monitor.configure(enabled=True, top_k=10)
        try:
            return world.decode_tokens_per_second(TOKENS)
        finally:
            world.engine.monitor.set_enabled(False)

    def plain() -> float:
        return world.decode_tokens_per_second(TOKENS)

    rows.append(
        compare("steered (3 layers) ÷ unsteered", steered, plain, target=0.97, unit="tok/s", note=where, rounds=rounds)
    )
    rows.append(
        compare(
            "live monitor on (top-k, 3 SAEs) ÷ off",
            monitored,
            plain,
            target=0.95,
            unit="tok/s",
            note=f"{where}; 3 × 3072 features",
            rounds=rounds,
        )
    )
    rows.append(
        compare(
            "8 clients, 8 dials, all together ÷ one client",
            lambda: world.clients_tokens_per_second(8, TOKENS, dials=True),
            lambda: world.clients_tokens_per_second(1, TOKENS, dials=True),
            target=3.0,
            unit="tok/s",
            note=where,
            rounds=rounds,
        )
    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the program against its peers.")
    parser.add_argument(
        "--model",
        type=Path,
        default=Places.of(Paths.find(), SMOLLM2).checkpoint,
        help="checkpoint folder to measure on (default: the demo model of the data directory)",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"])
    arguments = parser.parse_args()
    with open_world(arguments.model, DTYPE=arguments.dtype) as world:
        rows = measure(world, arguments.rounds)
    print(report(rows))


if __name__ == "__main__":
    main()

"""``python -m bench``: measure, print the table, write ``bench/out/latest.json``."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.environment import prepare

prepare()  # OpenMP settings, before torch is imported

from app.demo.pack import SMOLLM2, Places  # noqa: E402
from app.paths import Paths  # noqa: E402
from bench.harness import Row, compare, report  # noqa: E402
from bench.world import open_world  # noqa: E402

TOKENS = 64


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
    rows: list[Row] = []
    with open_world(arguments.model, DTYPE=arguments.dtype) as world:
        info = world.loaded.info
        where = f"{info.dtype} on {info.device}"
        rows.append(
            compare(
                "over HTTP, one stream ÷ generate in process",
                lambda: world.stream_tokens_per_second(TOKENS),
                lambda: world.generate_tokens_per_second(TOKENS),
                target=1.0,
                unit="tok/s",
                note=f"{where}; {TOKENS} tokens",
                rounds=arguments.rounds,
            )
        )
    print(report(rows))


if __name__ == "__main__":
    main()

"""``python -m bench``: measure, print the table, write ``bench/out/latest.json``, and with ``--markdown`` a page."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.environment import prepare

prepare()  # OpenMP settings, before torch is imported

from app.demo.pack import SMOLLM2, PackPaths  # noqa: E402
from app.paths import Paths  # noqa: E402
from bench.harness import OUT, Row, Table, machine, report, write_between  # noqa: E402
from bench.rows import gguf, lanes, prefix, reading, serving, tools, window  # noqa: E402
from bench.world import open_world  # noqa: E402
from engine.config import EngineSettings  # noqa: E402
from engine.models.backends.llamacpp.availability import is_installed  # noqa: E402
from engine.models.hardware.devices import set_threads  # noqa: E402

PARTS = ("serving", "tools", "prefix", "reading", "lanes", "gguf", "window")
PEER = OUT.parent / "peer" / "bin" / "python"
"""Where ``docs/performance.md`` has llama.cpp's bundled server installed."""


def measure(
    model: Path, gguf_file: Path, parts: list[str], rounds: int, settings: dict[str, object], peer: Path
) -> tuple[list[Row], list[Table], list[str]]:
    """The rows and tables of ``parts``, and what could not be measured. What was read before would flatter everything
    but its own row: no cache.
    """
    rows: list[Row] = []
    tables: list[Table] = []
    missing: list[str] = []
    if {"reading", "serving", "tools", "lanes"}.intersection(parts):
        with open_world(model, PREFIX_CACHE_MB=0, **settings) as world:
            if "reading" in parts:
                rows += reading.measure(world, rounds)
            if "serving" in parts:
                rows += serving.measure(world, rounds)
            if "tools" in parts:
                rows += tools.measure(world, rounds)
            if "lanes" in parts:
                rows += lanes.measure(world, rounds)
                tables += lanes.tables(world)
    if "prefix" in parts:
        with open_world(model, **settings) as world:
            rows += prefix.measure(world, rounds)
    if "gguf" in parts:
        if gguf_file.is_file() and is_installed():
            rows += gguf.measure(gguf_file, rounds, peer if peer.is_file() else None)
            if not peer.is_file():
                missing.append(f"llama.cpp's bundled server was not measured: {peer} is not there.")
        else:
            missing.append("GGUF was not measured: llama-cpp-python or the file is missing.")
    if "window" in parts:
        rows += window.measure(model, rounds)
    return rows, tables, missing


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the program against its peers.")
    parser.add_argument(
        "--model",
        type=Path,
        default=PackPaths.of(Paths.find(), SMOLLM2).checkpoint,
        help="checkpoint folder to measure on (default: the demo model of the data directory)",
    )
    parser.add_argument(
        "--gguf",
        type=Path,
        default=PackPaths.of(Paths.find(), SMOLLM2).gguf_file,
        help="GGUF file to measure on (default: the demo's)",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"])
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda", "mps"])
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=PARTS, help="which parts of the table")
    parser.add_argument(
        "--llama-server",
        type=Path,
        default=PEER,
        help="a Python with llama.cpp's bundled server (llama_cpp.server)",
    )
    parser.add_argument("--markdown", type=Path, help="put the table into this page, between its two marks")
    arguments = parser.parse_args()
    settings = {"DTYPE": arguments.dtype, "DEVICE": arguments.device}
    # The peers run on this thread and the program on its own: both with as many threads for arithmetic.
    set_threads(EngineSettings().CPU_THREADS)
    where = machine()
    rows, tables, missing = measure(
        arguments.model, arguments.gguf, arguments.only, arguments.rounds, settings, arguments.llama_server
    )
    text = report(rows, tables, where, missing)
    print(text)
    if arguments.markdown is not None:
        write_between(arguments.markdown, text)


if __name__ == "__main__":
    main()

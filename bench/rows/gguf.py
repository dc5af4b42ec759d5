"""The rows about GGUF models: our server against ``llama_cpp.Llama`` called directly on the same file, and against the
server that comes with llama-cpp-python.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from bench.harness import Row, compare
from bench.world import PROMPT, World, open_world

CONTEXT = 2048
TOKENS = 64
_turns = itertools.count(100)


def measure(file: Path, rounds: int, server: Path | None) -> list[Row]:
    """The design's row, what several clients get together, and the bundled server (run by the Python ``server``) where
    there is one. On no side is anything kept between answers.
    """
    with open_world(file, GGUF_CONTEXT_LENGTH=CONTEXT, PREFIX_CACHE_MB=0) as world:
        peer = _Direct(file, world)
        where = f"{file.stem} on {world.loaded.info.device}; {TOKENS} tokens"
        rows = [
            compare(
                "GGUF over HTTP ÷ llama_cpp.Llama directly, same file",
                lambda: world.stream_tokens_per_second(TOKENS),
                lambda: peer.tokens_per_second(TOKENS),
                target=0.95,
                unit="tok/s",
                note=where,
                rounds=rounds,
            )
        ]
        for clients in (2, 4):
            rows.append(
                compare(
                    f"GGUF: {clients} clients, all together ÷ one client",
                    lambda clients=clients: world.clients_tokens_per_second(clients, TOKENS, dials=False),  # type: ignore[misc]
                    lambda: world.clients_tokens_per_second(1, TOKENS, dials=False),
                    target=1.0,
                    unit="tok/s",
                    note=where,
                    rounds=rounds,
                )
            )
        if server is not None:
            with _bundled_server(server, file) as address:
                rows += [
                    compare(
                        f"GGUF: {clients} client{'s' if clients > 1 else ''} ÷ as many of llama.cpp's bundled server",
                        lambda clients=clients: world.clients_tokens_per_second(clients, TOKENS, dials=False),  # type: ignore[misc]
                        lambda clients=clients: _others_tokens_per_second(address, world, clients),  # type: ignore[misc]
                        target=1.0,
                        unit="tok/s",
                        note=f"{where}; the peer stops at an end token and keeps the template's first tokens",
                        rounds=rounds,
                    )
                    for clients in (1, 4)
                ]
        return rows


@contextmanager
def _bundled_server(python: Path, file: Path) -> Iterator[str]:
    """``llama_cpp.server`` on a free port, with our number of threads and context."""
    import torch

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    threads = str(torch.get_num_threads())
    options = {"model": str(file), "port": str(port), "n_ctx": str(CONTEXT), "n_threads": threads}
    options |= {"n_threads_batch": threads, "cache": "false", "interrupt_requests": "false"}
    command = [str(python), "-m", "llama_cpp.server", *(f"--{name}={value}" for name, value in options.items())]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": ""}
    )
    address = f"http://127.0.0.1:{port}/v1"
    try:
        for _ in range(600):
            if process.poll() is not None:
                raise RuntimeError(f"llama.cpp's bundled server ended with status {process.returncode}")
            try:
                httpx.get(f"{address}/models", timeout=1).raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.1)
        else:
            raise RuntimeError("llama.cpp's bundled server did not answer within a minute")
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _others_tokens_per_second(address: str, world: World, clients: int) -> float:
    """As :meth:`World.clients_tokens_per_second` from the bundled server, which takes one request after another.

    An answer that ends early counts with the tokens it has.
    """
    tokenizer = world.loaded.backend.tokenizer

    def one(_: int) -> int:
        # It never reads anew what the request before began with, so no two have the same question.
        messages = [{"role": "user", "content": f"{next(_turns)}. {PROMPT}"}]
        text = tokenizer.render_chat(messages, add_generation_prompt=True, continue_final=False, kwargs={})
        body = {"prompt": text, "max_tokens": TOKENS, "temperature": 0, "stream": True}
        pieces = 0
        with httpx.stream("POST", f"{address}/completions", json=body, timeout=600) as response:
            response.raise_for_status()
            for line in response.iter_lines():
                pieces += line.startswith("data: {")
        # The last event only says why it ended.
        return pieces - 1

    begun = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        written = sum(pool.map(one, range(clients)))
    return written / (time.perf_counter() - begun)


class _Direct:
    """``llama_cpp.Llama`` in this process: same file, context, threads and prompt."""

    def __init__(self, file: Path, world: World) -> None:
        import llama_cpp
        import torch

        threads = torch.get_num_threads()
        self._llama: Any = llama_cpp.Llama(
            str(file), n_ctx=CONTEXT, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        tokenizer = world.loaded.backend.tokenizer
        text = tokenizer.render_chat(
            [{"role": "user", "content": PROMPT}], add_generation_prompt=True, continue_final=False, kwargs={}
        )
        self._ids = tokenizer.encode(text, add_special_tokens=False)

    def tokens_per_second(self, tokens: int) -> float:
        """Tokens per second of one greedy answer, prompt included; an end token is written like any other."""
        self._llama.reset()
        begun = time.perf_counter()
        for count, _ in enumerate(self._llama.generate(self._ids, temp=0.0), start=1):
            if count == tokens:
                break
        return tokens / (time.perf_counter() - begun)

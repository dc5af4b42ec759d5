"""Writing answers: over HTTP against the library's ``generate``, steered against not, many clients against one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness import Row, compare
from bench.world import SAE_IDS, World
from ui.look.monitor_feed import Feed, poll

TOKENS = 64
LOOK_S = 0.1
FIGURES_EVERY = 5
"""How often the Monitor page looks, and which of its looks ask for the figures too."""


def measure(world: World, rounds: int) -> list[Row]:
    """Design's rows about decoding, and two peers: a plain forward hook, and one request at a time."""
    info = world.loaded.info
    where = f"{info.dtype} on {info.device}; {TOKENS} tokens"

    def plain() -> float:
        return world.decode_tokens_per_second(TOKENS)

    def steered() -> float:
        with _three_layers(world):
            return plain()

    def monitored() -> float:
        world.engine.monitor.configure(enabled=True, top_k=10)
        try:
            return plain()
        finally:
            world.engine.monitor.set_enabled(False)

    def looked_at() -> float:
        with _somebody_looks(world):
            return monitored()

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
    rows += [
        compare("steered (3 layers) ÷ unsteered", steered, plain, target=0.97, unit="tok/s", note=where, rounds=rounds),
        compare(
            "steered (3 layers) over HTTP ÷ generate with 3 forward hooks",
            lambda: _steered_stream(world),
            lambda: world.generate_tokens_per_second(TOKENS, hooks=True),
            target=1.0,
            unit="tok/s",
            note=where,
            rounds=rounds,
        ),
        compare(
            "live monitor on (top-k, 3 SAEs) ÷ off",
            monitored,
            plain,
            target=0.95,
            unit="tok/s",
            note=f"{where}; 3 × 3072 features; the Monitor page is not open",
            rounds=rounds,
        ),
        compare(
            "the same while the Monitor page is open ÷ off",
            looked_at,
            plain,
            target=0.9,
            unit="tok/s",
            note=f"{where}; read every {LOOK_S:g} s as the page does it, without its drawing",
            rounds=rounds,
        ),
        compare(
            "8 clients, 8 dials, all together ÷ one client",
            lambda: world.clients_tokens_per_second(8, TOKENS, dials=True),
            lambda: world.clients_tokens_per_second(1, TOKENS, dials=True),
            target=3.0,
            unit="tok/s",
            note=where,
            rounds=rounds,
        ),
        compare(
            "8 clients, 8 dials ÷ one at a time (set the dial, generate, set it back)",
            lambda: world.clients_tokens_per_second(8, TOKENS, dials=True),
            lambda: world.one_at_a_time_tokens_per_second(8, TOKENS),
            target=3.0,
            unit="tok/s",
            note=f"{where}; the peer is transformers with forward hooks, as servers with one global steering do it",
            rounds=max(1, rounds // 2),
        ),
        compare(
            "an answer with activations of every token ÷ plain",
            lambda: world.stream_tokens_per_second(
                TOKENS, return_sae_activations={"sae_id": SAE_IDS[1], "top_k": 8, "positions": "completion"}
            ),
            lambda: world.stream_tokens_per_second(TOKENS),
            target=0.8,
            unit="tok/s",
            note=where,
            rounds=rounds,
        ),
    ]
    return rows


@contextmanager
def _somebody_looks(world: World) -> Iterator[None]:
    """A thread that reads the live monitor as the Monitor page does."""
    first = world.engine.desk.state.attachments[0]
    over = threading.Event()

    def look() -> None:
        feed, turn = Feed(), 0
        while not over.wait(LOOK_S):
            place = (first.sae_id, first.layer)
            feed.take(poll(world.engine, feed.number, place, feed.asked, figures=turn % FIGURES_EVERY == 0))
            turn += 1

    thread = threading.Thread(target=look, name="monitor page")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _three_layers(world: World) -> Iterator[None]:
    world.steer_three_layers(2.0)
    try:
        yield
    finally:
        world.steer_three_layers(0.0)


def _steered_stream(world: World) -> float:
    with _three_layers(world):
        return world.stream_tokens_per_second(TOKENS)

"""The prefix cache by itself: what matches, what goes, and that no steering borrows another's past."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from engine.generation.prefix_cache import PrefixCache


@dataclass
class Held:
    """A store of a known size."""

    nbytes: int
    lengths: list[int] = field(default_factory=lambda: [0])


def run(start: int, count: int) -> tuple[int, ...]:
    return tuple(range(start, start + count))


def test_the_longest_shared_beginning_wins() -> None:
    cache = PrefixCache(1000)
    cache.put(run(0, 10), "", Held(10))
    cache.put((*run(0, 9), 500, 501), "", Held(11))
    match = cache.longest((*run(0, 9), 500, 7, 7), "")
    assert match is not None
    assert (match.length, match.prefix.nbytes) == (10, 11)


def test_the_last_token_of_a_prompt_is_always_read() -> None:
    cache = PrefixCache(1000)
    cache.put(run(0, 20), "", Held(20))
    match = cache.longest(run(0, 20), "")
    assert match is not None
    assert match.length == 19


def test_short_beginnings_are_not_worth_a_copy() -> None:
    cache = PrefixCache(1000)
    cache.put(run(0, 20), "", Held(20))
    assert cache.longest((*run(0, 7), 99, 98), "") is None
    assert not cache.wants(run(50, 7), "")
    assert cache.wants(run(50, 8), "")


def test_another_steering_never_shares() -> None:
    cache = PrefixCache(1000)
    cache.put(run(0, 20), "plan-a", Held(20))
    assert cache.longest(run(0, 30), "plan-b") is None
    assert cache.longest(run(0, 30), "") is None
    assert cache.longest(run(0, 30), "plan-a") is not None
    cache.put(run(0, 25), "plan-b", Held(25))
    assert len(cache) == 2


def test_a_longer_run_takes_the_place_of_its_beginning() -> None:
    cache = PrefixCache(1000)
    cache.put(run(0, 20), "", Held(20))
    cache.put(run(0, 30), "", Held(30))
    assert (len(cache), cache.nbytes) == (1, 30)
    assert not cache.wants(run(0, 25), "")


def test_the_one_unused_for_longest_goes_first() -> None:
    cache = PrefixCache(100)
    cache.put(run(0, 10), "", Held(40))
    cache.put(run(100, 10), "", Held(40))
    assert cache.longest(run(0, 12), "") is not None
    cache.put(run(200, 10), "", Held(40))
    assert cache.nbytes == 80
    assert cache.longest(run(100, 12), "") is None
    assert cache.longest(run(0, 12), "") is not None
    assert cache.longest(run(200, 12), "") is not None


def test_what_is_larger_than_the_bound_is_not_kept_and_drives_nobody_out() -> None:
    cache = PrefixCache(100)
    cache.put(run(0, 10), "", Held(40))
    cache.put(run(100, 10), "", Held(101))
    assert (len(cache), cache.nbytes) == (1, 40)
    cache.clear()
    assert (len(cache), cache.nbytes) == (0, 0)


def test_a_bound_of_nothing_keeps_nothing() -> None:
    cache = PrefixCache(0)
    assert not cache.enabled
    assert not cache.wants(run(0, 100), "")


@pytest.mark.parametrize("seed", range(20))
def test_what_is_found_is_what_comparing_token_by_token_finds(seed: int) -> None:
    """Over prompts that begin alike by chance, three letters to an alphabet, held against a list that forgets nothing
    but what is a beginning of something longer.
    """
    random = Random(seed)
    cache = PrefixCache(10**9)
    kept: list[tuple[tuple[int, ...], str]] = []
    beginnings = [tuple(random.choices(range(3), k=random.randrange(40))) for _ in range(4)]
    for number in range(150):
        tokens = (*random.choice(beginnings), *random.choices(range(3), k=random.randrange(12)))
        digest = random.choice(("", "plan"))
        alike = [_alike(tokens[:-1], held) for held, under in kept if under == digest]
        best = max([length for length in alike if length >= 8], default=None)
        match = cache.longest(tokens, digest)
        assert (None if match is None else match.length) == best
        known = any(held[: len(tokens)] == tokens for held, under in kept if under == digest)
        wanted = len(tokens) >= 8 and not known
        assert cache.wants(tokens, digest) is wanted
        if wanted:
            cache.put(tokens, digest, Held(number))
            kept = [(held, under) for held, under in kept if under != digest or tokens[: len(held)] != held]
            kept.append((tokens, digest))
        assert len(cache) == len(kept)


def _alike(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    most = min(len(first), len(second))
    return next((place for place in range(most) if first[place] != second[place]), most)

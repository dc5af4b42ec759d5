"""The bound on the text held at once: what does not fit beside the others waits, and nobody is ended midway for it.

The tiny Llama takes 512 bytes a token (4 layers, 2 × 16 values of 4 bytes) and has a window of 2048 tokens; a slab's
rows and capacity are powers of two.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.generation.request import Started
from engine.library.database import Library
from engine.models.backends.backend import KvNeed
from engine.sampling import Sampling
from tests.engine.generation.driving import Answer, Driver
from tests.engine.models.llamacpp.conftest import load


@pytest.fixture
def driver(tiny_checkpoint: Path, library: Library) -> Driver:
    """Two megabytes are 3906 tokens."""
    return Driver(tiny_checkpoint, library, KV_MEMORY_MB=2, PREFILL_CHUNK=64)


def started(answers: list[Answer]) -> list[bool]:
    return [any(isinstance(delta, Started) for delta in answer.deltas) for answer in answers]


def test_the_bound_is_what_is_set_and_one_window_at_least(tiny_checkpoint: Path, library: Library) -> None:
    """One megabyte would be 1953 tokens: less than the window, which always fits."""
    assert Driver(tiny_checkpoint, library, KV_MEMORY_MB=1).scheduler._admission.most_tokens == 2048
    assert Driver(tiny_checkpoint, library, KV_MEMORY_MB=8).scheduler._admission.most_tokens == 15_625


def test_half_of_the_free_memory_is_the_bound_by_itself(
    tiny_checkpoint: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.models.hardware.devices.available_memory", lambda device: 10_240_000)
    assert Driver(tiny_checkpoint, library).scheduler._admission.most_tokens == 10_000


def test_a_row_of_the_batch_counts_with_the_whole_block(driver: Driver) -> None:
    """Three rows make a block of four; each as long as the longest of them may become."""
    tokens = driver.backend.kv_tokens
    assert tokens([KvNeed(5, batched=True)]) == 128
    assert tokens([KvNeed(129, batched=True), KvNeed(5, batched=True), KvNeed(5, batched=True)]) == 1024
    assert tokens([KvNeed(129, batched=True), KvNeed(300), KvNeed(5, alone=True)]) == 256 + 512 + 128


def test_the_fifth_waits_and_begins_when_one_ends(driver: Driver) -> None:
    """Four rows of up to 512 tokens take 2048; a fifth would make a block of eight."""
    answers = [driver.send("the sea", max_tokens=300) for _ in range(5)]
    driver.tick(6)
    assert started(answers) == [True, True, True, True, False]
    stats = driver.scheduler.stats()
    assert (stats.in_flight, stats.queue_waiting) == (4, 1)
    answers[2].handle.cancel()
    driver.tick(2)
    assert started(answers)[4]
    driver.finish()
    assert [len(answers[place].ids()) for place in (0, 1, 3, 4)] == [300] * 4


def test_who_fits_does_not_overtake_who_waits(driver: Driver) -> None:
    first = driver.send("the sea", max_tokens=300)
    driver.tick(2)
    large, small = driver.send("the sea", max_tokens=1500), driver.send("a smile", max_tokens=4)
    driver.tick(3)
    assert started([large, small]) == [False, False]
    first.handle.cancel()
    driver.tick(2)
    assert started([large, small]) == [True, False]
    large.handle.cancel()
    driver.finish()
    assert len(small.ids()) == 4


def test_what_fits_nowhere_but_alone_is_answered_alone(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, KV_MEMORY_MB=1)
    driver.scheduler._admission.most_tokens = 64  # as if a model's own window were larger than the memory
    answers = [driver.send("the sea", max_tokens=6) for _ in range(3)]
    driver.finish()
    assert [len(answer.ids()) for answer in answers] == [6, 6, 6]
    assert {rows for kind, rows in driver.passes if kind == "decode"} == {1}


def test_solo_choices_count_each_with_a_store_of_its_own(tiny_checkpoint: Path, library: Library) -> None:
    """Two of up to 1024 slots fill 2048; each goes on in the store its prompt was read into."""
    driver = Driver(tiny_checkpoint, library, KV_MEMORY_MB=1)
    seeded = Sampling(temperature=0.0, ignore_eos=True, seed=3)
    answers = [driver.send("the sea", max_tokens=600, sampling=seeded) for _ in range(3)]
    driver.tick(3)
    assert started(answers) == [True, True, False]
    driver.finish()
    assert all(answer.error is None for answer in answers)


def test_choices_of_one_request_wait_for_room_among_themselves(driver: Driver) -> None:
    answer = driver.send("the sea", max_tokens=300, n=6)
    driver.finish()
    assert [len(answer.ids(index)) for index in range(6)] == [300] * 6
    assert max(rows for kind, rows in driver.passes if kind == "decode") == 4


def long_text(driver: Driver, tokens: int) -> str:
    """A prompt of about as many tokens."""
    hundred = len(driver.backend.tokenizer.encode("the sea " * 100, add_special_tokens=False))
    return "the sea " * (100 * tokens // hundred)


def kv_held(driver: Driver) -> int:
    """Tokens for which slabs have room now."""
    scheduler = driver.scheduler
    stores = [lane.store for lane in scheduler._lanes if lane.store is not None]
    pasts = [past.store for each in scheduler._running for past in each.pasts.values()]  # type: ignore[union-attr]
    batch = [] if scheduler._batch is None else [scheduler._batch]
    return sum(store.nbytes for store in (*stores, *pasts, *batch)) // driver.backend.kv_bytes_per_token


def test_a_prompt_that_is_being_read_counts_beside_the_row_it_will_have(driver: Driver) -> None:
    """While a prompt of 600 tokens is read into 1024 slots of its own, and a row of 1024 awaits it, the same once more
    would be 4096. When the first has its row, the second needs 2 rows and 1 store: 3072.
    """
    text = long_text(driver, 600)
    first, second = driver.send(text, max_tokens=300), driver.send(text + "!", max_tokens=300)
    most = 0
    while not first.ids():
        driver.tick()
        assert started([first, second]) == [True, False]
        most = max(most, kv_held(driver))
    assert most == 1024
    driver.tick()
    assert started([second]) == [True]
    while not second.ids():
        driver.tick()
        most = max(most, kv_held(driver))
    # All of it at once: two rows of the batch, the first's answer still going on.
    assert most <= 3072
    first.handle.cancel()
    second.handle.cancel()
    driver.finish()
    assert kv_held(driver) == 0


def test_a_prompt_that_was_read_counts_until_its_last_choice_has_begun(driver: Driver) -> None:
    """A seeded request writes its choices one after another, each from a copy: 1024 slots for the prompt and 1024 for
    the choice. One that may need 2048 waits until the last choice has taken the prompt's own store.
    """
    seeded = Sampling(temperature=0.0, ignore_eos=True, seed=3)
    first = driver.send(long_text(driver, 600), max_tokens=20, sampling=seeded, n=2)
    large = driver.send("the sea", max_tokens=1500, sampling=seeded)
    while 0 not in first.ends:
        driver.tick()
        assert started([first, large]) == [True, False]
    driver.tick()
    assert 1 not in first.ends
    assert started([large]) == [True]
    large.handle.cancel()
    driver.finish()
    assert [len(first.ids(index)) for index in (0, 1)] == [20, 20]


def test_prompts_that_were_read_never_keep_their_own_choices_waiting(tiny_checkpoint: Path, library: Library) -> None:
    """Where prompt and choice fill everything, the choice begins all the same once nobody else runs."""
    driver = Driver(tiny_checkpoint, library)
    driver.scheduler._admission.most_tokens = 1024
    seeded = Sampling(temperature=0.0, ignore_eos=True, seed=3)
    answer = driver.send(long_text(driver, 600), max_tokens=4, sampling=seeded, n=3)
    driver.finish()
    assert [len(answer.ids(index)) for index in range(3)] == [4, 4, 4]


def test_llama_cpp_has_an_answer_wait_where_it_would_be_ended_midway(gguf_file: Path, library: Library) -> None:
    """512 cells for three answers of up to 200 tokens and their prompts."""
    driver = Driver(
        gguf_file,
        library,
        load=lambda path: load(path, GGUF_CONTEXT_LENGTH=256, MAX_LANES=2),
        MAX_LANES=4,
    )
    try:
        assert driver.scheduler._admission.most_tokens == 512
        answers = [driver.send("the sea", max_tokens=200) for _ in range(3)]
        driver.finish()
        assert [answer.error for answer in answers] == [None, None, None]
        assert [len(answer.ids()) for answer in answers] == [200, 200, 200]
        assert max(rows for kind, rows in driver.passes if kind == "decode") == 2
    finally:
        driver.backend.close()

"""What one request has read another need not: same answers, fewer tokens read, and never across steerings."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from engine.errors import InsufficientMemory
from engine.generation.embeddings import EmbeddingRequest
from engine.library.database import Library
from engine.models.backends.kv import KVSlab
from engine.monitor.activation_spec import ActivationSpec, PositionChoice
from engine.sampling import Sampling
from engine.steering import transitions
from engine.steering.request import SteeringRequest
from tests.conftest import CheckpointMaker
from tests.engine.generation.driving import Answer, Driver
from tests.engine.generation.test_steered_lanes import attach, inline
from tests.tiny import FAMILIES

STORY = "the sea was calm and the ship went slowly along the coast in the evening"


def cached(answer: Answer) -> int:
    assert answer.finished is not None, answer.error
    return answer.finished.usage.cached_tokens


def fed(driver: Driver) -> int:
    """Tokens read by passes over a lane's own store so far."""
    return sum(count for kind, count in driver.passes if kind == "extend")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_conversation_reads_the_same_with_the_cache_on_and_off(
    family: str, checkpoint: CheckpointMaker, library: Library
) -> None:
    on = Driver(checkpoint(family), library)
    off = Driver(checkpoint(family), library, PREFIX_CACHE_MB=0)
    said = STORY
    for turn in ("", " and then", " it was night over the old forest"):
        said += turn
        with_cache, without = on.alone(said), off.alone(said)
        assert with_cache.ids() == without.ids()
        assert cached(without) == 0
        if turn:
            assert cached(with_cache) > 20
        said += with_cache.text()
    assert fed(on) < fed(off)


def test_the_next_turn_reads_only_what_is_new(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    first = driver.alone(STORY)
    assert first.finished is not None
    assert cached(first) == 0
    prompt = first.finished.usage.prompt_tokens
    before = fed(driver)
    again = driver.alone(STORY)
    assert again.ids() == first.ids()
    # All but the last token of the prompt, whose logits are wanted.
    assert cached(again) == prompt - 1
    assert fed(driver) - before == 1


def test_choices_share_what_was_taken_over_and_it_counts_once(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    plain = driver.alone(STORY)
    many = driver.alone(STORY, n=3)
    assert many.finished is not None
    assert [many.ids(i) for i in range(3)] == [plain.ids()] * 3
    assert cached(many) == many.finished.usage.prompt_tokens - 1


def test_a_past_read_under_another_steering_is_never_used(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    attach(driver, 1)
    apart = Driver(checkpoint("llama"), library, PREFIX_CACHE_MB=0)
    attach(apart, 1)
    taken = []
    for steering in (
        SteeringRequest(),
        inline("sae-1", f3=40.0),
        inline("sae-1", f3=-40.0),
        inline("sae-1", f3=40.0),
        SteeringRequest(),
    ):
        shared, alone = driver.alone(STORY, steering=steering), apart.alone(STORY, steering=steering)
        assert shared.ids() == alone.ids()
        taken.append(cached(shared) > 0)
    # Only the two that came back to a steering of before.
    assert taken == [False, False, False, True, True]


def test_the_same_name_with_other_values_is_another_steering(checkpoint: CheckpointMaker, library: Library) -> None:
    """The key is what is added, so an edited cluster of the same name shares nothing with its former self."""
    driver = Driver(checkpoint("llama"), library)
    attach(driver, 1)
    driver.alone(STORY, steering=inline("sae-1", f3=40.0))
    changed = driver.alone(STORY, steering=inline("sae-1", f3=41.0))
    assert cached(changed) == 0


def test_what_two_live_plans_have_read_is_not_kept(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    attach(driver, 1)
    answer = driver.send(STORY)
    driver.tick()
    driver.desk.apply(transitions.set_values(("sae-1", 1), {3: 50.0}))
    driver.finish()
    assert answer.finished is not None
    assert answer.finished.steering.changed
    assert len(driver.scheduler._reuse.cache) == 0


def test_who_promises_the_same_bytes_reads_everything(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    driver.alone(STORY)
    kept = len(driver.scheduler._reuse.cache)
    seeded = driver.alone(STORY, sampling=Sampling(temperature=1.0, seed=7, ignore_eos=True))
    assert cached(seeded) == 0
    assert len(driver.scheduler._reuse.cache) == kept


def test_who_asks_for_activations_reads_everything(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    attach(driver, 1)
    driver.alone(STORY)
    asked = driver.alone(STORY, activations=ActivationSpec(top_k=2, positions=PositionChoice.PROMPT))
    assert cached(asked) == 0
    assert asked.finished is not None
    assert asked.finished.activations is not None
    assert len(asked.finished.activations["positions"]) == asked.finished.usage.prompt_tokens


def test_another_model_begins_with_nothing(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    driver.alone(STORY)
    assert len(driver.scheduler._reuse.cache) == 1
    driver.scheduler.set_backend(None)
    assert len(driver.scheduler._reuse.cache) == 0
    assert driver.scheduler._reuse.cache.nbytes == 0


def _no_memory(*_args: object, **_kwargs: object) -> None:
    raise torch.OutOfMemoryError("out of memory")


@pytest.mark.parametrize("passes", [1, 3])
def test_running_out_of_memory_gives_back_what_is_only_kept_for_later(
    passes: int, checkpoint: CheckpointMaker, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a prompt is read (the first pass), and while an answer is written."""
    driver = Driver(checkpoint("llama"), library)
    driver.alone(STORY)
    cache = driver.scheduler._reuse.cache
    (store,) = [weakref.ref(entry.store) for entry in cache._entries.values()]
    answer = driver.send("naïve café and a smile", max_tokens=9)
    for _ in range(passes - 1):
        driver.tick()
    with monkeypatch.context() as patch:
        patch.setattr(driver.backend._model, "forward", _no_memory)
        driver.tick()
    assert isinstance(answer.error, InsufficientMemory)
    assert (len(cache), cache.nbytes) == (0, 0)
    gc.collect()
    assert store() is None
    assert driver.alone(STORY).finished is not None


def test_a_reading_that_runs_out_of_memory_gives_it_back_too(
    checkpoint: CheckpointMaker, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(checkpoint("llama"), library)
    driver.alone(STORY)
    future = driver.service.embed(driver.service.prepare_embeddings(EmbeddingRequest(driver.name, (STORY,))))
    with monkeypatch.context() as patch:
        patch.setattr(driver.backend._model.base_model, "forward", _no_memory)
        driver.tick()
    assert isinstance(future.exception(timeout=0), InsufficientMemory)
    assert len(driver.scheduler._reuse.cache) == 0


def test_a_copy_that_has_no_room_empties_the_cache_and_costs_no_answer(
    checkpoint: CheckpointMaker, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(checkpoint("llama"), library)
    expected = driver.alone(STORY).ids()
    with monkeypatch.context() as patch:
        patch.setattr(KVSlab, "fork", _no_memory)
        again = driver.alone(STORY)
    assert again.ids() == expected
    assert cached(again) == 0
    assert len(driver.scheduler._reuse.cache) == 0


def test_rows_that_leave_a_full_batch_leave_their_own_text(checkpoint: CheckpointMaker, library: Library) -> None:
    """Rows change places when one leaves: what is kept must be the leaver's."""
    driver = Driver(checkpoint("llama"), library)
    prompts = [STORY, "the quick brown fox jumps over", "a language model writes one token", "naïve café and a smile"]
    answers = [driver.send(p, max_tokens=4 + 3 * i) for i, p in enumerate(prompts)]
    driver.finish()
    kept = {tuple(entry.tokens.tolist()): entry.store for entry in driver.scheduler._reuse.cache._entries.values()}
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = (*driver.backend.tokenizer.encode(prompt, True), *answer.ids()[:-1])
        fork, anew = driver.backend.fork(kept[ids], 0, len(ids)), driver.backend.new_store()
        assert fork is not None
        driver.backend.extend(anew, ids)
        assert torch.allclose(driver.backend.extend(fork, [9]), driver.backend.extend(anew, [9]), atol=1e-5)

"""The scheduler step by step: who gets a lane, what a leaver costs, and that company changes nobody's answer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.errors import GenerationFailed, InsufficientMemory, InvalidParameter, ModelBusy, QueueFull, RequestCancelled
from engine.generation.request import FinishReason, RequestFinished, Started, TextDelta
from engine.library.database import Library
from engine.sampling import Sampling
from tests.conftest import CheckpointMaker
from tests.engine.generation.driving import Driver
from tests.tiny import FAMILIES

PROMPTS = [
    "the quick brown fox",
    "a language model writes",
    "the sea",
    "and a smile 🙂 is",
    "jumps over the lazy dog and runs into the old forest",
    "x",
    "one token after another and never",
    "東京",
]


@pytest.fixture
def driver(tiny_checkpoint: Path, library: Library) -> Driver:
    return Driver(tiny_checkpoint, library)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_lane_in_a_changing_batch_writes_what_it_writes_alone(
    family: str, checkpoint: CheckpointMaker, library: Library
) -> None:
    driver = Driver(checkpoint(family), library)
    lengths = [20, 5, 14, 9, 30, 3, 11, 17]
    alone = [driver.alone(p, max_tokens=m).text() for p, m in zip(PROMPTS, lengths, strict=True)]
    answers = []
    for prompt, cap in zip(PROMPTS, lengths, strict=True):
        answers.append(driver.send(prompt, max_tokens=cap))
        driver.tick(2)  # each joins while the earlier ones are writing
    driver.finish()
    assert [a.text() for a in answers] == alone
    assert [len(a.ids()) for a in answers] == lengths
    assert max(rows for kind, rows in driver.passes if kind == "decode") >= 4


def test_deltas_come_in_order_and_once(driver: Driver) -> None:
    answer = driver.alone(PROMPTS[0], max_tokens=6)
    assert isinstance(answer.deltas[0], Started)
    assert answer.deltas[0].backend == "cbm"
    assert isinstance(answer.deltas[-1], RequestFinished)
    assert [type(d).__name__ for d in answer.deltas].count("ChoiceFinished") == 1
    assert answer.ends[0].reason is FinishReason.LENGTH
    assert answer.finished is not None
    assert answer.finished.usage.completion_tokens == 6
    assert answer.finished.usage.prompt_tokens == len(driver.backend.tokenizer.encode(PROMPTS[0], True))
    assert answer.handle.done


def test_a_queued_request_whose_owner_left_is_never_run(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, MAX_LANES=1)
    running = driver.send("the sea", max_tokens=4)
    driver.tick()
    queued = [driver.send(f"the fox {i}", max_tokens=4) for i in range(3)]
    queued[0].handle.cancel()
    queued[2].handle.cancel()
    driver.tick()
    assert driver.scheduler.stats().queue_waiting == 1
    assert isinstance(queued[0].error, RequestCancelled)
    driver.finish()
    assert running.finished is not None
    assert queued[1].finished is not None
    assert [type(d).__name__ for d in queued[2].deltas] == ["RequestFailed"]
    prefills = sum(n for kind, n in driver.passes if kind == "extend")
    expected = sum(len(driver.backend.tokenizer.encode(p, True)) for p in ("the sea", "the fox 1"))
    assert prefills == expected


def test_a_leaver_in_prefill_costs_one_chunk(driver: Driver) -> None:
    answer = driver.send("the quick brown fox jumps over the lazy dog " * 20)
    driver.tick(2)
    assert driver.passes == [("extend", 8), ("extend", 8)]
    answer.handle.cancel()
    driver.finish()
    assert driver.passes == [("extend", 8), ("extend", 8)]
    assert driver.scheduler.stats().in_flight == 0
    assert isinstance(answer.error, RequestCancelled)


def test_a_leaver_while_writing_costs_no_further_token(driver: Driver) -> None:
    stays = driver.send("the sea was calm", max_tokens=40)
    leaves = driver.send("a language model", max_tokens=40)
    driver.tick(6)
    written = len(leaves.ids())
    assert 0 < written < 40
    leaves.handle.cancel()
    driver.tick()
    assert driver.scheduler.stats().in_flight == 1
    assert driver.passes[-1] == ("decode", 1)
    assert len(leaves.ids()) == written
    driver.finish()
    assert stays.text() == driver.alone("the sea was calm", max_tokens=40).text()


def test_a_solo_leaver_costs_no_further_token(driver: Driver) -> None:
    answer = driver.send("the sea", sampling=Sampling(seed=1, ignore_eos=True), max_tokens=40)
    driver.tick(5)
    passes = len(driver.passes)
    answer.handle.cancel()
    driver.finish()
    assert len(driver.passes) == passes
    assert driver.scheduler.stats().in_flight == 0


def test_fifty_leavers_then_a_normal_answer(driver: Driver) -> None:
    expected = driver.alone("the sea").text()
    for turn in range(50):
        answer = driver.send("the quick brown fox jumps over the lazy dog", max_tokens=30)
        driver.tick(turn % 7)
        answer.handle.cancel()
    driver.finish()
    stats = driver.scheduler.stats()
    assert (stats.in_flight, stats.queue_waiting, stats.queue_pending) == (0, 0, 0)
    assert driver.alone("the sea").text() == expected


def test_a_full_queue_is_refused_and_nothing_else(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, MAX_LANES=1, MAX_PENDING_REQUESTS=10)
    answers = [driver.send("the sea", max_tokens=2) for _ in range(11)]
    with pytest.raises(QueueFull) as refusal:
        driver.send("the sea", max_tokens=2)
    assert refusal.value.code == "queue_full"
    driver.finish()
    assert all(a.finished is not None for a in answers)
    stats = driver.scheduler.stats()
    assert stats.queue_pending == 0
    assert driver.alone("the sea", max_tokens=2).finished is not None


def test_queue_figures(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, MAX_LANES=2)
    for _ in range(4):
        driver.send("the sea", max_tokens=5)
    driver.tick()
    stats = driver.scheduler.stats()
    assert (stats.in_flight, stats.queue_waiting, stats.queue_pending) == (2, 2, 4)
    assert stats.estimated_wait_seconds is None
    driver.finish()
    assert driver.scheduler.stats().estimated_wait_seconds == 0.0


def test_choices_share_one_reading_of_the_prompt(driver: Driver) -> None:
    answer = driver.send("the quick brown fox", n=3, max_tokens=5)
    driver.finish()
    tokens = len(driver.backend.tokenizer.encode("the quick brown fox", True))
    assert sum(n for kind, n in driver.passes if kind == "extend") == tokens
    assert sorted(answer.ends) == [0, 1, 2]
    assert answer.text(0) == answer.text(1) == answer.text(2) != ""
    assert answer.finished is not None
    assert answer.finished.usage.prompt_tokens == tokens
    assert answer.finished.usage.completion_tokens == 15


def test_choices_of_many_prompts_are_numbered_by_prompt(driver: Driver) -> None:
    alone = [driver.alone(p).text() for p in PROMPTS[:3]]
    answer = driver.send(*PROMPTS[:3], n=2)
    driver.finish()
    assert [answer.text(i) for i in range(6)] == [alone[0], alone[0], alone[1], alone[1], alone[2], alone[2]]


def test_a_request_of_many_choices_leaves_lanes_to_others(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, MAX_LANES=4)
    driver.send("the sea", n=32, max_tokens=10)
    driver.tick(4)
    other = driver.send("the quick brown fox", max_tokens=10)
    driver.tick(30)
    assert other.finished is not None


def test_a_seed_repeats_its_bytes_in_company_and_draws_nobody_elses(driver: Driver) -> None:
    seeded = Sampling(temperature=1.0, seed=7, ignore_eos=True)
    free = Sampling(temperature=1.0, ignore_eos=True)
    alone = driver.alone("the sea", sampling=seeded, max_tokens=25)
    assert isinstance(alone.deltas[0], Started)
    assert alone.deltas[0].backend == "serial"
    company = [driver.send(p, sampling=free, max_tokens=25) for p in PROMPTS[:4]]
    driver.tick(3)
    again = driver.send("the sea", sampling=seeded, max_tokens=25)
    driver.finish()
    assert again.ids() == alone.ids()
    assert len({tuple(a.ids()) for a in company}) == 4
    unseeded = [driver.alone("the sea", sampling=free, max_tokens=25).ids() for _ in range(2)]
    assert alone.ids() not in unseeded
    assert unseeded[0] != unseeded[1]


def test_seeded_choices_differ_repeat_and_begin_with_the_single_one(driver: Driver) -> None:
    seeded = Sampling(temperature=1.0, seed=11, ignore_eos=True)
    single = driver.alone("the sea", sampling=seeded, max_tokens=20).ids()
    runs = []
    for _ in range(2):
        answer = driver.alone("the sea", sampling=seeded, n=3, max_tokens=20)
        runs.append([answer.ids(i) for i in range(3)])
        assert all(rows == 1 for kind, rows in driver.passes if kind == "decode")
    assert runs[0] == runs[1]
    assert runs[0][0] == single
    assert len({tuple(ids) for ids in runs[0]}) == 3


def test_best_of_returns_the_likeliest_choices_in_order(driver: Driver) -> None:
    free = Sampling(temperature=1.5, seed=3, ignore_eos=True)
    every = driver.alone("the sea", sampling=free, n=5, best_of=5, max_tokens=6)
    scores = [every.ends[i].cumulative_logprob for i in range(5)]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[-1]
    best = driver.alone("the sea", sampling=free, n=2, best_of=5, max_tokens=6)
    assert sorted(best.ends) == [0, 1]
    assert [best.ids(i) for i in range(2)] == [every.ids(i) for i in range(2)]
    assert best.finished is not None
    assert best.finished.usage.completion_tokens == 30


def test_without_batching_every_answer_has_its_own_pass(tiny_checkpoint: Path, library: Library) -> None:
    together = Driver(tiny_checkpoint, library)
    expected = [together.alone(p).text() for p in PROMPTS[:3]]
    apart = Driver(tiny_checkpoint, library, ENABLE_CONTINUOUS_BATCHING=False)
    answers = [apart.send(p) for p in PROMPTS[:3]]
    apart.finish()
    assert [a.text() for a in answers] == expected
    assert isinstance(answers[0].deltas[0], Started)
    assert answers[0].deltas[0].backend == "serial"
    assert not [p for p in apart.passes if p[0] == "decode"]


def test_min_tokens_and_ignore_eos(driver: Driver) -> None:
    end = next(iter(driver.backend.tokenizer.eos_ids))
    push = {end: 100.0}
    held = driver.alone("the sea", sampling=Sampling(temperature=0.0, logit_bias=push, min_tokens=4), max_tokens=9)
    assert held.ends[0].reason is FinishReason.STOP
    assert held.ends[0].completion_tokens == 5
    ignored = driver.alone(
        "the sea", sampling=Sampling(temperature=0.0, logit_bias=push, ignore_eos=True), max_tokens=9
    )
    assert ignored.ends[0].reason is FinishReason.LENGTH
    assert ignored.ends[0].completion_tokens == 9
    assert ignored.text() == ""


def test_a_stop_string_ends_the_lane_at_once(driver: Driver) -> None:
    full = driver.alone("the quick brown fox", max_tokens=40).text()
    stop = full[9:12]
    answer = driver.alone("the quick brown fox", max_tokens=40, stop=(stop,))
    assert answer.text() == full[: full.index(stop)]
    assert answer.ends[0].reason is FinishReason.STOP
    assert answer.ends[0].completion_tokens < 40


def test_logprobs_are_the_models_own(driver: Driver) -> None:
    answer = driver.alone("the sea", max_tokens=3, logprobs=2)
    tokens = [t for d in answer.deltas if isinstance(d, TextDelta) for t in d.tokens]
    ids = list(driver.backend.tokenizer.encode("the sea", True))
    for token in tokens:
        row = torch.tensor([ids])
        with torch.inference_mode():
            expected = driver.backend._model(input_ids=row, use_cache=False).logits[0, -1].log_softmax(-1)
        assert token.logprob == pytest.approx(float(expected[token.token_id]), abs=1e-4)
        assert [a.token_id for a in token.top] == expected.topk(2).indices.tolist()
        ids.append(token.token_id)
    assert len(tokens) == 3


def test_a_failing_pass_ends_its_requests_and_the_next_one_works(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = driver.alone("the sea").text()
    first, second = driver.send("the sea"), driver.send("a smile")
    driver.tick(4)

    def fail(batch: object, ids: object, work: object = None) -> torch.Tensor:
        raise RuntimeError("a kernel failed")

    with monkeypatch.context() as patch:
        patch.setattr(driver.backend, "decode", fail)
        driver.tick()
    for answer in (first, second):
        assert isinstance(answer.error, GenerationFailed)
        assert "a kernel failed" in answer.error.message
    assert driver.scheduler.stats().queue_pending == 0
    assert driver.alone("the sea").text() == expected


def test_exhausted_memory_is_named_and_survived(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = driver.alone("the sea").text()

    def fail(*args: object, **kwargs: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    answer = driver.send("the quick brown fox jumps over the lazy dog")
    with monkeypatch.context() as patch:
        patch.setattr(driver.backend._model, "forward", fail)
        driver.tick()
    assert isinstance(answer.error, InsufficientMemory)
    assert "cpu" in answer.error.message
    assert driver.alone("the sea").text() == expected


def test_a_reader_that_raises_is_a_reader_that_left(driver: Driver) -> None:
    other = driver.send("the sea")
    prepared = driver.service.prepare(other_request(driver))

    def broken(delta: object) -> None:
        raise ConnectionError("gone")

    handle = driver.service.submit(prepared, broken)
    driver.finish()
    assert handle.done
    assert other.finished is not None


def other_request(driver: Driver):  # type: ignore[no-untyped-def]
    from engine.generation.request import GenerationRequest, TextInput

    return GenerationRequest(model=driver.name, input=TextInput(("a smile",)), max_tokens=30)


def test_a_closed_queue_refuses_with_its_reason(driver: Driver) -> None:
    driver.scheduler.close_queue(ModelBusy("being unloaded"))
    with pytest.raises(ModelBusy, match="being unloaded"):
        driver.send("the sea")
    driver.scheduler.open_queue()
    assert driver.alone("the sea").finished is not None


def test_how_long_to_stay_away_is_bounded(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, MAX_LANES=1, MAX_PENDING_REQUESTS=1)
    for seconds, expected in ((None, 5), (1000.0, 60), (0.001, 1), (7.2, 15)):
        driver.scheduler._admission._hold_times.clear()
        for _ in range(0 if seconds is None else 3):
            driver.scheduler._admission.finished_after(seconds or 0.0)
        waiting = [driver.send("the sea", max_tokens=2) for _ in range(2)]
        with pytest.raises(QueueFull) as refusal:
            driver.send("the sea", max_tokens=2)
        # Two wait: twice the median hold, in whole seconds, never under 1 nor over 60.
        assert refusal.value.retry_after == expected
        for each in waiting:
            each.handle.cancel()
        driver.finish()


def test_a_request_may_not_ask_for_choices_without_end(driver: Driver) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        driver.send(*["x"] * 300, n=4)
    assert refusal.value.param == "prompt"


def test_a_row_that_cannot_be_freed_ends_its_neighbours_and_the_next_one_works(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = driver.alone("the sea").text()
    answers = [driver.send("the sea"), driver.send("a smile", max_tokens=2)]

    def fail(batch: object, row: int) -> None:
        raise RuntimeError("the block is broken")

    with monkeypatch.context() as patch:
        patch.setattr(driver.backend, "leave", fail)
        driver.tick(6)
    assert isinstance(answers[0].error, GenerationFailed)
    assert all(answer.handle.done for answer in answers)
    assert driver.scheduler.stats().queue_pending == 0
    assert driver.alone("the sea").text() == expected

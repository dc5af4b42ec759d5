"""Comparisons: two sides that add the same choose the same tokens with the same figures, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import QueueFull
from engine.generation.request import ChoiceFinished, Delta, GenerationRequest, TextDelta, TextInput
from engine.library.database import Library
from engine.models.backends.transformers_backend import TransformersBackend
from engine.models.hardware.devices import DevicePlacement
from engine.sampling import Sampling
from engine.steering import transitions
from engine.steering.request import FOLLOW_LIVE
from tests.conftest import CheckpointMaker
from tests.engine.generation.driving import Answer, Driver
from tests.engine.generation.test_steered_lanes import UNSTEERED, attach, inline
from tests.engine.models.llamacpp.conftest import load as gguf

ROOT = Path(__file__).resolve().parents[3]
PROMPTS = ("the sea was calm and the ship went slowly", "a language model", "the old forest in the evening", "one")
GREEDY = Sampling(temperature=0.0, ignore_eos=True)
WARM = Sampling(temperature=0.9, ignore_eos=True)


def bfloat16(folder: Path) -> TransformersBackend:
    placement = DevicePlacement(torch.device("cpu"), torch.bfloat16, "test")
    return TransformersBackend.load(folder, placement, lambda share, stage: None)


def compare(driver: Driver, prompt: str, **fields: Any) -> tuple[Answer, Answer]:
    """Submit both sides, as the window does: the steered one first."""
    asked = []
    answers: list[list[Delta]] = []
    for steering in (FOLLOW_LIVE, UNSTEERED):
        request = GenerationRequest(
            driver.name,
            TextInput((prompt,)),
            steering=steering,
            **{"sampling": GREEDY, "max_tokens": 16, "noise_seed": 7, "logprobs": 3, **fields},
        )
        answers.append([])
        asked.append((driver.service.prepare(request), answers[-1].append))
    handles = driver.service.submit_together(asked)
    steered, plain = (Answer(handle, deltas) for handle, deltas in zip(handles, answers, strict=True))
    return steered, plain


def figures(answer: Answer) -> list[tuple[int, float | None, list[tuple[int, float]]]]:
    """Everything that was reported of each token."""
    assert answer.error is None
    return [
        (token.token_id, token.logprob, [(other.token_id, other.logprob) for other in token.top])
        for delta in answer.deltas
        if isinstance(delta, TextDelta)
        for token in delta.tokens
    ]


def same(driver: Driver, prompt: str, **fields: Any) -> bool:
    steered, plain = compare(driver, prompt, **fields)
    driver.finish()
    found = figures(steered)
    assert len(found) == fields.get("max_tokens", 16)
    return found == figures(plain)


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "drawn"])
@pytest.mark.parametrize("cache", [512, 0])
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_at_no_strength_both_sides_are_the_same(
    family: str, cache: int, sampling: Sampling, checkpoint: CheckpointMaker, library: Library
) -> None:
    driver = Driver(checkpoint(family), library, load=bfloat16, PREFIX_CACHE_MB=cache)
    for prompt in PROMPTS:
        for _cold_then_warm in range(2):
            assert same(driver, prompt, sampling=sampling)


@pytest.mark.parametrize("offset", range(4))
def test_whoever_else_is_answered_meanwhile(offset: int, tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, load=bfloat16)
    others = [driver.send(f"the quick brown fox {n} jumps over", max_tokens=3 + 9 * n) for n in range(5)]
    driver.tick(offset)
    assert same(driver, "the quick brown fox 1 jumps over the lazy dog")
    assert all(other.finished for other in others)


def test_a_gguf_model(gguf_file: Path, library: Library) -> None:
    driver = Driver(gguf_file, library, load=gguf)
    for sampling in (GREEDY, WARM):
        for prompt in PROMPTS:
            driver.send("somebody else asks", max_tokens=7)
            driver.tick(2)
            assert same(driver, prompt, sampling=sampling)


@pytest.mark.parametrize("settings", [{"MAX_LANES": 1}, {"MAX_LANES": 2}, {"ENABLE_CONTINUOUS_BATCHING": False}])
def test_with_few_lanes_and_without_a_batch(settings: dict[str, Any], tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, load=bfloat16, **settings)
    for prompt in PROMPTS:
        driver.send("the quick brown fox", max_tokens=5)
        driver.tick(2)
        assert same(driver, prompt)
        assert same(driver, prompt)


def test_both_begin_together_or_neither_does(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, MAX_LANES=2)
    other = driver.send("the old forest", max_tokens=6)
    driver.tick()
    steered, plain = compare(driver, "the sea was calm")
    late = driver.send("somebody who came later")
    while other.finished is None:
        assert steered.deltas == plain.deltas == []
        driver.tick()
    driver.finish()
    assert figures(steered) == figures(plain)
    assert late.finished is not None


def test_the_dial_turned_midway_changes_only_the_steered_side(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, load=bfloat16)
    attach(driver, 1)
    _still, undisturbed = compare(driver, "the sea was calm", max_tokens=24)
    driver.finish()
    steered, plain = compare(driver, "the sea was calm", max_tokens=24)
    while len(plain.ids()) < 8:
        driver.tick()
    written = len(steered.ids())
    driver.desk.apply(transitions.set_values(("sae-1", 1), {3: 150.0}))
    driver.finish()
    assert figures(plain) == figures(undisturbed)
    assert steered.ids()[:written] == plain.ids()[:written]
    assert steered.ids() != plain.ids()
    assert steered.finished is not None and steered.finished.steering.changed
    assert plain.finished is not None and not plain.finished.steering.changed


def test_the_dial_turned_while_the_prompt_is_read(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library)
    attach(driver, 1)
    long = "the sea was calm and the ship went slowly along the coast in the evening " * 3
    alone = driver.alone(long, steering=UNSTEERED).ids()
    steered, plain = compare(driver, long + "again", max_tokens=12)
    driver.tick(2)
    driver.desk.apply(transitions.set_values(("sae-1", 1), {3: 150.0}))
    driver.finish()
    assert plain.ids() == driver.alone(long + "again", steering=UNSTEERED).ids()
    assert steered.ids() != plain.ids()
    assert alone


def test_sides_that_add_something_else_go_their_own_way(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library)
    attach(driver, 1)
    driver.desk.apply(transitions.set_values(("sae-1", 1), {3: 90.0}))
    steered, plain = compare(driver, "the sea was calm", sampling=WARM)
    driver.finish()
    assert steered.ids() != plain.ids()
    assert [len(end) for end in (steered.ends, plain.ends)] == [1, 1]


def test_one_side_stopped_leaves_the_other_writing(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library)
    for stopped in (0, 1):
        sides = compare(driver, "the sea was calm")
        driver.tick(5)
        sides[stopped].handle.cancel()
        driver.finish()
        assert isinstance(sides[1 - stopped].ends[0], ChoiceFinished)
        assert len(figures(sides[1 - stopped])) == 16
    sides = compare(driver, "the sea was calm and the ship went slowly along the coast")
    driver.tick()
    sides[1].handle.cancel()
    driver.finish()
    assert len(figures(sides[0])) == 16


def test_all_are_queued_or_none(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, MAX_LANES=1, MAX_PENDING_REQUESTS=1)
    first = driver.send("the sea")
    driver.tick()
    with pytest.raises(QueueFull):
        compare(driver, "the old forest")
    assert driver.service.stats().queue_waiting == 0
    driver.finish()
    assert first.finished is not None


def test_strengths_that_cancel_out_add_nothing(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, load=bfloat16)
    attach(driver, 1)
    driver.desk.apply(transitions.set_values(("sae-1", 1), {3: 1e-44}))
    assert not driver.desk.live_plan.sets[0].is_empty
    assert driver.desk.live_plan.is_empty and driver.desk.live_plan.digest == ""
    assert same(driver, "the sea was calm")
    plan = driver.service.prepare(
        GenerationRequest(driver.name, TextInput(("x",)), steering=inline("sae-1", f3=5.0))
    ).steering.plan
    assert plan is not None and not plan.is_empty


@pytest.mark.demo
@pytest.mark.parametrize("make", ["checkpoint", "gguf"])
def test_on_the_demo_model(make: str, library: Library) -> None:
    folder = ROOT / ".data/models/demo/smollm2-135m-instruct"
    found = [folder / "checkpoint"] if make == "checkpoint" else list(folder.glob("gguf/*.gguf"))
    driver = Driver(found[0], library, load=bfloat16 if make == "checkpoint" else gguf, PREFILL_CHUNK=128)
    for prompt in ("Tell me about bees and about those who keep them.", "How do the tides of the sea work, in a word?"):
        for _cold_then_warm in range(2):
            assert same(driver, prompt, max_tokens=24)

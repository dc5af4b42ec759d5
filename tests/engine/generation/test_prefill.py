"""Prompts take turns; short ones that wait at the same moment are read in one pass and nobody's text changes by it."""

from __future__ import annotations

from pathlib import Path

from engine.library.database import Library
from engine.monitor.activation_spec import ActivationSpec, PositionChoice
from engine.sampling import Sampling
from tests.engine.generation.driving import Driver
from tests.engine.generation.test_steered_lanes import UNSTEERED, attach, inline

SHORT = ["the sea", "a language model", "the quick brown fox", "an old forest", "ships"]


def test_short_prompts_are_read_in_one_pass(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, PREFILL_CHUNK=64)
    answers = [driver.send(prompt) for prompt in SHORT]
    driver.tick()
    assert driver.passes == [("together", 5), ("decode", 5)]
    driver.finish()
    apart = Driver(tiny_checkpoint, library, PREFILL_CHUNK=64, PREFIX_CACHE_MB=0)
    assert [answer.ids() for answer in answers] == [apart.alone(prompt).ids() for prompt in SHORT]


def test_a_pass_is_no_larger_than_a_chunk(tiny_checkpoint: Path, library: Library) -> None:
    """Padded size counts: what does not fit waits for the next pass, and a long prompt goes alone."""
    driver = Driver(tiny_checkpoint, library, PREFILL_CHUNK=16)
    long = "the sea was calm and the ship went slowly along the coast in the evening"
    answers = [driver.send(prompt, max_tokens=2) for prompt in (*SHORT, long)]
    driver.finish()
    counts = [count for kind, count in driver.passes if kind == "together"]
    assert counts
    assert max(counts) < 5
    assert ("extend", 16) in driver.passes
    apart = Driver(tiny_checkpoint, library, PREFIX_CACHE_MB=0)
    assert [a.ids() for a in answers] == [apart.alone(p, max_tokens=2).ids() for p in (*SHORT, long)]


def test_each_of_them_has_its_own_steering_from_the_second_position_on(tiny_checkpoint: Path, library: Library) -> None:
    steerings = [UNSTEERED, inline("sae-1", f3=60.0), inline("sae-0", f7=50.0), UNSTEERED, inline("sae-1", f3=-60.0)]
    driver, apart = (Driver(tiny_checkpoint, library, PREFILL_CHUNK=64, PREFIX_CACHE_MB=mb) for mb in (512, 0))
    attach(driver, 0, 1)
    attach(apart, 0, 1)
    answers = [driver.send(p, steering=s) for p, s in zip(SHORT, steerings, strict=True)]
    driver.finish()
    assert driver.passes[0] == ("together", 5)
    alone = [apart.alone(p, steering=s).ids() for p, s in zip(SHORT, steerings, strict=True)]
    assert [answer.ids() for answer in answers] == alone
    assert alone[1] != apart.alone(SHORT[1], steering=UNSTEERED).ids()


def test_seeded_and_watched_prompts_are_read_alone(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, PREFILL_CHUNK=64)
    attach(driver, 1)
    driver.send("the sea", sampling=Sampling(temperature=1.0, seed=3), max_tokens=2)
    driver.send("a language", activations=ActivationSpec(top_k=1, positions=PositionChoice.PROMPT), max_tokens=2)
    driver.send("the quick", max_tokens=2)
    driver.finish()
    assert [kind for kind, _ in driver.passes if kind == "together"] == []


def test_one_that_left_while_it_was_read_takes_nobody_along(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, PREFILL_CHUNK=64)
    answers = [driver.send(prompt) for prompt in SHORT]
    together = driver.backend.read_together

    def leaving(*args: object, **more: object) -> object:
        answers[1].handle.cancel()
        return together(*args, **more)  # type: ignore[arg-type]

    driver.backend.read_together = leaving  # type: ignore[method-assign, assignment]
    driver.finish()
    assert answers[1].error is not None
    assert all(a.finished is not None for i, a in enumerate(answers) if i != 1)
    assert driver.scheduler.stats().in_flight == 0


def test_a_failing_pass_ends_nobody_who_can_be_read_alone(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, PREFILL_CHUNK=64)
    expected = [driver.alone(prompt).ids() for prompt in SHORT[1:]]
    first = driver.send("the sea was calm", max_tokens=30)
    driver.tick(3)

    def failing(*args: object) -> object:
        raise RuntimeError("a broken pass")

    driver.backend.read_together = failing  # type: ignore[method-assign, assignment]
    answers = [driver.send(prompt) for prompt in SHORT[1:]]
    driver.finish()
    assert [a.ids() for a in answers] == expected
    assert first.finished is not None
    assert len(first.ids()) == 30


def test_a_short_prompt_waits_for_one_chunk_of_the_long_ones(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, PREFILL_CHUNK=16, PREFIX_CACHE_MB=0, MAX_LANES=9)
    text = "the sea was calm and the ship went slowly along the coast in the evening " * 12
    long = [driver.send(f"{number} {text}", max_tokens=2) for number in range(7)]
    driver.tick(2)
    late = driver.send("the old forest and the quick brown fox", max_tokens=2)
    driver.tick(3)
    assert late.ids()
    # And whoever waits for long is not overtaken for ever: short ones come all the time.
    others = []
    while long[0].finished is None:
        others.append(driver.send(f"a smile {len(others)}", max_tokens=1))
        driver.tick()
        assert len(others) < 400
    assert len(others) > 20
    driver.finish()
    assert all(answer.finished for answer in (*long, *others))

"""A prompt that is repeated, with how likely the model takes each of its tokens: the figures of transformers' own
forward, the same to the bit whatever was read before, and common beginnings read once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import InvalidParameter, NonFiniteLogits
from engine.generation.prompt_scores import PromptScores, offsets, where_to_part
from engine.generation.prompts import PreparedPrompt, prepare_text
from engine.generation.request import ChatInput, FinishReason, GenerationRequest, Message, TextInput, TokenInfo
from engine.library.database import Library
from engine.models.backends.residual import Intervention
from engine.models.backends.tokenizer import CheckpointTokenizer
from engine.monitor.activation_spec import ActivationSpec, PositionChoice
from engine.sampling import Sampling
from engine.steering.request import SteeringRequest
from engine.steering.resolve import resolve
from tests.conftest import CheckpointMaker
from tests.engine.generation.driving import Answer, Driver
from tests.engine.generation.made_tokenizers import sentencepiece
from tests.engine.generation.test_steered_lanes import UNSTEERED, attach, inline
from tests.engine.models.llamacpp.conftest import load as load_gguf
from tests.tiny import FAMILIES, build_tokenizer

STORY = "the sea was calm and the ship went slowly along the coast in the evening"
ITEM = "the old forest, a language model and a smile are written in several bytes each, one after another, and "


def scored(driver: Driver, *prompts: str | tuple[int, ...], **fields: Any) -> Answer:
    answer = driver.send(*prompts, **{"echo": True, "logprobs": 1, "max_tokens": 1, **fields})
    driver.finish()
    assert answer.error is None, answer.error
    return answer


def tokens(answer: Answer, index: int = 0) -> tuple[TokenInfo, ...]:
    """The prompt's tokens of a choice: the first delta has them and nothing else."""
    first = next(each for each in answer.deltas if getattr(each, "index", None) == index)
    return first.tokens  # type: ignore[attr-defined,no-any-return]


def figures(answer: Answer, index: int = 0) -> list[float | None]:
    return [token.logprob for token in tokens(answer, index)]


def ids_of(driver: Driver, text: str) -> list[int]:
    return driver.backend.tokenizer.encode(text, True)


def own(folder: Path, ids: Sequence[int]) -> list[float]:
    """The log-likelihoods of transformers' own forward, one plain call."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits = model(torch.tensor([list(ids)])).logits[0].double().log_softmax(-1)
    return [float(logits[place, token]) for place, token in enumerate(ids[1:])]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_figures_are_those_of_transformers(family: str, checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint(family), library)  # which reads eight tokens at a time
    answer = scored(driver, STORY, max_tokens=3)
    found, expected = figures(answer), own(checkpoint(family), ids_of(driver, STORY))
    assert found[0] is None
    assert found[1:] == pytest.approx(expected, abs=1e-4)
    assert all(len(token.top) == 1 and token.logprob <= token.top[0].logprob for token in tokens(answer)[1:])  # type: ignore[operator]
    assert answer.text().startswith(STORY)
    assert answer.text()[len(STORY) :] == driver.alone(STORY, max_tokens=3).text()


def test_an_end_that_is_one_of_a_kind(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    nothing = scored(driver, STORY, max_tokens=0)
    assert nothing.text() == STORY
    assert nothing.ends[0].reason is FinishReason.LENGTH
    assert nothing.finished is not None and nothing.finished.usage.completion_tokens == 0
    assert [kind for kind, _ in driver.passes] == ["every"] * len(driver.passes)
    one = scored(driver, "a")
    assert figures(one)[0] is None


def test_alternatives_are_those_of_the_model(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    many = tokens(scored(driver, STORY, logprobs=5))
    ids = ids_of(driver, STORY)
    for place in (1, 9, len(ids) - 1):
        logits = driver.backend.extend(driver.backend.new_store(), ids[:place]).log_softmax(-1)
        values, where = logits.topk(5)
        assert [each.token_id for each in many[place].top] == where.tolist()
        assert [each.logprob for each in many[place].top] == pytest.approx(values.tolist(), abs=1e-5)
    none = tokens(scored(driver, STORY, logprobs=0))
    assert all(token.top == () for token in none) and none[3].logprob == many[3].logprob
    # A harness asks whether the token is the likeliest by comparing the two numbers.
    best = [token for token in many[1:] if token.token_id == token.top[0].token_id]
    assert all(token.logprob == token.top[0].logprob for token in best)


def test_they_are_those_of_the_model_as_steered(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    attach(driver, 1)
    plain = figures(scored(driver, STORY))
    steering = inline("sae-1", f3=9.0)
    found = figures(scored(driver, STORY, steering=steering))
    assert found != plain
    resolved = resolve(steering, driver.desk.now.state, driver.desk.now.plan, lambda name: None, driver.service._bounds)
    assert resolved.plan is not None
    work = Intervention({layer: delta[None] for layer, delta in resolved.plan.deltas.items()}, 1)
    ids = ids_of(driver, STORY)
    rows = driver.backend.extend_all(driver.backend.new_store(), ids, work).log_softmax(-1)
    assert found[1:] == pytest.approx([float(rows[i, token]) for i, token in enumerate(ids[1:])], abs=1e-4)
    # Steering by nothing is none, to the bit.
    assert figures(scored(driver, STORY, steering=inline("sae-1", f3=0.0))) == plain
    assert figures(scored(driver, STORY, steering=UNSTEERED)) == plain


def test_what_changes_the_draw_changes_no_figure(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    plain = figures(scored(driver, STORY))
    bent = Sampling(temperature=0.7, repetition_penalty=1.5, logit_bias={5: 50.0}, top_k=3)
    assert figures(scored(driver, STORY, sampling=bent)) == plain


# --- the same to the bit, and read once -------------------------------------------------------------------------------


def items() -> list[str]:
    return [
        ITEM + "never looks back",
        ITEM + "runs into the old forest",
        STORY,
        ITEM + "never looks at the sea in the evening",
        ITEM + "never looks at the sea in the morning",
        STORY,
    ]


def test_a_common_beginning_is_read_once_and_nothing_moves(checkpoint: CheckpointMaker, library: Library) -> None:
    folder = checkpoint("llama")
    common = tuple(10 + 7 * place % 300 for place in range(40))
    prompts = [
        (*common, 5, 6),
        (*common[:20], 7, 8, 9),
        (*common, 7),
        (200, 201),
        (*common, 5, 6, 9),
    ]
    driver, without = Driver(folder, library), Driver(folder, library, PREFIX_CACHE_MB=0)
    shared, apart = scored(driver, *prompts, logprobs=2), scored(without, *prompts, logprobs=2)
    assert [tokens(shared, i) for i in range(5)] == [tokens(apart, i) for i in range(5)]
    for number, ids in enumerate(prompts):
        assert figures(shared, number)[1:] == pytest.approx(own(folder, ids), abs=1e-4)
    read = [sum(count for kind, count in each.passes if kind == "every") for each in (driver, without)]
    # The first prompt whole, the second from its 20th token on, the third and the fifth from the 40th.
    assert read == [42 + 4 + 2 + 2 + 4, 42 + 23 + 41 + 2 + 43]
    assert shared.finished is not None and shared.finished.usage.cached_tokens == read[1] - read[0]
    assert apart.finished is not None and apart.finished.usage.cached_tokens == 0


def test_a_gguf_model_goes_on_where_prompts_part(
    gguf_file: Path, checkpoint: CheckpointMaker, library: Library
) -> None:
    common = tuple(10 + 7 * place % 300 for place in range(40))
    prompts = [
        (*common[:20], 7, 8, 9),
        (*common, 5, 6),
        (200, 201),
        (*common, 7),
        (*common, 5, 6, 9),
    ]
    driver = Driver(gguf_file, library, load=load_gguf)
    without = Driver(gguf_file, library, load=load_gguf, PREFIX_CACHE_MB=0)
    try:
        for max_tokens in (0, 1, 5):
            begun = [len(each.passes) for each in (driver, without)]
            shared, apart = (scored(each, *prompts, logprobs=2, max_tokens=max_tokens) for each in (driver, without))
            assert [tokens(shared, i) for i in range(5)] == [tokens(apart, i) for i in range(5)]
            assert [shared.text(i) for i in range(5)] == [apart.text(i) for i in range(5)]
            for number, ids in enumerate(prompts):
                assert figures(shared, number)[1:] == pytest.approx(own(checkpoint("llama"), ids), rel=1e-3)
            read = [
                sum(count for kind, count in each.passes[start:] if kind == "every")
                for each, start in zip((driver, without), begun, strict=True)
            ]
            # One prompt whole, each other from where it parts from the one before.
            assert read[1] == 23 + 42 + 2 + 41 + 43
            assert read[0] <= 23 + 42 + 2 + 4 + 4
            assert shared.finished is not None and shared.finished.usage.cached_tokens == read[1] - read[0]
    finally:
        driver.backend.close()
        without.backend.close()


@pytest.mark.parametrize("before", [(), (STORY,), tuple(items()), (ITEM,)])
def test_the_figures_are_the_same_bits_whatever_was_read_before(
    before: tuple[str, ...], checkpoint: CheckpointMaker, library: Library
) -> None:
    folder = checkpoint("llama")
    expected = scored(Driver(folder, library), *items())
    driver = Driver(folder, library)
    for text in before:
        driver.alone(text)
        scored(driver, text)
    found = scored(driver, *items())
    again = scored(driver, *items())
    for number in range(6):
        assert tokens(found, number) == tokens(expected, number) == tokens(again, number)


def test_the_figures_are_the_same_bits_whoever_else_is_answered(checkpoint: CheckpointMaker, library: Library) -> None:
    folder = checkpoint("llama")
    expected = [scored(Driver(folder, library), text) for text in items()]
    driver = Driver(folder, library, MAX_LANES=8)
    for _ in range(2):
        driver.send("the quick brown fox jumps over the lazy dog", max_tokens=40)
    found = [driver.send(text, echo=True, logprobs=1, max_tokens=1) for text in items()]
    driver.finish()
    assert [tokens(each) for each in found] == [tokens(each) for each in expected]


def test_figures_are_never_taken_over_from_another_steering_or_another_wish(
    checkpoint: CheckpointMaker, library: Library
) -> None:
    folder = checkpoint("llama")
    driver = Driver(folder, library)
    attach(driver, 1)
    for steering in (SteeringRequest(), inline("sae-1", f3=9.0), SteeringRequest()):
        for k in (0, 3):
            fresh = Driver(folder, library)
            attach(fresh, 1)
            found, expected = (scored(each, *items(), steering=steering, logprobs=k) for each in (driver, fresh))
            assert [tokens(found, i) for i in range(6)] == [tokens(expected, i) for i in range(6)]


def test_choices_share_one_reading(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    answer = scored(driver, STORY, n=3, max_tokens=2)
    assert sum(count for kind, count in driver.passes if kind == "every") == len(ids_of(driver, STORY))
    assert figures(answer, 0) == figures(answer, 1) == figures(answer, 2)
    assert [answer.text(i).startswith(STORY) for i in range(3)] == [True] * 3
    best = scored(driver, STORY, "a b", n=1, best_of=3, sampling=Sampling(temperature=1.0))
    assert [best.text(i).startswith(text) for i, text in enumerate((STORY, "a b"))] == [True, True]


def test_what_is_read_along_goes_with_it(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    attach(driver, 1)
    wanted = ActivationSpec(top_k=2, positions=PositionChoice.ALL)
    answer = scored(driver, STORY, activations=wanted, max_tokens=0)
    assert answer.finished is not None and answer.finished.activations is not None
    assert len(answer.finished.activations["positions"]) == answer.finished.usage.prompt_tokens
    assert figures(answer) == figures(scored(driver, STORY))


def test_a_seed_at_temperature_zero_costs_no_lane_of_its_own(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)

    def solo(temperature: float, *, echo: bool) -> bool:
        request = GenerationRequest(
            driver.name, TextInput((STORY,)), Sampling(temperature=temperature, seed=7), max_tokens=1, echo=echo
        )
        return driver.service.prepare(request).solo

    assert [solo(0.0, echo=True), solo(1.0, echo=True), solo(0.0, echo=False)] == [False, True, True]
    drawn = Sampling(temperature=1.0, seed=7)
    assert figures(scored(driver, *items(), sampling=drawn), 3) == figures(scored(driver, *items()), 3)


def test_a_prompt_may_fill_the_window_where_nothing_is_written(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama", max_positions=32), library)
    full = tuple(5 + place for place in range(32))
    assert len(figures(scored(driver, full, max_tokens=0))) == 32
    with pytest.raises(Exception, match="window"):
        driver.send(full, echo=True, max_tokens=1)


# --- token ids --------------------------------------------------------------------------------------------------------


def test_token_ids_are_read_as_they_stand(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama", add_bos=True), library)
    with_bos = ids_of(driver, STORY)
    without = driver.backend.tokenizer.encode(STORY, False)
    assert len(with_bos) == len(without) + 1
    text, same, bare = (scored(driver, each) for each in (STORY, tuple(with_bos), tuple(without)))
    assert figures(text) == figures(same) != figures(bare)
    assert len(figures(bare)) == len(without)
    # Its BOS is not in the text that was sent, and stands in that of the ids, who sent it.
    assert text.text()[: len(STORY)] == STORY and bare.text()[: len(STORY)] == STORY
    assert same.text().startswith("<|bos|>" + STORY)
    assert [token.text_offset for token in tokens(text)][:2] == [0, 0]
    assert [token.text_offset for token in tokens(same)][:2] == [0, 7]


@pytest.mark.parametrize("wrong", [-1, 400, 10**9, 10**30])
def test_ids_there_are_not(wrong: int, checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    with pytest.raises(InvalidParameter, match="outside the model's vocabulary of 400 tokens") as caught:
        driver.send((5, 6), (7, wrong))
    assert caught.value.param == "prompt"


def test_more_figures_than_an_answer_can_hold(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    many = [(5,) * 1000] * 125
    driver.send(*many, echo=True, logprobs=3, n=2, max_tokens=0).handle.cancel()
    with pytest.raises(InvalidParameter, match="1008000; at most 1000000") as caught:
        driver.send(*many, (5,) * 1000, echo=True, logprobs=3, n=2, max_tokens=0)
    assert caught.value.param == "logprobs"
    driver.finish()


def test_only_raw_prompts_are_repeated() -> None:
    chat = ChatInput((Message("user", "a"),))
    with pytest.raises(InvalidParameter):
        GenerationRequest("m", chat, echo=True)
    with pytest.raises(InvalidParameter):
        GenerationRequest("m", TextInput(("a",)), max_tokens=0)
    assert GenerationRequest("m", TextInput(("a",)), max_tokens=0, echo=True).prompt_logprobs is None


# --- by themselves ----------------------------------------------------------------------------------------------------


def test_where_prompts_part() -> None:
    common = list(range(40))
    prompts = [[*common, 50, 51], [*common, 60], [*common[:20], 70, 71], [1, 2, 3], [*common, 50, 51]]
    # One shorter than what is common: 40 → 39, 20 → 19, 42 → 41 (two tokens behind 39, which is too few).
    assert where_to_part(prompts, 16) == ((19, 39), (19, 39), (19,), (), (19, 39))
    assert where_to_part(prompts, 1) == ((19, 39, 41), (19, 39), (19,), (), (19, 39, 41))
    assert where_to_part([common, common], 16) == ((39,), (39,))
    assert where_to_part([common], 16) == ((),)
    assert where_to_part([common, common[:20]], 16) == ((19,), (19,))


def test_where_prompts_part_is_the_same_in_whatever_order_they_come() -> None:
    draw = torch.Generator().manual_seed(3)
    prompts = [torch.randint(0, 2, (30,), generator=draw).tolist() for _ in range(40)]
    expected = [
        sorted({length - 1 for other in prompts if other is not mine and (length := _common(mine, other)) > 1})
        for mine in prompts
    ]
    assert [list(each) for each in where_to_part(prompts, 1)] == expected
    order = torch.randperm(40, generator=draw).tolist()
    moved = where_to_part([prompts[number] for number in order], 4)
    assert list(moved) == [where_to_part(prompts, 4)[number] for number in order]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    return next((place for place, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), len(one))


def test_offsets_count_whole_characters() -> None:
    tokenizer = CheckpointTokenizer(build_tokenizer(add_bos=True))
    text = "naïve 東京 🙂<|im_end|> 🙂"
    (prompt,) = prepare_text(tokenizer, TextInput((text,)))
    found = offsets(tokenizer, prompt)
    assert found[:2] == [0, 0] and found == sorted(found)
    for place, token in enumerate(prompt.token_ids[1:], 1):
        before = b"".join(tokenizer.token_bytes(each) for each in prompt.token_ids[1:place])
        assert found[place] == len(before.decode("utf-8", "ignore")), token
    half = PreparedPrompt("\ufffdab", (*tokenizer.encode("é", False)[:1], *tokenizer.encode("ab", False)))
    assert offsets(tokenizer, half)[0] == 0 and offsets(tokenizer, half)[-1] in (1, 2)


def test_a_space_the_tokenizer_puts_in_front_has_no_width() -> None:
    tokenizer = sentencepiece()
    (prompt,) = prepare_text(tokenizer, TextInput(("hello world",)))
    found, words = offsets(tokenizer, prompt), [tokenizer.token_text(token) for token in prompt.token_ids]
    assert words[0].startswith(" ")
    last = max(place for place, word in enumerate(words) if word.startswith(" "))
    assert (found[0], found[last]) == (0, 5)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_logits_without_end_are_told(wrong: float) -> None:
    scores = PromptScores([1, 2, 3], 1)
    logits = torch.zeros(3, 10)
    logits[1, 4] = wrong
    with pytest.raises(NonFiniteLogits):
        scores.read(0, logits)


def test_a_token_that_cannot_be_written_is_impossible() -> None:
    scores = PromptScores([1, 12, 3], 2)
    scores.read(0, torch.zeros(3, 10))
    assert scores.so_far.logprobs == pytest.approx((-math.inf, -math.log(10)))
    assert [len(top) for top in scores.so_far.tops] == [2, 2]

"""The sampler: against transformers' own processors, hand-worked penalties, seeds, and its refusals."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.errors import InvalidParameter, NonFiniteLogits
from engine.generation.sampler import LaneSampler, greedy_rows, mixed_seed
from engine.sampling import Sampling

INF = math.inf


def lane(
    vocab_size: int,
    *,
    eos: tuple[int, ...] = (),
    prompt: tuple[int, ...] = (),
    choice: int = 0,
    **sampling: Any,
) -> LaneSampler:
    return LaneSampler(
        Sampling(**sampling), vocab_size=vocab_size, eos_ids=eos, prompt_ids=prompt, choice_index=choice, device="cpu"
    )


def row(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def random_row(size: int, seed: int, spread: float = 4.0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * spread


def adjusted(sampler: LaneSampler, logits: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """The row the sampler draws from, before temperature."""
    return sampler._adjusted(logits, mask)[0]


# --- greedy -----------------------------------------------------------------------------------------------------------


def test_temperature_zero_takes_the_likeliest_and_the_first_of_equals() -> None:
    sampler = lane(4, temperature=0.0)
    assert sampler.pick(row(0.0, 3.0, 1.0, 3.0)).token_id == 1
    assert sampler.pick(row(-5.0, -4.0, -INF, -9.0)).token_id == 1
    assert sampler.pick(row(0.0, 3.0, 1.0, 3.0).bfloat16()).token_id == 1
    assert sampler.generated == 3


def test_greedy_rows_choose_as_pick_does_and_mark_rows_without_a_maximum() -> None:
    rows = torch.stack([row(0.0, 2.0, 2.0), row(5.0, 1.0, 2.0), row(math.nan, 1.0, 2.0), row(-INF, -INF, -INF)])
    assert greedy_rows(rows) == [1, 0, None, None]
    assert greedy_rows(rows[:2].bfloat16()) == [1, 0]


@pytest.mark.parametrize(
    ("sampling", "plain"),
    [
        ({"temperature": 0.0}, True),
        ({"temperature": 0.0, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "seed": 4}, True),
        ({"temperature": 0.5}, False),
        ({"temperature": 0.0, "logit_bias": {1: 2.0}}, False),
        ({"temperature": 0.0, "repetition_penalty": 1.1}, False),
        ({"temperature": 0.0, "frequency_penalty": 0.1}, False),
        ({"temperature": 0.0, "presence_penalty": 0.1}, False),
        ({"temperature": 0.0, "min_tokens": 1}, False),
        ({"temperature": 0.0, "min_tokens": 1, "ignore_eos": True}, True),
    ],
)
def test_what_counts_as_plain_greedy(sampling: dict[str, Any], plain: bool) -> None:
    assert lane(4, eos=(3,), **sampling).is_plain_greedy is plain


def test_a_lane_becomes_plain_greedy_once_min_tokens_are_written() -> None:
    sampler = lane(4, eos=(3,), temperature=0.0, min_tokens=2)
    sampler.pick(row(1.0, 0.0, 0.0, 5.0))
    assert not sampler.is_plain_greedy
    sampler.record(2)
    assert sampler.is_plain_greedy
    assert sampler.pick(row(1.0, 0.0, 0.0, 5.0)).token_id == 3


# --- bias, penalties, mask, end tokens --------------------------------------------------------------------------------


def test_logit_bias_is_added() -> None:
    sampler = lane(4, temperature=0.0, logit_bias={0: 2.5, 3: -100.0})
    assert adjusted(sampler, row(1.0, 2.0, 3.0, 4.0)).tolist() == [3.5, 2.0, 3.0, -96.0]
    assert sampler.pick(row(1.0, 2.0, 3.0, 4.0)).token_id == 0


def test_logit_bias_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="token 4") as caught:
        lane(4, logit_bias={4: 1.0})
    assert caught.value.param == "logit_bias"


def test_additive_penalties_by_hand() -> None:
    sampler = lane(5, temperature=0.0, frequency_penalty=0.5, presence_penalty=0.25, prompt=(4,))
    logits = row(10.0, 9.75, 9.5, -1.0, 1.0)
    picks = [sampler.pick(logits).token_id for _ in range(5)]
    # 0 falls to 9.25 (one 0.5 and 0.25), so 1 is next; it falls to 9.0, then 2 to 8.75; 0 again to 8.75, then 1.
    assert picks == [0, 1, 2, 0, 1]
    assert adjusted(sampler, logits).tolist() == [8.75, 8.5, 8.75, -1.0, 1.0]  # the prompt's 4 is not counted


def test_negative_additive_penalties_raise_what_was_written() -> None:
    sampler = lane(3, temperature=0.0, frequency_penalty=-1.0, presence_penalty=-2.0)
    sampler.record(2)
    sampler.record(2)
    assert adjusted(sampler, row(1.0, 1.0, 1.0)).tolist() == [1.0, 1.0, 5.0]


def test_repetition_penalty_by_hand_each_token_once_prompt_included() -> None:
    sampler = lane(4, temperature=0.0, repetition_penalty=2.0, prompt=(0, 1, 1))
    sampler.record(1)
    sampler.record(2)
    assert adjusted(sampler, row(4.0, -4.0, 1.0, 3.0)).tolist() == [2.0, -8.0, 0.5, 3.0]


@pytest.mark.parametrize("penalty", [0.7, 1.3, 2.0])
def test_repetition_penalty_as_transformers_does(penalty: float) -> None:
    prompt = tuple(torch.randint(0, 1000, (300,), generator=torch.Generator().manual_seed(1)).tolist())
    written = torch.randint(0, 1000, (200,), generator=torch.Generator().manual_seed(2)).tolist()
    sampler = lane(1000, repetition_penalty=penalty, prompt=prompt)
    for token in written:
        sampler.record(token)
    logits = random_row(1000, 3)
    expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([[*prompt, *written]]), logits[None].clone())[0]
    torch.testing.assert_close(adjusted(sampler, logits), expected)


def test_bias_comes_before_penalties_and_penalties_before_the_mask() -> None:
    sampler = lane(3, repetition_penalty=2.0, presence_penalty=1.0, logit_bias={0: -3.0})
    sampler.record(0)
    mask = torch.tensor([True, True, False])
    # 1 − 3 = −2, times 2 = −4, less 1 = −5.
    assert adjusted(sampler, row(1.0, 2.0, 3.0), mask).tolist() == [-5.0, 2.0, -INF]


def test_only_tokens_the_mask_allows_are_chosen() -> None:
    mask = torch.tensor([True, False, True, False])
    assert lane(4, temperature=0.0).pick(row(1.0, 9.0, 2.0, 8.0), mask=mask).token_id == 2
    sampler = lane(4, seed=1)
    assert {sampler.pick(row(1.0, 9.0, 2.0, 8.0), mask=mask).token_id for _ in range(200)} == {0, 2}


def test_end_tokens_are_held_until_min_tokens() -> None:
    sampler = lane(4, eos=(2, 3, 99), temperature=0.0, min_tokens=2)
    logits = row(1.0, 2.0, 8.0, 9.0)
    assert [sampler.pick(logits).token_id for _ in range(4)] == [1, 1, 3, 3]


def test_ignore_eos_does_not_hold_end_tokens() -> None:
    sampler = lane(4, eos=(3,), temperature=0.0, min_tokens=2, ignore_eos=True)
    assert sampler.pick(row(1.0, 2.0, 8.0, 9.0)).token_id == 3


def test_a_constraint_that_allows_only_the_end_wins_over_min_tokens() -> None:
    sampler = lane(4, eos=(3,), temperature=0.0, min_tokens=5)
    mask = torch.tensor([False, False, False, True])
    assert sampler.pick(row(1.0, 2.0, 8.0, -9.0), mask=mask).token_id == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_row_is_never_written_to(dtype: torch.dtype) -> None:
    logits = random_row(50, 5).to(dtype)
    before = logits.clone()
    sampler = lane(
        50,
        eos=(3,),
        prompt=(1, 2),
        min_tokens=9,
        repetition_penalty=1.5,
        presence_penalty=1.0,
        logit_bias={4: 5.0},
        top_k=20,
        top_p=0.9,
        min_p=0.01,
    )
    for _ in range(5):
        sampler.pick(logits, 3, torch.ones(50, dtype=torch.bool))
    assert torch.equal(logits, before)


# --- log-probabilities ------------------------------------------------------------------------------------------------


def test_logprobs_by_hand() -> None:
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log()
    picked = lane(4, temperature=0.0).pick(logits, 2)
    assert picked.token_id == 0
    assert picked.logprob == pytest.approx(math.log(0.5), abs=1e-6)
    assert [token for token, _ in picked.top] == [0, 1]
    assert [value for _, value in picked.top] == pytest.approx([math.log(0.5), math.log(0.25)], abs=1e-6)
    assert lane(4, temperature=0.0).pick(logits, 0).top == ()
    assert lane(4, temperature=0.0).pick(logits).logprob is None


def test_logprobs_are_those_before_temperature_and_truncation_and_after_bias_and_mask() -> None:
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log()
    hot = lane(4, temperature=2.0, top_k=1, top_p=0.1).pick(logits, 4)
    assert (hot.token_id, hot.logprob) == (0, pytest.approx(math.log(0.5), abs=1e-6))
    assert len(hot.top) == 4
    biased = lane(4, temperature=0.0, logit_bias={1: math.log(4.0)}).pick(logits, 1)  # 0.5 : 1 : 0.125 : 0.125
    assert (biased.token_id, biased.logprob) == (1, pytest.approx(math.log(1 / 1.75), abs=1e-6))
    masked = lane(4, temperature=0.0).pick(logits, 4, torch.tensor([False, True, True, False]))
    assert masked.top == (
        (1, pytest.approx(math.log(2 / 3), abs=1e-6)),
        (2, pytest.approx(math.log(1 / 3), abs=1e-6)),
    )


# --- truncation, against transformers ---------------------------------------------------------------------------------


def reference(logits: torch.Tensor, *, temperature: float, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
    """The distribution transformers' ``generate`` would sample from."""
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p < 1.0:
        warpers.append(TopPLogitsWarper(top_p))
    if min_p:
        warpers.append(MinPLogitsWarper(min_p))
    return warpers(torch.zeros(1, 1, dtype=torch.long), logits[None].clone())[0].double().softmax(0)


class Scripted(LaneSampler):
    """Draws with given numbers, so that the whole distribution can be read off the choices."""

    number = 0.0

    def _uniform(self) -> float:
        return self.number

    def at(self, logits: torch.Tensor, number: float) -> int:
        self.number = number
        return self.pick(logits).token_id


@pytest.mark.parametrize("size", [60, 5000, 70_000])
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
        {"temperature": 0.7, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
        {"temperature": 1.5, "top_k": 20, "top_p": 1.0, "min_p": 0.0},
        {"temperature": 1.0, "top_k": 0, "top_p": 0.9, "min_p": 0.0},
        {"temperature": 2.0, "top_k": 0, "top_p": 0.999, "min_p": 0.0},
        {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.05},
        {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.02},
        {"temperature": 1.0, "top_k": 0, "top_p": 0.05, "min_p": 0.0},
        {"temperature": 1.0, "top_k": 100_000, "top_p": 1.0, "min_p": 1.0},
    ],
)
def test_the_support_and_the_shares_are_those_of_transformers(size: int, options: dict[str, Any]) -> None:
    logits = random_row(size, size, spread=2.0)
    expected = reference(logits, **options)
    sampler = Scripted(Sampling(**options), vocab_size=size, eos_ids=(), prompt_ids=(), choice_index=0, device="cpu")
    draws = 400 if size < 10_000 else 60
    counts = Counter(sampler.at(logits, (n + 0.5) / draws) for n in range(draws))
    assert all(expected[token] > 0 for token in counts)
    # With evenly spaced numbers a token of share p is met p · draws times, give or take one.
    for token in expected.topk(min(20, size)).indices.tolist():
        assert abs(counts[token] - float(expected[token]) * draws) <= 1.0 + 1e-6
    ends = {sampler.at(logits, 0.0), sampler.at(logits, 1.0 - 2**-53)}
    assert all(expected[token] > 0 for token in ends)


def test_the_nucleus_holds_the_token_that_crosses_the_line() -> None:
    logits = torch.tensor([0.125, 0.5, 0.25, 0.125]).log()
    for top_p, kept in [(0.4, {1}), (0.51, {1, 2}), (0.74, {1, 2}), (0.76, {1, 2, 0})]:
        sampler = lane(4, top_p=top_p, seed=3)
        assert {sampler.pick(logits).token_id for _ in range(300)} == kept


def test_top_p_zero_keeps_the_likeliest_alone() -> None:
    sampler = lane(4, top_p=0.0, seed=3)
    assert {sampler.pick(row(1.0, 1.1, 1.2, 1.3)).token_id for _ in range(50)} == {3}


def test_top_k_keeps_ties_with_the_last() -> None:
    sampler = lane(5, top_k=2, seed=3)
    assert {sampler.pick(row(3.0, 2.0, 2.0, 1.0, -INF)).token_id for _ in range(300)} == {0, 1, 2}


def test_a_flat_row_needs_the_full_sort() -> None:
    sampler = lane(4000, top_p=0.5, seed=3)
    chosen = {sampler.pick(torch.zeros(4000)).token_id for _ in range(3000)}
    assert max(chosen) == 1999  # of equals the first come first


def test_impossible_tokens_are_never_drawn() -> None:
    logits = torch.full((9000,), -INF)
    logits[[17, 8999]] = 1.0
    for options in ({}, {"top_p": 0.999}, {"top_k": 500}, {"min_p": 0.001}, {"temperature": 2.0, "top_p": 0.99}):
        sampler = lane(9000, seed=5, **options)
        assert {sampler.pick(logits).token_id for _ in range(60)} == {17, 8999}


def test_the_smallest_temperature_is_as_good_as_none() -> None:
    sampler = lane(3, temperature=1e-300, seed=1)
    assert {sampler.pick(row(80.0, -80.0, 79.0)).token_id for _ in range(20)} == {0}


# --- draws and seeds --------------------------------------------------------------------------------------------------


def drawn(sampler: LaneSampler, count: int = 12) -> list[int]:
    return [sampler.pick(torch.zeros(1000)).token_id for _ in range(count)]


def test_a_seed_gives_the_same_draws_and_another_choice_gives_others() -> None:
    first = drawn(lane(1000, seed=7))
    assert drawn(lane(1000, seed=7)) == first
    assert drawn(lane(1000, seed=7, choice=1)) != first
    assert drawn(lane(1000, seed=8)) != first
    assert drawn(lane(1000, seed=2**32 - 1, choice=127)) == drawn(lane(1000, seed=2**32 - 1, choice=127))


def test_mixed_seeds_differ_in_the_bits_the_generator_reads() -> None:
    assert mixed_seed(0, 0) == 0xE220A8397B1DCDAF  # SplitMix64's published first output from state 0
    low = {mixed_seed(seed, choice) & 0xFFFFFFFF for seed in range(200) for choice in range(20)}
    assert len(low) == 4000


def test_unseeded_lanes_differ_and_leave_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    draws = [tuple(drawn(lane(1000))) for _ in range(4)]
    assert torch.equal(torch.get_rng_state(), before)
    assert len(set(draws)) == 4
    torch.manual_seed(5)
    again = drawn(lane(1000))
    torch.manual_seed(5)
    assert drawn(lane(1000)) != again


def test_lanes_do_not_disturb_each_other() -> None:
    alone = drawn(lane(1000, seed=7))
    one, other = lane(1000, seed=7), lane(1000, seed=9)
    mixed = []
    for _ in range(12):
        mixed += drawn(one, 1)
        drawn(other, 3)
    assert mixed == alone


def test_draws_follow_the_shares() -> None:
    sampler = lane(4, seed=11)
    counts = Counter(sampler.pick(torch.tensor([0.5, 0.25, 0.2, 0.05]).log()).token_id for _ in range(8000))
    for token, share in enumerate([0.5, 0.25, 0.2, 0.05]):
        assert abs(counts[token] / 8000 - share) < 0.025  # over four standard deviations


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {}, {"top_p": 0.9}, {"logit_bias": {0: 1.0}}])
@pytest.mark.parametrize(
    ("values", "what"),
    [((1.0, math.nan, 2.0), "NaN"), ((1.0, INF, 2.0), "infinite"), ((-INF, -INF, -INF), "no token is possible")],
)
def test_rows_that_are_no_distribution_are_refused(
    options: dict[str, Any], values: tuple[float, ...], what: str
) -> None:
    sampler = lane(3, **options)
    with pytest.raises(NonFiniteLogits, match=what):
        sampler.pick(row(*values))
    assert sampler.generated == 0


def test_a_mask_does_not_hide_nan_and_a_mask_that_allows_nothing_is_refused() -> None:
    with pytest.raises(NonFiniteLogits, match="NaN"):
        lane(3).pick(row(1.0, math.nan, 2.0), mask=torch.tensor([True, False, True]))
    with pytest.raises(NonFiniteLogits, match="no token is possible"):
        lane(3).pick(row(1.0, 0.0, 2.0), mask=torch.tensor([False, False, False]))


def test_it_works_in_and_out_of_inference_mode() -> None:
    sampler = lane(4, repetition_penalty=1.2, presence_penalty=0.5, seed=1)
    with torch.inference_mode():
        logits = torch.zeros(4) + 1.0
        sampler.pick(logits)
    sampler.pick(logits)
    sampler.pick(torch.ones(4))
    assert sampler.generated == 3


EXTREMES: dict[str, list[Any]] = {
    "temperature": [0.0, 5e-324, 1e-300, 1e-40, 2.0],
    "top_p": [0.0, 5e-324, 1e-300, 1.0],
    "min_p": [0.0, 5e-324, 1e-300, 1.0],
    "repetition_penalty": [5e-324, 1e-300, 1e-38, 2.0],
    "presence_penalty": [-2.0, 5e-324, 2.0],
    "frequency_penalty": [-2.0, 2.0],
    "top_k": [0, 1, 10**9],
    "logit_bias": [{1: 100.0, 2: -100.0}, {3: 5e-324}],
}


@pytest.mark.parametrize("field", EXTREMES)
@pytest.mark.parametrize("scale", [0.0, 20.0, 2e4, 2e31])
def test_every_allowed_value_gives_a_token_and_finite_figures(field: str, scale: float) -> None:
    """Alone and with every other field at its ends; half of the row is impossible from the start."""
    row = torch.randn(64, generator=torch.Generator().manual_seed(1)) * scale
    row[::2] = -math.inf
    for value in EXTREMES[field]:
        for other, values in EXTREMES.items():
            for theirs in values:
                sampling = Sampling(**{"temperature": 1.0, "seed": 3, other: theirs, field: value})
                lane = LaneSampler(sampling, vocab_size=64, eos_ids=[2], prompt_ids=range(10), choice_index=0)
                for _ in range(2):
                    picked = lane.pick(row, 5)
                    assert 0 <= picked.token_id < 64 and picked.token_id % 2 == 1
                    assert picked.logprob is not None and math.isfinite(picked.logprob)
                    assert all(math.isfinite(logprob) for _id, logprob in picked.top)


def test_the_smallest_penalty_makes_what_was_seen_certain() -> None:
    """A logit above 0 is divided by it, one below multiplied: 0.5 / 1e-30 against 3 is no contest."""
    sampling = Sampling(temperature=1.0, repetition_penalty=1e-300, seed=1)
    lane = LaneSampler(sampling, vocab_size=4, eos_ids=[], prompt_ids=[1], choice_index=0)
    picked = lane.pick(torch.tensor([3.0, 0.5, -1.0, 0.0]), 0)
    assert (picked.token_id, picked.logprob) == (1, 0.0)


def test_seeds_of_32_bits_are_mixed_as_ever() -> None:
    """The first is the published first output of SplitMix64 from 0; the others are what earlier versions gave."""
    assert mixed_seed(0, 0) == 0xE220A8397B1DCDAF
    assert mixed_seed(7, 0) == 0x63CBE1E459320DD7
    assert mixed_seed(7, 3) == 0x950E0A0F498B7B6B
    assert mixed_seed(4294967295, 5) == 0x29604D64324AB2B8


def test_longer_and_negative_seeds_draw_apart() -> None:
    seeds = [0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1, -1, -2, -(2**63), -(2**32)]
    mixed = {mixed_seed(seed, choice) for seed in seeds for choice in range(20)}
    assert len(mixed) == len(seeds) * 20
    assert all(0 <= value < 2**64 for value in mixed)

"""What a seed promises, and that it touches nobody else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contract.conftest import Live

DRAWN = {"temperature": 1.0, "max_tokens": 24, "ignore_eos": True}


def choices(live: Live, **body: Any) -> list[dict[str, Any]]:
    response = live.chat(**{**DRAWN, **body})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["choices"]
    return found


def test_what_follows_a_seeded_request_is_drawn_anew(live: Live) -> None:
    seeded = choices(live, seed=7)
    after = [choices(live) for _ in range(3)]
    assert seeded not in after  # A169
    assert len({each[0]["message"]["content"] for each in after}) == 3
    assert choices(live, seed=7) == seeded


def test_a_seed_without_draws_is_echoed_and_changes_nothing(live: Live) -> None:
    plain = live.chat(max_tokens=24)
    seeded = live.chat(max_tokens=24, seed=7)
    assert seeded.headers["X-miLLM-Seed"] == '7;scope="request"'  # A172
    assert seeded.json()["choices"] == plain.json()["choices"]  # A172


def test_several_choices_differ_and_come_again(live: Live) -> None:
    three = choices(live, seed=7, n=3)
    assert len({each["message"]["content"] for each in three}) == 3  # A173
    assert choices(live, seed=7, n=3) == three  # A173
    # Choice 0 is what one alone gives, and so on: choice i depends on the seed and i only.
    assert choices(live, seed=7)[0] == three[0]
    assert choices(live, seed=7, n=2) == three[:2]


def test_a_stream_and_a_text_completion_give_the_same_bytes(live: Live) -> None:
    whole = live.text(**DRAWN, seed=7, prompt=["the sea", "the sea"]).json()["choices"]
    # Each prompt is seeded anew.
    assert whole[0]["text"] == whole[1]["text"]
    with live.sdk() as client:
        stream = client.completions.create(
            model="tiny-llama",
            prompt="the sea",
            seed=7,
            temperature=1.0,
            max_tokens=24,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == whole[0]["text"]


def test_seeded_requests_at_once_give_what_each_gives_alone(live: Live) -> None:
    alone = [choices(live, seed=seed) for seed in range(4)]
    with ThreadPoolExecutor(8) as pool:
        others = [pool.submit(choices, live) for _ in range(4)]
        seeded = [pool.submit(choices, live, seed=seed) for seed in range(4)]
        assert [each.result(120) for each in seeded] == alone  # A175
        for each in others:
            each.result(120)


@pytest.mark.parametrize("seed", [2**32, 2**53 + 1, 2**63 - 1, -2, -(2**63)])
def test_seeds_of_64_bits_repeat(live: Live, seed: int) -> None:
    first = live.chat(**DRAWN, seed=seed)
    assert first.headers["X-miLLM-Seed"] == f'{seed};scope="request"'
    assert live.chat(**DRAWN, seed=seed).json()["choices"] == first.json()["choices"]
    assert live.chat(**DRAWN, seed=seed % 2**32).json()["choices"] != first.json()["choices"]


def test_minus_one_is_no_seed(live: Live) -> None:
    answers = [live.chat(**DRAWN, seed=-1) for _ in range(3)]
    assert not any("X-miLLM-Seed" in answer.headers for answer in answers)
    assert len({answer.json()["choices"][0]["message"]["content"] for answer in answers}) == 3


def test_no_limit_is_the_windows(live: Live) -> None:
    """The tiny model's window is 2,048 tokens; without a word the cap is 512."""
    for name in ("max_tokens", "max_completion_tokens"):
        response = live.chat(**{"max_tokens": ..., name: -1}, top_k=-1, ignore_eos=True)
        assert response.json()["usage"]["total_tokens"] == 2048
        note = f'"{name} -1 is taken as no limit", "top_k -1 is taken as no limit"'
        assert note in response.headers["X-miLLM-Notes"]

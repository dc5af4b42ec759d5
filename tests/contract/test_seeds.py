"""What a seed promises, and that it touches nobody else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

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

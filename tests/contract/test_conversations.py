"""``extra_messages``: several conversations in one request, answered side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from engine.engine import Engine
from tests.contract.conftest import ENDLESS, Live, chat_body
from tests.contract.raw import RawRequest
from tests.contract.stage import CHAT, STEERING, Stage
from tests.waiting import wait_until

FOX = [{"role": "user", "content": "the quick brown fox"}]
SEA = [
    {"role": "system", "content": "a language model"},
    {"role": "user", "content": "the sea was calm and the ship " * 6},
]
HI = [{"role": "user", "content": "hi"}]


def ask(live: Live, *extra: list[dict[str, Any]], **body: Any) -> Any:
    """The answer to FOX and ``extra``, which must be one."""
    response = live.chat(
        **{"messages": FOX, "extra_messages": list(extra), "max_tokens": 24, "ignore_eos": True, **body}
    )
    assert response.status_code == 200, response.text
    return response


def texts(response: Any) -> list[str]:
    choices = response.json()["choices"]
    assert [choice["index"] for choice in choices] == list(range(len(choices)))
    return [choice["message"]["content"] for choice in choices]


def refused(live: Live, *extra: list[dict[str, Any]], **body: Any) -> dict[str, Any]:
    response = live.chat(**{"messages": FOX, "extra_messages": list(extra), **body})
    assert response.status_code == 400
    error: dict[str, Any] = response.json()["error"]
    return error


def test_one_answer_for_each_in_order(live: Live) -> None:
    alone = [texts(ask(live, messages=messages))[0] for messages in (FOX, SEA, HI)]
    together = ask(live, SEA, HI)
    assert texts(together) == alone  # A112, A113: what a row gives alone, whatever the length of its neighbours
    assert len(set(alone)) == 3
    assert together.headers["X-miLLM-Batch"] == "3"  # A112
    assert ask(live).headers["X-miLLM-Batch"] == "1"
    assert live.text().headers["X-miLLM-Batch"] == "1"


def test_each_ends_for_its_own_reason(live: Live) -> None:
    first, second, third = texts(ask(live, SEA, HI))
    stop = next(second[i : i + 3] for i in range(4, 20) if second[i : i + 3] not in first + third)
    answer = ask(live, SEA, HI, stop=stop).json()
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["length", "stop", "length"]  # A113
    assert [choice["message"]["content"] for choice in answer["choices"]] == [
        first,
        second[: second.index(stop)],
        third,
    ]


def test_usage_sums_true_lengths(live: Live) -> None:
    alone = [ask(live, messages=messages).json()["usage"]["prompt_tokens"] for messages in (FOX, SEA, HI)]
    assert alone == [22, 85, 18]
    usage = ask(live, SEA, HI).json()["usage"]
    assert usage["prompt_tokens"] == 125  # A115: 22 + 85 + 18, not three times the longest
    assert (usage["completion_tokens"], usage["total_tokens"]) == (72, 197)


def test_several_choices_for_each(live: Live) -> None:
    answer = ask(live, HI, n=2, temperature=1.0)  # A119: two for each conversation, and they are not the same two
    assert len(set(texts(answer))) == 4
    assert answer.headers["X-miLLM-Batch"] == "2"
    greedy = texts(ask(live, HI, n=2))
    assert greedy == [*texts(ask(live, n=2)), *texts(ask(live, messages=HI, n=2))]
    assert len(texts(ask(live, HI, best_of=3, temperature=1.0))) == 2


def test_an_unfinished_answer_goes_on_in_its_own_row(live: Live) -> None:
    unfinished = [*HI, {"role": "assistant", "content": "the ship"}]
    alone = texts(ask(live, messages=unfinished))[0]
    assert texts(ask(live, unfinished, HI))[1] == alone


def test_an_empty_list_asks_for_nothing(live: Live) -> None:
    assert ask(live).headers["X-miLLM-Batch"] == "1"
    assert live.chat(extra_messages=[], stream=True).status_code == 200
    assert live.text(extra_messages=[]).status_code == 200


def test_what_does_not_go_together(live: Live) -> None:
    error = refused(live, HI, stream=True)  # A116
    assert (error["code"], error["param"]) == ("field_not_honoured", "extra_messages")
    wanted = {"top_k": 1, "positions": "last"}
    assert refused(live, HI, return_sae_activations=wanted)["code"] == "sae_activations_refused"
    text = live.text(extra_messages=[HI]).json()["error"]
    assert (text["code"], text["param"]) == ("field_not_honoured", "extra_messages")
    assert refused(live, *[HI] * 700, n=2)["param"] == "extra_messages"


def test_unknown_keys_are_named_by_their_place(live: Live) -> None:
    marked = [HI[0], {"role": "assistant", "content": "yes", "weight": 1}, HI[0]]
    assert ask(live, marked).headers["X-miLLM-Ignored-Fields"] == '"extra_messages[0][1].weight"'  # A043


def test_one_that_cannot_be_read_fails_all(live: Live) -> None:
    long = [{"role": "user", "content": "the sea " * 2000}]
    error = refused(live, HI, long)
    assert error["code"] == "context_length_exceeded"
    assert error["message"].endswith("(conversation 2)")
    error = refused(live, [])
    assert error["code"] == "invalid_parameter"
    assert error["message"].endswith("(conversation 1)")


@contextmanager
def failing_on(live: Live, token: int) -> Iterator[None]:
    """Memory runs out in every pass that is fed ``token``."""
    loaded = live.engine.shelf.resident
    assert loaded is not None

    def full(module: object, given: tuple[torch.Tensor, ...]) -> None:
        if bool((given[0] == token).any()):
            raise torch.OutOfMemoryError("out of memory")

    hook = loaded.backend._model.get_input_embeddings().register_forward_pre_hook(full)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        hook.remove()


def test_one_that_fails_on_the_way_fails_all(live: Live) -> None:
    loaded = live.engine.shelf.resident
    assert loaded is not None
    # A letter that only the second conversation has.
    (token,) = loaded.backend.tokenizer.encode("Q", False)
    rare = [{"role": "user", "content": "Q"}]
    with failing_on(live, token):
        response = live.chat(messages=FOX, extra_messages=[rare, HI])
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "insufficient_memory"
    assert response.json()["error"]["message"].endswith("(conversation 1)")
    live.wait_idle()
    assert len(texts(ask(live, rare, HI))) == 3


def test_a_seed_holds_for_the_batch(live: Live) -> None:
    first = ask(live, FOX, HI, seed=7, temperature=1.0)
    again = ask(live, FOX, HI, seed=7, temperature=1.0)
    assert first.headers["X-miLLM-Seed"] == '7;scope="batch-shape"'
    assert first.headers["X-miLLM-Backend"] == "serial"
    assert texts(first) == texts(again)
    # Each row draws from its own place: the same conversation twice gives two answers, and row 0 that of one alone.
    assert texts(first)[0] != texts(first)[1]
    alone = ask(live, seed=7, temperature=1.0)
    assert alone.headers["X-miLLM-Seed"] == '7;scope="request"'
    assert texts(first)[0] == texts(alone)[0]
    assert texts(ask(live, HI, FOX, seed=7, temperature=1.0))[2] != texts(first)[1]


def test_all_are_steered_alike(stage: Stage) -> None:
    stage.attach()
    stage.profile("loud", {3: 60.0})
    plain = texts(ask(stage.live, SEA, HI))
    alone = [texts(ask(stage.live, messages=messages, profile="loud"))[0] for messages in (FOX, SEA, HI)]
    steered = ask(stage.live, SEA, HI, profile="loud")
    assert texts(steered) == alone
    assert all(one != other for one, other in zip(alone, plain, strict=True))
    assert steered.headers[STEERING].startswith('profile;name="loud"')


def test_the_form_holds_for_each(live: Live) -> None:
    form = {"type": "json_object"}
    answer = ask(live, HI, response_format=form, max_tokens=12, ignore_eos=...)
    assert all(text.startswith("{") for text in texts(answer))
    assert answer.headers["X-miLLM-Constrained"] == "json_object"


def test_conversations_that_are_scored_say_how_many(live: Live) -> None:
    scored = ask(live, HI, allowed_token_ids=[70, 80], max_tokens=1, ignore_eos=...)
    assert scored.headers["X-miLLM-Mode"] == "scoring"
    assert scored.headers["X-miLLM-Batch"] == "2"


def test_all_of_them_take_one_place_and_leave_it_together(narrow: Live) -> None:
    body = chat_body(messages=FOX, extra_messages=[HI] * 5, max_tokens=ENDLESS, ignore_eos=True)
    with RawRequest(narrow, CHAT, body):
        wait_until(lambda: narrow.engine.generation.stats().in_flight == 1, "a running lane")
        assert narrow.engine.generation.stats().queue_pending == 1
    wait_until(lambda: narrow.engine.generation.stats().queue_pending == 0, "that all have left")
    assert narrow.chat().status_code == 200


def test_with_batching_off_they_come_one_after_another(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], tiny_checkpoint: Any, live: Live
) -> None:
    serial = serve(own_engine(tiny_checkpoint, ENABLE_CONTINUOUS_BATCHING=False))
    answer = ask(serial, SEA, HI)
    assert answer.headers["X-miLLM-Backend"] == "serial"
    assert texts(answer) == texts(ask(live, SEA, HI))

"""Scoring over a real socket: the likelihood of the next token, on both endpoints, never steered."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from engine.engine import Engine
from tests.conftest import CheckpointMaker
from tests.contract.conftest import LONG, MODEL, Live
from tests.contract.raw import RawRequest
from tests.contract.stage import STEERING, TEXT, Stage, inline, stream_body
from tests.waiting import wait_until

PAIR = [70, 80]
MESSAGES = [{"role": "user", "content": "the quick brown fox"}]


def text(live: Live, **body: Any) -> httpx.Response:
    return live.text(**{"max_tokens": 1, "temperature": 1, **body})


def chat(live: Live, **body: Any) -> httpx.Response:
    return live.chat(**{"max_tokens": 1, "temperature": 1, **body})


def logprobs(response: httpx.Response, index: int = 0) -> dict[str, float]:
    """The candidates of a text completion that was scored."""
    assert response.status_code == 200, response.text
    assert response.headers["X-miLLM-Mode"] == "scoring"
    return dict(response.json()["choices"][index]["logprobs"]["top_logprobs"][0])


def content(response: httpx.Response, index: int = 0) -> dict[str, Any]:
    """The one scored token of a chat."""
    assert response.status_code == 200, response.text
    assert response.headers["X-miLLM-Mode"] == "scoring"
    (entry,) = response.json()["choices"][index]["logprobs"]["content"]
    return dict(entry)


def error_of(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == code
    return dict(error)


# --- text completions -------------------------------------------------------------------------------------------------


def test_the_allowed_tokens_share_all_probability(live: Live) -> None:
    response = text(live, allowed_token_ids=[*PAIR, 70], logprobs=2, return_tokens_as_token_ids=True)
    top = logprobs(response)
    assert top.keys() == {"token_id:70", "token_id:80"}  # A124, A130
    assert sum(map(math.exp, top.values())) == pytest.approx(1, abs=1e-5)  # A124
    assert response.headers[STEERING] == "none"
    assert response.headers["X-miLLM-Batch"] == "1"
    assert response.headers["X-miLLM-Backend"] == "serial"
    body = response.json()
    assert body["object"] == "text_completion"
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
    assert body["system_fingerprint"] == "millm:tiny-llama@unrecorded:float32/unrecorded:transformers"
    found = body["choices"][0]["logprobs"]
    assert found["text_offset"] == [len("the quick brown fox")]
    assert found["tokens"] == [max(top, key=lambda name: top[name])]
    assert found["token_logprobs"] == [max(top.values())]


def test_without_logprobs_the_token_is_only_narrowed(live: Live) -> None:
    top = logprobs(text(live, allowed_token_ids=PAIR, logprobs=2))
    response = text(live, allowed_token_ids=PAIR)
    choice = response.json()["choices"][0]
    assert choice["logprobs"] is None  # A125
    assert choice["text"] == max(top, key=lambda name: top[name])  # A125
    assert response.headers["X-miLLM-Mode"] == "scoring"
    message = chat(live, allowed_token_ids=PAIR).json()["choices"][0]
    assert message["logprobs"] is None
    assert message["message"].keys() == {"role", "content"}


def test_the_whole_vocabulary(live: Live) -> None:
    assert len(logprobs(text(live, logprobs=20, return_tokens_as_token_ids=True))) == 20
    assert len(logprobs(text(live, logprobs=0))) == 1  # A121: only the token itself
    assert text(live, logprobs=21).status_code == 400  # A121
    # The likeliest token is what greedy generation writes.
    scored = text(live, logprobs=0, temperature=0).json()["choices"][0]["text"]
    assert scored == live.text(max_tokens=1).json()["choices"][0]["text"]


def test_two_tokens_are_generation(live: Live) -> None:
    for body in ({"max_tokens": 2}, {"max_tokens": ...}, {"n": 2}, {"stream": True}):
        response = text(live, logprobs=2, **body)  # A122
        assert response.status_code == 200
        assert response.headers["X-miLLM-Mode"] == "generation"


def test_several_prompts(live: Live) -> None:
    prompts = ["the quick", "the sea was calm and the ship went", "a language model"]
    together = text(live, prompt=prompts, logprobs=5, return_tokens_as_token_ids=True)
    body = together.json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert body["usage"]["completion_tokens"] == 3
    for index, prompt in enumerate(prompts):
        alone = logprobs(text(live, prompt=prompt, logprobs=5, return_tokens_as_token_ids=True))
        assert logprobs(together, index) == pytest.approx(alone, abs=1e-5)


def test_one_bad_prompt_fails_all_and_is_numbered(live: Live) -> None:
    response = text(live, prompt=["the quick", "the " * 2100], logprobs=1)
    assert error_of(response, 400, "context_length_exceeded")["message"].endswith("(prompt 1)")  # A133
    response = text(live, prompt="", add_special_tokens=False, logprobs=1)
    error_of(response, 400, "invalid_scoring_request")  # A131


def test_tokens_outside_the_vocabulary(live: Live) -> None:
    loaded = live.engine.shelf.resident
    assert loaded is not None
    size = loaded.info.vocab_size
    for send in (text, chat):
        error = error_of(send(live, allowed_token_ids=[size]), 400, "invalid_scoring_request")  # A127
        assert error["param"] is None
        assert str(size) in error["message"]
        for bad in ([], list(range(1025)), [-1]):  # A128
            assert error_of(send(live, allowed_token_ids=bad), 400, "invalid_parameter")


def test_the_temperature_divides_the_logits(live: Live) -> None:
    def gap(temperature: float) -> float:
        top = logprobs(text(live, allowed_token_ids=PAIR, logprobs=2, temperature=temperature))
        return max(top.values()) - min(top.values())

    assert gap(2) == pytest.approx(gap(1) / 2, rel=1e-4)  # A137
    assert gap(0) == pytest.approx(gap(1), rel=1e-6)  # A137: 0 does not scale
    assert error_of(text(live, logprobs=1, temperature=0.0001), 400, "invalid_parameter")["param"] == "temperature"


@pytest.mark.parametrize("send", [text, chat])
def test_what_is_about_writing(live: Live, send: Callable[..., httpx.Response]) -> None:
    for name, value in (
        ("profile", "p"),  # A136
        ("steering_intensity", 0.5),  # A136
        ("steering", {"features": []}),  # A136
        ("n", 2),
        ("stream", True),
        ("best_of", 2),
        ("min_tokens", 1),
        ("logit_bias", {"5": 1}),
        ("response_format", {"type": "json_object"}),
    ):
        error = error_of(send(live, allowed_token_ids=PAIR, **{name: value}), 400, "field_not_honoured")
        assert error["param"] == name
    for cap in (2, ...):
        error = error_of(send(live, allowed_token_ids=PAIR, max_tokens=cap), 400, "invalid_parameter")
        assert error["param"] == "max_tokens"
    assert send(live, allowed_token_ids=PAIR, max_tokens=..., max_completion_tokens=1).status_code == 200


def test_what_has_no_effect_is_reported(live: Live) -> None:
    body = {"top_p": 0.5, "top_k": 3, "min_p": 0.1, "frequency_penalty": 1, "stop": "x", "repeat_penalty": 1.1}
    response = text(live, allowed_token_ids=PAIR, logprobs=2, seed=7, **body)
    assert logprobs(response) == logprobs(text(live, allowed_token_ids=PAIR, logprobs=2))
    assert response.headers["X-miLLM-Ignored-Fields"] == (
        '"top_p", "top_k", "min_p", "frequency_penalty", "repeat_penalty", "stop"'
    )
    assert response.headers["X-miLLM-Seed"] == '7;scope="request"'
    strict = text(live, allowed_token_ids=PAIR, top_p=0.5, headers={"X-miLLM-Strict": "true"})
    assert error_of(strict, 400, "unused_fields_refused")["param"] == "top_p"


# --- chat -------------------------------------------------------------------------------------------------------------


def test_the_shape_of_a_scored_chat(live: Live) -> None:
    response = chat(live, logprobs=True, top_logprobs=2)
    entry = content(response)
    assert entry.keys() == {"token", "logprob", "bytes", "top_logprobs"}  # A142
    assert len(entry["top_logprobs"]) == 2  # A142
    assert entry["top_logprobs"][0] == {key: entry[key] for key in ("token", "logprob", "bytes")}
    choice = response.json()["choices"][0]
    assert choice["message"]["content"] == bytes(entry["bytes"]).decode("utf-8", "replace")  # A152
    assert choice["finish_reason"] == "length"
    assert response.json()["object"] == "chat.completion"
    assert content(chat(live, logprobs=True))["top_logprobs"] == []
    named = content(chat(live, logprobs=True, return_tokens_as_token_ids=True))
    assert named["token"].startswith("token_id:")
    assert named["bytes"] == entry["bytes"]  # A145
    assert error_of(chat(live, top_logprobs=2), 400, "invalid_parameter")["param"] == "top_logprobs"  # A143


def test_a_chat_scores_as_its_rendered_prompt(live: Live) -> None:
    rendered = "<|im_start|>user\nthe quick brown fox<|im_end|>\n<|im_start|>assistant\n"
    top = logprobs(text(live, prompt=rendered, add_special_tokens=False, logprobs=5, return_tokens_as_token_ids=True))
    entry = content(chat(live, logprobs=True, top_logprobs=5, return_tokens_as_token_ids=True))
    assert {each["token"]: each["logprob"] for each in entry["top_logprobs"]} == pytest.approx(top, abs=1e-5)  # A146


def test_several_conversations(live: Live) -> None:
    other = [{"role": "user", "content": "the sea was calm"}]
    response = chat(live, extra_messages=[other], logprobs=True, top_logprobs=3)  # A149
    assert [choice["index"] for choice in response.json()["choices"]] == [0, 1]
    for index, messages in enumerate((MESSAGES, other)):
        alone = content(chat(live, messages=messages, logprobs=True, top_logprobs=3))
        assert content(response, index)["logprob"] == pytest.approx(alone["logprob"], abs=1e-5)
    too_long = [{"role": "user", "content": "the " * 2100}]
    error = error_of(chat(live, extra_messages=[other, too_long], logprobs=True), 400, "context_length_exceeded")
    assert error["message"].endswith("(conversation 2)")  # A149


def test_a_model_without_a_template(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    bare = serve(own_engine(checkpoint("llama", chat_template=None)))
    error = error_of(chat(bare, logprobs=True), 400, "no_chat_template")
    assert MODEL in error["message"]  # A148
    assert chat(bare, max_tokens=2).status_code == 200  # generation keeps its generic turns


def test_numbers_that_are_none(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], tiny_checkpoint: Path
) -> None:
    engine = own_engine(tiny_checkpoint)
    broken = serve(engine)
    loaded = engine.shelf.resident
    assert loaded is not None

    def broken_there(module: object, given: object, logits: torch.Tensor) -> torch.Tensor:
        logits[..., 70] = math.nan
        return logits

    loaded.backend._model.get_output_embeddings().register_forward_hook(broken_there)  # type: ignore[attr-defined]
    for send, asked in ((text, 2), (chat, True)):
        error = error_of(send(broken, allowed_token_ids=[70, 80], logprobs=asked), 500, "non_finite_logits")  # A139
        assert error["type"] == "server_error"
        assert send(broken, allowed_token_ids=[81, 80], logprobs=asked).status_code == 200  # A139


def test_what_is_impossible(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], tiny_checkpoint: Path
) -> None:
    engine = own_engine(tiny_checkpoint)
    one_impossible = serve(engine)
    loaded = engine.shelf.resident
    assert loaded is not None

    def never(module: object, given: object, logits: torch.Tensor) -> torch.Tensor:
        logits[..., 70] = -math.inf
        return logits

    loaded.backend._model.get_output_embeddings().register_forward_hook(never)  # type: ignore[attr-defined]
    wanted = {"allowed_token_ids": [70, 80]}
    for send, both, one in ((text, {"logprobs": 2}, {"logprobs": 1}), (chat, {"top_logprobs": 2}, {"top_logprobs": 1})):
        more = {} if send is text else {"logprobs": True}
        error_of(send(one_impossible, **wanted, **{**more, **both}), 500, "non_finite_logits")  # A140: it is listed
        assert send(one_impossible, **wanted, **{**more, **one}).status_code == 200  # A140: it is not
        assert send(one_impossible, allowed_token_ids=[80, 81], **{**more, **both}).status_code == 200


def test_the_sdk_reads_a_scored_chat_and_text(live: Live) -> None:
    with live.sdk() as client:
        answer = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "the quick"}],
            max_tokens=1,
            logprobs=True,
            top_logprobs=2,
            extra_body={"allowed_token_ids": PAIR},
        )
        assert answer.choices[0].logprobs is not None
        assert answer.choices[0].logprobs.content is not None
        assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 2
        written = client.completions.create(
            model=MODEL, prompt="the quick", max_tokens=1, logprobs=2, extra_body={"allowed_token_ids": PAIR}
        )
        assert written.choices[0].logprobs is not None
        assert written.choices[0].logprobs.top_logprobs is not None
        assert len(written.choices[0].logprobs.top_logprobs[0]) == 2


# --- beside others ----------------------------------------------------------------------------------------------------


def test_scoring_is_unsteered_under_a_live_profile(stage: Stage) -> None:
    live = stage.live
    stage.attach()
    before = logprobs(text(live, logprobs=5, return_tokens_as_token_ids=True))
    plain = stage.text()
    stage.activate(stage.profile("loud", {3: 60.0}))
    assert stage.text() != plain
    response = text(live, logprobs=5, return_tokens_as_token_ids=True)
    assert logprobs(response) == before  # A151
    assert response.headers[STEERING] == "none"  # A151
    wanted = {"top_k": 2, "positions": "last"}
    read = text(live, logprobs=5, return_tokens_as_token_ids=True, return_sae_activations=wanted)
    assert logprobs(read) == before
    assert read.json()["millm"]["sae_activations"]["read_point"] == "unsteered"
    several = chat(live, logprobs=True, extra_messages=[MESSAGES], return_sae_activations=wanted)
    error_of(several, 400, "sae_activations_refused")


def test_scoring_beside_steered_lanes(stage: Stage) -> None:
    live = stage.live
    stage.attach()
    steering = inline((3, 60.0))
    alone = stage.text(steering=steering, max_tokens=400)
    asked = {
        "logprobs": 5,
        "return_tokens_as_token_ids": True,
        "prompt": ["the sea " * 80 + "was", "the sea " * 80, "x"],
    }
    nobody_else = text(live, **asked)
    before = [logprobs(nobody_else, index) for index in range(3)]
    assert nobody_else.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 128  # read once for two of them
    with ThreadPoolExecutor(4) as pool:
        steered = [pool.submit(stage.text, steering=steering, max_tokens=400) for _ in range(3)]
        wait_until(lambda: live.engine.generation.stats().in_flight == 3, "three steered lanes")
        scored = [logprobs(response, index) for response in [text(live, **asked)] for index in range(3)]
        still = live.engine.generation.stats().in_flight
        texts = [each.result(120) for each in steered]
    assert still > 0, "the steered answers had ended before the scores came"
    assert scored == before  # A151
    assert texts == [alone] * 3


def test_a_client_that_leaves_frees_the_queue(narrow: Live) -> None:
    with RawRequest(narrow, TEXT, stream_body(TEXT, max_tokens=LONG)) as busy:
        busy.read_until(b"data: ")
        waiting = {"model": MODEL, "prompt": "the sea", "max_tokens": 1, "logprobs": 1}
        with RawRequest(narrow, TEXT, waiting):
            wait_until(lambda: narrow.engine.generation.stats().queue_pending == 2, "a waiting request")
        wait_until(lambda: narrow.engine.generation.stats().queue_pending == 1, "that it has left")


def test_a_full_queue(narrow: Live) -> None:
    with RawRequest(narrow, TEXT, stream_body(TEXT, max_tokens=LONG)) as busy:
        busy.read_until(b"data: ")
        waiting = {"model": MODEL, "prompt": "the sea", "max_tokens": 1, "logprobs": 1}
        with RawRequest(narrow, TEXT, waiting), RawRequest(narrow, TEXT, waiting), RawRequest(narrow, TEXT, waiting):
            wait_until(lambda: narrow.engine.generation.stats().queue_waiting == 3, "three waiting requests")
            response = text(narrow, logprobs=1)
            error_of(response, 503, "queue_full")
            assert int(response.headers["Retry-After"]) >= 1


def test_memory_that_runs_out(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], tiny_checkpoint: Path
) -> None:
    engine = own_engine(tiny_checkpoint)
    live = serve(engine)
    loaded = engine.shelf.resident
    assert loaded is not None

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    hook = loaded.backend._model.get_input_embeddings().register_forward_pre_hook(full)  # type: ignore[attr-defined]
    with live.http() as client:
        for path, body in (
            ("/v1/completions", {"prompt": "x", "max_tokens": 1, "logprobs": 1}),
            ("/v1/embeddings", {"input": "x"}),
        ):
            response = client.post(path, json={"model": MODEL, **body})
            error = error_of(response, 503, "insufficient_memory")
            assert error["type"] == "invalid_request_error"
            assert response.headers["Retry-After"] == "30"
    hook.remove()
    assert text(live, logprobs=1).status_code == 200


def candidates(response: httpx.Response) -> dict[str, float]:
    """The candidates of a scored text or chat."""
    if response.json()["object"] == "text_completion":
        return logprobs(response)
    return {entry["token"]: entry["logprob"] for entry in content(response)["top_logprobs"]}


@pytest.mark.parametrize("send", [text, chat])
def test_the_usual_classifier(live: Live, send: Callable[..., httpx.Response]) -> None:
    """A bias that lifts two tokens, and their probabilities: log-softmax of the logits with the bias added."""
    first, second = PAIR[:2]
    asked: dict[str, Any] = {"logprobs": 2} if send is text else {"logprobs": True, "top_logprobs": 2}
    response = send(live, **asked, logit_bias={str(first): 100, str(second): 100}, return_tokens_as_token_ids=True)
    assert response.status_code == 200, response.text
    assert response.headers["X-miLLM-Mode"] == "scoring"
    assert "X-miLLM-Ignored-Fields" not in response.headers
    shown = candidates(response)
    assert set(shown) == {f"token_id:{first}", f"token_id:{second}"}
    assert sum(math.exp(value) for value in shown.values()) == pytest.approx(1, abs=1e-4)
    # The same two alone: what was lifted far above all others is told apart as they are among themselves.
    alone = candidates(send(live, **asked, allowed_token_ids=[first, second], return_tokens_as_token_ids=True))
    assert shown == pytest.approx(alone, abs=1e-3)
    # A bias moves the odds of the two by itself.
    tilted = candidates(
        send(live, **asked, logit_bias={str(first): 100, str(second): 98}, return_tokens_as_token_ids=True)
    )
    gap = shown[f"token_id:{first}"] - shown[f"token_id:{second}"]
    assert tilted[f"token_id:{first}"] - tilted[f"token_id:{second}"] == pytest.approx(gap + 2, abs=1e-3)


def test_a_bias_outside_the_vocabulary_is_refused(live: Live) -> None:
    assert (
        error_of(text(live, logprobs=2, logit_bias={"99999999": 1}), 400, "invalid_parameter")["param"] == "logit_bias"
    )

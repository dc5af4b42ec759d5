"""The shapes of ordinary answers, over a real socket."""

from __future__ import annotations

import re

from tests.contract.conftest import MODEL, Live


def test_a_minimal_chat(live: Live) -> None:
    with live.http() as client:
        response = client.post(
            "/v1/chat/completions",
            json={"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4},
        )
    assert response.status_code == 200  # A001
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body.keys() == {"id", "object", "created", "model", "choices", "usage", "system_fingerprint"}
    assert body["object"] == "chat.completion"
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{24}", body["id"])
    assert body["model"] == "tiny-llama"  # A004
    assert [c["index"] for c in body["choices"]] == [0]
    choice = body["choices"][0]
    assert choice.keys() == {"index", "message", "finish_reason"}  # A016: no logprobs key
    assert choice["message"]["role"] == "assistant"
    assert choice["message"].keys() == {"role", "content"}
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]  # A005


def test_a_minimal_text_completion(live: Live) -> None:
    body = live.text().json()
    assert body["object"] == "text_completion"  # A002
    assert re.fullmatch(r"cmpl-[0-9a-f]{24}", body["id"])
    assert body["choices"][0].keys() == {"index", "text", "logprobs", "finish_reason"}
    assert body["choices"][0]["logprobs"] is None
    assert body["usage"]["completion_tokens"] == 8
    assert body["choices"][0]["finish_reason"] == "length"


def test_headers_of_both_endpoints(live: Live) -> None:
    for response in (live.chat(), live.text()):
        assert response.headers["X-miLLM-Backend"] == "cbm"  # A017
        assert response.headers["X-miLLM-Batch"] == "1"
        assert response.headers["X-miLLM-Steering"] == "none"
        assert response.headers["X-miLLM-Mode"] == "generation"
        assert "X-miLLM-Seed" not in response.headers  # A170
        assert "X-miLLM-Ignored-Fields" not in response.headers


def test_the_fingerprint_names_what_is_known(live: Live) -> None:
    assert live.chat().json()["system_fingerprint"] == (
        "millm:tiny-llama@unrecorded:float32/unrecorded:transformers"  # A013, A095
    )


def test_several_prompts(live: Live) -> None:
    prompts = ["the quick", "the sea was calm", "a language model"]
    body = live.text(prompt=prompts).json()  # A010
    assert [c["index"] for c in body["choices"]] == [0, 1, 2]
    alone = [live.text(prompt=prompt).json() for prompt in prompts]
    assert [c["text"] for c in body["choices"]] == [one["choices"][0]["text"] for one in alone]
    assert body["usage"]["prompt_tokens"] == sum(one["usage"]["prompt_tokens"] for one in alone)
    assert body["usage"]["completion_tokens"] == 24


def test_greedy_text_repeats(live: Live) -> None:
    first, second = (live.chat(max_tokens=24).json()["choices"][0]["message"]["content"] for _ in range(2))
    assert first == second  # A011
    assert first


def test_without_a_cap_the_default_holds(live: Live) -> None:
    body = live.chat(max_tokens=..., ignore_eos=True).json()
    assert body["usage"]["completion_tokens"] == 1024  # A008
    assert body["choices"][0]["finish_reason"] == "length"


def test_an_end_token_stops(live: Live) -> None:
    # The tiny model never ends of its own accord in a few tokens, so its end token is made certain.
    end = live.engine.shelf.resident.backend.tokenizer.eos_ids  # type: ignore[union-attr]
    body = live.chat(logit_bias={str(token): 100 for token in end}).json()
    assert body["choices"][0]["finish_reason"] == "stop"  # A007
    assert body["choices"][0]["message"]["content"] == ""


def test_any_key_or_none_is_accepted_without_a_key_set(live: Live) -> None:
    assert live.chat().status_code == 200  # A019
    assert live.chat(headers={"Authorization": "Bearer whatever"}).status_code == 200


def test_null_content_is_accepted(live: Live) -> None:
    messages = [{"role": "assistant", "content": None}, {"role": "user", "content": "hi"}]
    assert live.chat(messages=messages).status_code == 200  # A022


def test_developer_is_system(live: Live) -> None:
    def tokens(role: str) -> tuple[int, str]:
        messages = [{"role": role, "content": "be brief"}, {"role": "user", "content": "hi"}]
        body = live.chat(messages=messages).json()
        return body["usage"]["prompt_tokens"], body["choices"][0]["message"]["content"]

    assert tokens("developer") == tokens("system")  # A020


def test_content_parts_are_joined(live: Live) -> None:
    whole = live.chat(messages=[{"role": "user", "content": "the sea was calm"}]).json()
    parts = [{"type": "text", "text": "the sea "}, {"type": "input_text", "text": "was calm"}]
    joined = live.chat(messages=[{"role": "user", "content": parts}]).json()
    assert joined["choices"] == whole["choices"]
    assert joined["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]


def test_extra_message_keys_never_reach_the_template(live: Live) -> None:
    plain = live.chat(messages=[{"role": "user", "content": "hi"}])
    extra = live.chat(messages=[{"role": "user", "content": "hi", "name": "Ann", "mood": "gay"}])  # A106
    assert extra.json()["choices"] == plain.json()["choices"]
    assert extra.json()["usage"]["prompt_tokens"] == plain.json()["usage"]["prompt_tokens"]
    assert extra.headers["X-miLLM-Ignored-Fields"] == '"messages[0].name", "messages[0].mood"'


def test_several_choices(live: Live) -> None:
    body = live.chat(n=3, temperature=1.0, ignore_eos=True).json()
    assert [c["index"] for c in body["choices"]] == [0, 1, 2]
    assert body["usage"]["prompt_tokens"] == live.chat().json()["usage"]["prompt_tokens"]  # counted once
    assert body["usage"]["completion_tokens"] == 24
    assert len(live.text(n=2, prompt=["a", "b"]).json()["choices"]) == 4  # A065


def test_best_of_returns_the_likeliest(live: Live) -> None:
    body = live.text(n=2, best_of=4, temperature=1.0, logprobs=0, seed=5, ignore_eos=True).json()
    assert [c["index"] for c in body["choices"]] == [0, 1]
    sums = [sum(c["logprobs"]["token_logprobs"]) for c in body["choices"]]
    assert sums[0] >= sums[1]
    assert body["usage"]["completion_tokens"] == 32


def test_a_seed_is_echoed_and_repeats(live: Live) -> None:
    first, second = (live.chat(seed=7, temperature=1.0, max_tokens=24) for _ in range(2))
    assert first.headers["X-miLLM-Seed"] == '7;scope="request"'  # A167
    assert first.headers["X-miLLM-Backend"] == "serial"
    assert first.json()["choices"] == second.json()["choices"]
    assert live.chat(seed=8, temperature=1.0, max_tokens=24).json()["choices"] != first.json()["choices"]


def test_stops_cut_at_the_earliest_match(live: Live) -> None:
    whole = live.text(max_tokens=40).json()["choices"][0]["text"]
    # Two stops made of the text itself: the later one listed first.
    early, late = whole[4:6], whole[10:13]
    cut = min(whole.index(early), whole.index(late))
    choice = live.text(max_tokens=40, stop=[late, early]).json()["choices"][0]  # A097
    assert choice["text"] == whole[:cut]
    assert choice["finish_reason"] == "stop"


def test_zero_penalties_change_nothing(live: Live) -> None:
    plain = live.chat(max_tokens=24).json()["choices"]
    assert live.chat(max_tokens=24, frequency_penalty=0, presence_penalty=0).json()["choices"] == plain  # A098
    assert live.chat(max_tokens=24, frequency_penalty=2, presence_penalty=2).json()["choices"] != plain


def test_a_bias_decides_the_token(live: Live) -> None:
    body = live.text(logit_bias={"70": 100}, logprobs=0, return_tokens_as_token_ids=True, max_tokens=3).json()
    assert body["choices"][0]["logprobs"]["tokens"] == ["token_id:70"] * 3  # A064


def test_special_tokens_of_raw_prompts(live: Live) -> None:
    # The tiny tokenizer adds no BOS: both spellings read the same prompt.
    bare, plain = live.text(add_special_tokens=False).json(), live.text().json()
    assert bare["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"] == 5


def test_logprobs_of_a_chat(live: Live) -> None:
    response = live.chat(logprobs=True, top_logprobs=3, max_tokens=5)
    content = response.json()["choices"][0]["logprobs"]["content"]
    assert len(content) == 5
    for entry in content:
        assert entry.keys() == {"token", "logprob", "bytes", "top_logprobs"}
        assert len(entry["top_logprobs"]) == 3
        assert entry["logprob"] == entry["top_logprobs"][0]["logprob"]  # greedy takes the likeliest
        falling = [top["logprob"] for top in entry["top_logprobs"]]
        assert falling == sorted(falling, reverse=True)
    text = b"".join(bytes(entry["bytes"]) for entry in content).decode("utf-8", "replace")
    assert text.startswith(response.json()["choices"][0]["message"]["content"])
    assert response.headers["X-miLLM-Mode"] == "generation"


def test_logprobs_of_a_text_completion(live: Live) -> None:
    prompt = "the quick brown fox"
    logprobs = live.text(prompt=prompt, logprobs=2, max_tokens=5).json()["choices"][0]["logprobs"]  # A122
    assert [len(logprobs[key]) for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")] == [5, 5, 5, 5]
    assert logprobs["text_offset"][0] == len(prompt)
    assert logprobs["text_offset"] == sorted(logprobs["text_offset"])
    assert all(len(top) == 2 for top in logprobs["top_logprobs"])

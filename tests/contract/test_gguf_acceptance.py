"""The acceptance lines about GGUF models, as they are read here: what llama.cpp truly gives is honoured, and what cannot
be is refused before anything loads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.actions.models.importing import import_local_model
from engine.engine import Engine
from engine.library.records import ModelStatus
from tests.contract.conftest import Live
from tests.contract.stage import CHAT, INTENSITY, STEERING, TEXT, Stage, inline

NAME = "tiny-llama:F32"
OTHER = [[{"role": "user", "content": "the sea was calm"}], [{"role": "user", "content": "a smile"}]]


@pytest.fixture
def beside(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], tiny_checkpoint: Path, gguf_file: Path
) -> Live:
    """A transformers model in memory, and the GGUF of the same weights in the library only."""
    engine = own_engine(tiny_checkpoint)
    import_local_model(engine.library, engine.events, gguf_file)
    return serve(engine)


def resident(live: Live) -> str:
    found = live.engine.shelf.resident
    assert found is not None
    return found.record.name


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        (CHAT, "functions", [{"name": "f"}]),
        (CHAT, "verbosity", "low"),
        (TEXT, "top_logprobs", 2),
        (TEXT, "response_format", {"type": "json_object"}),
        ("/v1/embeddings", "pooling", "last"),
        ("/v1/embeddings", "dimensions", 8),
    ],
)
def test_what_cannot_be_is_refused_before_anything_loads(beside: Live, path: str, field: str, value: Any) -> None:
    asked: dict[str, Any] = {CHAT: OTHER[0], TEXT: "the sea"}
    name = {CHAT: "messages", TEXT: "prompt"}.get(path, "input")
    with beside.http() as client:
        answer = client.post(path, json={"model": NAME, name: asked.get(path, "the sea"), field: value})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "field_not_honoured", field)  # A074, A245
    assert NAME in error["message"] and "llamacpp" in error["message"]
    assert resident(beside) == "tiny-llama"
    assert [row.status for row in beside.engine.library.models.list()] == [ModelStatus.READY, ModelStatus.LOADED]


def test_logprobs_of_what_is_written(gguf: Live) -> None:
    choice = gguf.chat(logprobs=True, top_logprobs=2, max_tokens=3).json()["choices"][0]
    content = choice["logprobs"]["content"]  # A074: llama.cpp gives them, so they are honoured
    assert len(content) == 3 and all(len(each["top_logprobs"]) == 2 for each in content)
    # A token may be half a character, so it is the bytes that add up.
    assert bytes(byte for each in content for byte in each["bytes"]).decode() == choice["message"]["content"]
    # The likelier first, and the chosen one, greedily, is the likeliest.
    assert all(each["logprob"] == each["top_logprobs"][0]["logprob"] < 0 for each in content)


def test_two_choices(gguf: Live) -> None:
    answer = gguf.chat(n=2).json()  # A077
    first, second = answer["choices"]
    assert (first["index"], second["index"]) == (0, 1)
    assert first["message"] == second["message"]  # greedy
    assert answer["usage"]["completion_tokens"] == 16
    assert answer["usage"]["prompt_tokens"] == gguf.chat().json()["usage"]["prompt_tokens"]


def test_several_conversations(gguf: Live) -> None:
    answer = gguf.chat(extra_messages=OTHER)  # A118
    assert answer.headers["X-miLLM-Batch"] == "3"
    alone = [gguf.chat().json(), *(gguf.chat(messages=messages).json() for messages in OTHER)]
    together = answer.json()
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2]
    assert [each["message"] for each in together["choices"]] == [each["choices"][0]["message"] for each in alone]
    assert together["usage"]["prompt_tokens"] == sum(each["usage"]["prompt_tokens"] for each in alone)


def test_scoring(gguf: Live) -> None:
    answer = gguf.text(max_tokens=1, logprobs=2, allowed_token_ids=[300, 301])  # A134
    assert answer.headers["X-miLLM-Mode"] == "scoring" and answer.headers[STEERING] == "none"
    first, second = answer.json()["choices"][0]["logprobs"]["top_logprobs"][0].values()
    assert 0 > first >= second
    assert 2.718281828459045**first + 2.718281828459045**second == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("stream", [False, True])
def test_a_truncated_answer_goes_on(gguf_stage: Stage, stream: bool) -> None:
    question = {"role": "user", "content": "the quick brown fox"}
    live = gguf_stage.live
    whole = live.chat(max_tokens=8, ignore_eos=True).json()["choices"][0]["message"]["content"]
    begun = live.chat(max_tokens=4, ignore_eos=True).json()["choices"][0]["message"]["content"]
    assert whole.startswith(begun) and begun.strip()
    messages = [question, {"role": "assistant", "content": begun}]
    if stream:
        response, events = gguf_stage.stream(CHAT, messages=messages, max_tokens=4)
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        text = "".join(delta.get("content") or "" for delta in deltas)
    else:
        response = live.chat(messages=messages, max_tokens=4, ignore_eos=True)
        text = response.json()["choices"][0]["message"]["content"]
    assert response.status_code == 200
    assert begun + text == whole  # A251
    assert "assistant" not in text and "<|im_start|>" not in text


def test_a_text_completion_has_its_own_end_and_count(gguf: Live) -> None:
    cut = gguf.text(max_tokens=6, ignore_eos=True).json()  # A253
    assert (cut["object"], cut["choices"][0]["finish_reason"]) == ("text_completion", "length")
    tokens = gguf.engine.shelf.resident.backend.tokenizer.encode("the quick brown fox", True)  # type: ignore[union-attr]
    assert cut["usage"] == {
        "prompt_tokens": len(tokens),
        "completion_tokens": 6,
        "total_tokens": len(tokens) + 6,
        **{key: value for key, value in cut["usage"].items() if key == "prompt_tokens_details"},
    }
    stopped = gguf.text(max_tokens=6, ignore_eos=True, stop=cut["choices"][0]["text"][:3]).json()
    assert (stopped["choices"][0]["finish_reason"], stopped["choices"][0]["text"]) == ("stop", "")


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("stream", [False, True])
def test_the_window_to_the_token(gguf: Live, path: str, stream: bool) -> None:
    ask = gguf.chat if path == CHAT else gguf.text
    prompt = ask().json()["usage"]["prompt_tokens"]
    over = ask(max_tokens=2048 - prompt + 1, stream=stream)  # A208, A206
    assert (over.status_code, over.headers["content-type"]) == (400, "application/json")
    assert over.json()["error"]["code"] == "context_length_exceeded"
    assert f"{prompt} tokens" in over.json()["error"]["message"] and "2048" in over.json()["error"]["message"]
    fits = ask(max_tokens=2048 - prompt, stop=["e", "a", " ", "o", "t"])
    assert fits.status_code == 200


def test_profiles_and_saes_steer_it(gguf_stage: Stage) -> None:
    gguf_stage.attach(layer=1)  # A254: where the SAE fits, the model is steered
    gguf_stage.profile("loud", {3: 60.0})
    plain = gguf_stage.text()
    assert gguf_stage.report(profile="loud").startswith('profile;name="loud";source=request')
    assert gguf_stage.text(profile="loud") == gguf_stage.text(steering=inline((3, 60.0))) != plain
    off = gguf_stage.ask(profile="loud", steering_intensity=0)
    assert (off.headers[INTENSITY], off.json()["choices"][0]["text"]) == ("0", plain)
    assert gguf_stage.refused(steering=inline((64, 1.0)))[:3] == (400, "invalid_feature_index", "steering.features")
    assert gguf_stage.refused(steering=inline((1, 1.0), sae_id="x"))[:3] == (400, "sae_not_attached", "steering.sae_id")

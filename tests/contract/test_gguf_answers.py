"""A GGUF model behind the API: the same surface and the same manners as a transformers model."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from engine.actions.models.importing import import_local_model
from engine.engine import Engine
from engine.library.records import ModelStatus
from tests.contract.conftest import MODEL, Live, text_body
from tests.contract.raw import RawRequest
from tests.gguf_files import build_gguf, quantise
from tests.waiting import wait_until

NAME = "tiny-llama:F32"
MESSAGES: Any = [{"role": "user", "content": "the quick brown fox"}]


def _sequences(live: Live) -> int:
    """Sequences of the shared context that hold something, but for what is kept for the next turn."""
    backend: Any = live.engine.shelf.resident.backend  # type: ignore[union-attr]

    def count() -> int:
        live.engine._scheduler._reuse.clear()
        return int(backend._pool.in_use)

    return live.engine._thread.run(count).result(60)


def _token(live: Live, text: str) -> int:
    return live.engine.shelf.resident.backend.tokenizer.encode(text, False)[0]  # type: ignore[union-attr]


def test_through_the_official_client(gguf: Live) -> None:
    with gguf.sdk() as client:
        assert [model.id for model in client.models.list()] == [NAME]
        answer = client.chat.completions.create(model=NAME, messages=MESSAGES, max_tokens=8, temperature=0)
        chunks = list(
            client.chat.completions.create(model=NAME, messages=MESSAGES, max_tokens=8, temperature=0, stream=True)
        )
        text = client.completions.create(model=NAME, prompt="the sea was calm", max_tokens=8, temperature=0)
    assert answer.model == NAME
    assert answer.system_fingerprint == "millm:tiny-llama:F32@unrecorded:float32/F32:llamacpp"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None and answer.usage.prompt_tokens == 22
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == answer.choices[0].message.content
    assert text.choices[0].finish_reason == "length"
    assert text.usage is not None and text.usage.completion_tokens == 8


def test_the_same_words_as_the_transformers_engine(gguf: Live, live: Live) -> None:
    for ask in ("chat", "text"):
        one, other = (getattr(each, ask)(max_tokens=24, repetition_penalty=1.5) for each in (gguf, live))
        assert one.json()["choices"] == other.json()["choices"]
        assert one.headers["X-miLLM-Backend"] == "llamacpp"
        assert other.headers["X-miLLM-Backend"] == "cbm"


def test_a_bare_name_while_there_is_one_quantisation(gguf: Live) -> None:
    answer = gguf.chat(model=MODEL)
    assert answer.status_code == 200
    assert answer.json()["model"] == NAME


def test_two_quantisations_side_by_side(own_engine: Any, serve: Any, gguf_file: Path, tmp_path: Path) -> None:
    engine: Engine = own_engine(None)
    for tag in ("Q8_0", "Q4_1"):
        file = quantise(gguf_file, tmp_path / f"tiny-llama-{tag}.gguf", tag)
        import_local_model(engine.library, engine.events, file)
    server: Live = serve(engine)
    refused = server.chat(model="tiny-llama")
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["code"] == "ambiguous_model_name"
    assert "tiny-llama:Q4_1" in error["message"] and "tiny-llama:Q8_0" in error["message"]
    assert engine.shelf.resident is None
    for tag in ("Q8_0", "Q4_1"):
        answer = server.chat(model=f"tiny-llama:{tag}")
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == f"tiny-llama:{tag}"
        assert f"/{tag}:llamacpp" in answer.json()["system_fingerprint"]


def test_a_split_set(own_engine: Any, serve: Any, tiny_checkpoint: Path, gguf: Live, tmp_path: Path) -> None:
    first = build_gguf(tiny_checkpoint, tmp_path / "parts" / "tiny.gguf", max_tensors=12)
    engine: Engine = own_engine(first)
    resident = engine.shelf.resident
    assert resident is not None
    answer = serve(engine).chat(model=resident.record.name, max_tokens=16)
    assert answer.json()["choices"] == gguf.chat(max_tokens=16).json()["choices"]


def test_seeds_repeat_to_the_byte_with_others_beside(gguf: Live) -> None:
    body: dict[str, Any] = {"temperature": 1.0, "seed": 11, "max_tokens": 40, "n": 2, "ignore_eos": True}
    alone = gguf.text(**body)
    assert alone.headers["X-miLLM-Seed"] == '11;scope="request"'
    assert alone.headers["X-miLLM-Backend"] == "llamacpp"
    texts = [choice["text"] for choice in alone.json()["choices"]]
    assert texts[0] != texts[1]
    with ThreadPoolExecutor(4) as pool:
        beside = [
            pool.submit(gguf.text, prompt=f"ship {n} " * (n + 1), max_tokens=60, ignore_eos=True) for n in range(3)
        ]
        again = pool.submit(gguf.text, **body).result()
        for each in beside:
            assert each.result().status_code == 200
    assert again.json()["choices"] == alone.json()["choices"]
    assert gguf.text(**{**body, "n": 1}).json()["choices"][0]["text"] == texts[0]


def test_several_choices_and_the_best_of_them(gguf: Live) -> None:
    several = gguf.chat(n=3, temperature=1.2, max_tokens=12, top_k=40, min_p=0.01).json()
    assert [choice["index"] for choice in several["choices"]] == [0, 1, 2]
    assert several["usage"]["prompt_tokens"] == 22
    best = gguf.text(n=2, best_of=4, temperature=1.0, max_tokens=6, logprobs=0).json()["choices"]
    sums = [sum(choice["logprobs"]["token_logprobs"]) for choice in best]
    assert len(sums) == 2 and sums[0] >= sums[1]


def test_stop_bias_and_penalties(gguf: Live) -> None:
    plain = gguf.text(max_tokens=30, repetition_penalty=1.4).json()["choices"][0]["text"]
    stop = plain[6:9]
    cut = gguf.text(max_tokens=30, repetition_penalty=1.4, stop=[stop]).json()["choices"][0]
    assert cut["finish_reason"] == "stop"
    assert cut["text"] == plain[: plain.index(stop)]
    sea = _token(gguf, "sea")
    biased = gguf.text(max_tokens=3, logit_bias={str(sea): 100}, return_tokens_as_token_ids=True, logprobs=0)
    assert biased.json()["choices"][0]["logprobs"]["tokens"] == [f"token_id:{sea}"] * 3
    spread = gguf.text(max_tokens=3, logit_bias={str(sea): 100}, frequency_penalty=2, presence_penalty=2)
    assert spread.status_code == 200
    ended = gguf.text(max_tokens=30, logit_bias={"2": 100}, min_tokens=4).json()
    assert ended["choices"][0]["finish_reason"] == "stop"
    assert ended["usage"]["completion_tokens"] == 5


def test_logprobs_agree_with_the_transformers_engine(gguf: Live, live: Live) -> None:
    found, expected = (
        each.chat(logprobs=True, top_logprobs=3, max_tokens=4).json()["choices"][0]["logprobs"]["content"]
        for each in (gguf, live)
    )
    for mine, theirs in zip(found, expected, strict=True):
        assert mine["token"] == theirs["token"]
        assert mine["bytes"] == theirs["bytes"]
        assert mine["logprob"] == pytest.approx(theirs["logprob"], abs=5e-3)
        assert [each["token"] for each in mine["top_logprobs"]] == [each["token"] for each in theirs["top_logprobs"]]


def test_scoring_agrees_with_the_transformers_engine(gguf: Live, live: Live) -> None:
    body: dict[str, Any] = {
        "max_tokens": 1,
        "allowed_token_ids": [300, 301, 302],
        "logprobs": 3,
        "prompt": ["the sea", "a ship"],
    }
    found, expected = (each.text(**body) for each in (gguf, live))
    assert found.headers["X-miLLM-Mode"] == "scoring"
    assert found.headers["X-miLLM-Backend"] == "llamacpp"
    for mine, theirs in zip(found.json()["choices"], expected.json()["choices"], strict=True):
        assert mine["text"] == theirs["text"]
        assert mine["logprobs"]["token_logprobs"] == pytest.approx(theirs["logprobs"]["token_logprobs"], abs=5e-3)


def test_embeddings_are_means(gguf: Live, live: Live) -> None:
    body: dict[str, Any] = {"model": MODEL, "input": ["the sea was calm", "naïve 東京 🙂"], "normalize": True}
    with gguf.http() as one, live.http() as other:
        found, expected = (client.post("/v1/embeddings", json=body) for client in (one, other))
        refused = one.post("/v1/embeddings", json={**body, "pooling": "cls"})
    assert found.headers["X-miLLM-Backend"] == "llamacpp"
    assert found.json()["usage"] == expected.json()["usage"]
    for mine, theirs in zip(found.json()["data"], expected.json()["data"], strict=True):
        assert mine["embedding"] == pytest.approx(theirs["embedding"], abs=2e-3)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "field_not_honoured"
    assert refused.json()["error"]["param"] == "pooling"


def test_a_document_follows_its_schema(gguf: Live) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "maximum": 9}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    asked = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    answer = gguf.chat(response_format=asked, max_tokens=120, temperature=1.0)
    assert answer.status_code == 200, answer.text
    assert answer.headers["X-miLLM-Constrained"] == 'json_schema;name="person"'
    document = json.loads(answer.json()["choices"][0]["message"]["content"])
    assert set(document) == {"name", "age"} and document["age"] <= 9 and len(document["name"]) <= 6


def test_an_unfinished_answer_goes_on(gguf: Live, live: Live) -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": "jumps over the lazy"}]
    found, expected = (each.chat(messages=messages, max_tokens=6) for each in (gguf, live))
    assert found.json()["choices"] == expected.json()["choices"]
    assert found.json()["usage"]["prompt_tokens"] == expected.json()["usage"]["prompt_tokens"]


def test_template_variables_are_reported(gguf: Live) -> None:
    answer = gguf.chat(chat_template_kwargs={"anything": 1}, enable_thinking=True)
    assert answer.status_code == 200
    assert answer.headers["X-miLLM-Ignored-Fields"] == '"chat_template_kwargs", "enable_thinking"'
    assert answer.json()["choices"] == gguf.chat().json()["choices"]
    strict = gguf.chat(chat_template_kwargs={"anything": 1}, headers={"X-miLLM-Strict": "true"})
    assert strict.status_code == 400
    assert strict.json()["error"]["code"] == "unused_fields_refused"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("ask", ["chat", "text"])
def test_past_the_window_is_refused_with_both_figures(gguf: Live, ask: str, stream: bool) -> None:
    answer = getattr(gguf, ask)(max_tokens=2047, stream=stream)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "2048" in error["message"] and "2047" in error["message"]


def test_four_clients_at_once_get_their_own_answers(gguf: Live) -> None:
    prompts = ["the sea was calm", "a language model writes", "naïve café 東京 🙂", "the quick brown fox"]
    body: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True, "repetition_penalty": 1.3, "logprobs": 0}
    alone = [gguf.text(prompt=prompt, **body).json()["choices"][0]["text"] for prompt in prompts]
    assert len(set(alone)) == 4
    together = threading.Barrier(4)

    def ask(prompt: str) -> str:
        together.wait(60)
        return str(gguf.text(prompt=prompt, **body).json()["choices"][0]["text"])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, prompts)) == alone


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("seed", [None, 7])
def test_a_client_that_leaves_frees_its_sequence(gguf: Live, stream: bool, seed: int | None) -> None:
    before = _sequences(gguf)
    body = text_body(max_tokens=1900, ignore_eos=True, stream=stream, **({} if seed is None else {"seed": seed}))
    with RawRequest(gguf, "/v1/completions", body) as request:
        if stream:
            for _ in range(5):
                request.read_until(b'"text"')
        wait_until(lambda: gguf.engine.generation.stats().in_flight == 1, "a running lane")
        request.leave()
    wait_until(lambda: gguf.engine.generation.stats().queue_pending == 0, "the lane to be free")
    assert _sequences(gguf) == before
    assert gguf.chat().status_code == 200


def test_a_full_context_ends_one_answer_and_no_other(own_engine: Any, serve: Any, gguf_file: Path) -> None:
    engine: Engine = own_engine(gguf_file, GGUF_CONTEXT_LENGTH=256, MAX_LANES=2)
    resident = engine.shelf.resident
    assert resident is not None
    backend: Any = resident.backend
    # Two answers of up to 240 tokens in 256 cells, where the generous default would have room for both.
    backend._pool._shared.close()
    backend._pool._shared = backend._pool._make(256, 8, False)
    server: Live = serve(engine)
    with ThreadPoolExecutor(2) as pool:
        asked = [
            pool.submit(server.text, model=NAME, prompt=prompt, max_tokens=230, ignore_eos=True)
            for prompt in ("the sea", "a ship went slowly along")
        ]
        codes = sorted(each.result().status_code for each in asked)
        errors = [each.result().json()["error"] for each in asked if each.result().status_code != 200]
    assert codes == [200, 503]
    assert [error["code"] for error in errors] == ["insufficient_memory"]
    assert server.text(model=NAME).status_code == 200


def test_a_cached_beginning_is_said_to_be(gguf: Live) -> None:
    prompt = "the sea was calm and the ship went slowly along the coast in the evening " * 4
    gguf.text(prompt=prompt + "and", max_tokens=4)
    answer = gguf.text(prompt=prompt + "but", max_tokens=4).json()
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 30


def test_files_that_llamacpp_cannot_load_are_refused(
    own_engine: Any, serve: Any, gguf_file: Path, tmp_path: Path
) -> None:
    engine: Engine = own_engine(None)
    broken = tmp_path / "strange-F32.gguf"
    # A family that llama.cpp has never heard of: sound as a file, and nothing to run.
    broken.write_bytes(gguf_file.read_bytes().replace(b"llama", b"zebra"))
    record = import_local_model(engine.library, engine.events, broken)
    server: Live = serve(engine)
    answer = server.chat(model=record.name)
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "model_load_failed"
    assert "zebra" in answer.json()["error"]["message"]
    assert engine.shelf.get(record.id).status is ModelStatus.ERROR
    file = tmp_path / "cut-F32.gguf"
    file.write_bytes(gguf_file.read_bytes())
    cut = import_local_model(engine.library, engine.events, file)
    file.write_bytes(gguf_file.read_bytes()[:100_000])
    assert server.chat(model=cut.name).status_code in (400, 500)
    assert engine.shelf.resident is None


def test_without_llamacpp_the_model_is_not_offered(
    gguf: Live, own_engine: Any, serve: Any, gguf_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Engine = own_engine(None)
    import_local_model(engine.library, engine.events, gguf_file)
    server: Live = serve(engine)
    monkeypatch.setattr("engine.models.backends.llamacpp.availability.importlib.util.find_spec", lambda name: None)
    with server.sdk() as client:
        assert list(client.models.list()) == []
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model=NAME, messages=MESSAGES)
    assert refused.value.code == "engine_unsupported"
    assert "llama-cpp-python" in str(refused.value)


def test_health_names_the_engine(gguf: Live) -> None:
    with gguf.http() as client:
        figures = client.get("/api/health/inference").json()
    assert figures["backend"] == "llamacpp"

"""Filling in the middle on ``/v1/completions``, with made models that have the marks of three families."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import connect_sse

from engine.actions.models.importing import import_local_model
from engine.engine import Engine
from engine.events import RequestRecorded
from server.config import ServerSettings
from server.thread import ServerThread
from tests.conftest import CheckpointMaker
from tests.contract.conftest import MODEL, READY_S, Live, start_engine, stop_engine, text_body
from tests.gguf_files import build_gguf
from tests.made_saes import make_sae

QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|file_sep|>")
STARCODER = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>")
DEEPSEEK = ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>")
PREFIX, SUFFIX, MIDDLE = 4, 5, 6
"""Ids of the marks in the made vocabularies."""

GAP = {"prompt": "the quick ", "suffix": " over the lazy dog"}

Server = Callable[..., Live]


@pytest.fixture(scope="module", params=["qwen", "starcoder", "deepseek", "gguf"])
def filling(
    request: pytest.FixtureRequest, checkpoint: CheckpointMaker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    """A server with a model of one family; of the first also as a GGUF file."""
    marks = {"starcoder": STARCODER, "deepseek": DEEPSEEK}.get(request.param, QWEN)
    folder = checkpoint("llama", marks=marks)
    place = tmp_path_factory.mktemp("filling")
    path = build_gguf(folder, place / f"{MODEL}-F32.gguf") if request.param == "gguf" else folder
    more = {"GGUF_KV_CACHE_TYPE": "f32", "GGUF_FLASH_ATTENTION": False} if request.param == "gguf" else {}
    engine = start_engine(path, place / "millm.db", **more)
    thread = ServerThread(engine, ServerSettings(PORT=0))
    thread.start()
    yield Live(engine, thread, thread.wait_ready(READY_S))
    thread.stop(5)
    stop_engine(engine)


def refused(response: httpx.Response) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


def tokens_of(live: Live, text: str) -> int:
    with live.http() as client:
        count: int = client.post("/v1/tokenize", json={"text": text}).json()["count"]
    return count


@pytest.mark.parametrize("order", ["psm", "spm", None])
def test_a_gap_is_filled_in(filling: Live, order: str | None) -> None:
    response = filling.text(**GAP, fim_mode=order, max_tokens=12)
    assert response.status_code == 200, response.text
    assert "X-miLLM-Ignored-Fields" not in response.headers
    body = response.json()
    (choice,) = body["choices"]
    assert choice["finish_reason"] in ("stop", "length")
    assert "fim" not in choice["text"]
    assert choice["logprobs"] is None
    # Both texts and three marks are read.
    assert body["usage"]["prompt_tokens"] == 3 + tokens_of(filling, GAP["prompt"]) + tokens_of(filling, GAP["suffix"])
    assert body["usage"]["completion_tokens"] <= 12


def test_the_prompt_is_the_one_that_stands_written(filling: Live) -> None:
    """Marks in a raw prompt are read as marks, so the same prompt can be written by hand."""
    written = [filling.engine.shelf.resident.backend.tokenizer.token_text(i) for i in (PREFIX, SUFFIX, MIDDLE)]  # type: ignore[union-attr]
    prefix, suffix, middle = written
    by_hand = {
        "psm": f"{prefix}{GAP['prompt']}{suffix}{GAP['suffix']}{middle}",
        "spm": f"{prefix}{suffix}{GAP['suffix']}{middle}{GAP['prompt']}",
    }
    for order, prompt in by_hand.items():
        filled = filling.text(**GAP, fim_mode=order, max_tokens=6)
        plain = filling.text(prompt=prompt, max_tokens=6)
        assert filled.json()["usage"]["prompt_tokens"] == plain.json()["usage"]["prompt_tokens"]
        assert plain.json()["choices"][0]["text"].startswith(filled.json()["choices"][0]["text"])
    by_order = [filling.text(**GAP, fim_mode=order, max_tokens=12).json()["choices"] for order in ("psm", "spm")]
    assert by_order[0] != by_order[1]
    assert filling.text(**GAP, max_tokens=12).json()["choices"] == by_order[0]


@pytest.mark.parametrize("mark", [PREFIX, MIDDLE])
def test_a_mark_ends_the_text_and_does_not_show(filling: Live, mark: int) -> None:
    body = filling.text(**GAP, logit_bias={str(mark): 100}).json()
    assert (body["choices"][0]["text"], body["choices"][0]["finish_reason"]) == ("", "stop")
    assert body["usage"]["completion_tokens"] == 1
    going_on = filling.text(**GAP, logit_bias={str(mark): 100}, ignore_eos=True, max_tokens=5).json()
    assert (going_on["choices"][0]["text"], going_on["choices"][0]["finish_reason"]) == ("", "length")
    held = filling.text(**GAP, logit_bias={str(mark): 100}, min_tokens=3, max_tokens=8).json()
    assert held["usage"]["completion_tokens"] == 4
    assert "fim" not in held["choices"][0]["text"]


def test_marks_that_are_no_special_tokens(
    own_engine: Callable[..., Engine], serve: Server, checkpoint: CheckpointMaker, tmp_path: Path
) -> None:
    """Some vocabularies have them among the ordinary tokens, which would show."""
    folder = tmp_path / "plain-marks"
    shutil.copytree(checkpoint("llama", marks=QWEN), folder)
    for name, key in (("tokenizer.json", "added_tokens"), ("tokenizer_config.json", "added_tokens_decoder")):
        read = json.loads((folder / name).read_text())
        added = read.get(key, [])
        for entry in added if isinstance(added, list) else added.values():
            if entry["content"] in QWEN:
                entry["special"] = False
        (folder / name).write_text(json.dumps(read))
    live = serve(own_engine(folder))
    tokenizer = live.engine.shelf.resident.backend.tokenizer  # type: ignore[union-attr]
    assert MIDDLE not in tokenizer.hidden_ids
    shown = live.text(model=folder.name, prompt="a", logit_bias={str(MIDDLE): 100}, max_tokens=2)
    assert shown.json()["choices"][0]["text"] == "<|fim_middle|>" * 2
    hidden = live.text(model=folder.name, **GAP, logit_bias={str(MIDDLE): 100}, ignore_eos=True, max_tokens=4)
    assert hidden.json()["choices"][0]["text"] == ""
    ended = live.text(model=folder.name, **GAP, logit_bias={str(MIDDLE): 100}, max_tokens=4)
    assert ended.json()["choices"][0]["finish_reason"] == "stop"


def test_the_cap_where_none_is_set(filling: Live) -> None:
    never = {str(token): -100 for token in range(9)}
    body = filling.text(**GAP, max_tokens=..., logit_bias=never, ignore_eos=True).json()
    assert body["usage"]["completion_tokens"] == 128
    assert (
        filling.text(**GAP, max_tokens=130, logit_bias=never, ignore_eos=True).json()["usage"]["completion_tokens"]
        == 130
    )


def test_a_stream(filling: Live) -> None:
    body = text_body(**GAP, stream=True, max_tokens=12)
    with filling.http() as client, connect_sse(client, "POST", "/v1/completions", json=body) as source:
        data = [event.data for event in source.iter_sse()]
    assert data[-1] == "[DONE]"
    events = [json.loads(each) for each in data[:-1]]
    text = "".join(event["choices"][0]["text"] for event in events if event["choices"])
    assert text == filling.text(**GAP, max_tokens=12).json()["choices"][0]["text"]
    assert events[-1]["choices"][0]["finish_reason"] in ("stop", "length")


def test_seeds_and_stops(filling: Live) -> None:
    drawn = {**GAP, "temperature": 1, "seed": 5, "max_tokens": 10}
    first = filling.text(**drawn)
    assert first.headers["X-miLLM-Seed"] == '5;scope="request"'
    assert filling.text(**drawn).json()["choices"] == first.json()["choices"]
    whole = filling.text(**GAP, max_tokens=12).json()["choices"][0]["text"]
    if len(whole) > 2:
        cut = filling.text(**GAP, max_tokens=12, stop=whole[1]).json()["choices"][0]
        assert cut == {"index": 0, "text": whole[: whole.index(whole[1])], "logprobs": None, "finish_reason": "stop"}


def test_an_empty_suffix_asks_for_nothing(filling: Live) -> None:
    plain = filling.text().json()["choices"]
    for nothing in ("", None):
        response = filling.text(suffix=nothing)
        assert response.json()["choices"] == plain
        assert "X-miLLM-Ignored-Fields" not in response.headers
    assert refused(filling.text(suffix="", fim_mode="psm")) == (400, "invalid_parameter", "fim_mode")


def test_nothing_before_the_cursor(filling: Live) -> None:
    assert filling.text(prompt="", suffix="x").status_code == 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("echo", True),
        ("logprobs", 2),
        ("logprobs", 0),
        ("prompt", ["one"]),
        ("prompt", ["one", "two"]),
        ("n", 2),
    ],
)
def test_what_cannot_be_had_with_it(filling: Live, field: str, value: Any) -> None:
    response = filling.text(**{**GAP, field: value})
    assert refused(response) == (400, "field_not_honoured", field)


def test_values_that_are_none(filling: Live) -> None:
    assert refused(filling.text(**GAP, fim_mode="x")) == (400, "invalid_parameter", "fim_mode")
    assert refused(filling.text(fim_mode="spm")) == (400, "invalid_parameter", "fim_mode")
    assert refused(filling.text(prompt="a", suffix=3)) == (400, "invalid_parameter", "suffix")
    assert refused(filling.text(prompt="a", suffix=["b"])) == (400, "invalid_parameter", "suffix")
    assert filling.text(**GAP, echo=False, n=1, logprobs=None, best_of=1).status_code == 200
    assert refused(filling.chat(suffix="x")) == (400, "field_not_honoured", "suffix")
    scored = filling.text(**GAP, allowed_token_ids=[5], max_tokens=1)
    assert refused(scored) == (400, "field_not_honoured", "suffix")


def test_what_is_too_long(filling: Live) -> None:
    for body in ({"prompt": "a", "suffix": "word " * 5000}, {"prompt": "x" * 1_000_000, "suffix": "b"}):
        assert refused(filling.text(**body)) == (400, "context_length_exceeded", None)


def test_it_is_steered_as_any_text(
    own_engine: Callable[..., Engine], serve: Server, checkpoint: CheckpointMaker, tmp_path: Path
) -> None:
    live = serve(own_engine(checkpoint("llama", marks=QWEN)))
    make_sae(tmp_path / "sae", layer=1, seed=1)
    live.engine.saes.import_local(tmp_path / "sae", sae_id="sae-1")
    live.engine.attachments.attach("sae-1")
    steered = live.text(**GAP, steering={"features": [{"index": 3, "strength": 30.0}]}, max_tokens=12)
    assert steered.status_code == 200
    assert steered.headers["X-miLLM-Steering"].startswith('inline;sae="sae-1";layer=1;features=1;')
    assert steered.json()["choices"] != live.text(**GAP, max_tokens=12).json()["choices"]


def test_a_model_without_marks(live: Live, gguf: Live) -> None:
    for server in (live, gguf):
        assert refused(server.text(**GAP)) == (400, "fim_unsupported", "suffix")
        assert refused(server.text(**GAP, stream=True)) == (400, "fim_unsupported", "suffix")


def test_a_model_without_marks_does_not_come_in_for_it(
    own_engine: Callable[..., Engine], serve: Server, checkpoint: CheckpointMaker
) -> None:
    engine = own_engine(checkpoint("llama"))
    import_local_model(engine.library, engine.events, checkpoint("qwen2"))
    live = serve(engine)
    assert refused(live.text(**GAP, model="tiny-qwen2")) == (400, "fim_unsupported", "suffix")
    assert engine.shelf.resident is not None
    assert engine.shelf.resident.record.name == MODEL


def test_the_rate(own_engine: Callable[..., Engine], serve: Server, checkpoint: CheckpointMaker) -> None:
    engine = own_engine(checkpoint("llama", marks=QWEN))
    live = serve(engine, FIM_RATE_PER_S=0.0001, FIM_BURST=2)
    assert live.text(**GAP).status_code == 200
    # What is refused for its fields is not counted.
    assert live.text(**GAP, n=2).status_code == 400
    assert live.text(**GAP).status_code == 200
    response = live.text(**GAP)
    assert refused(response) == (429, "completion_rate_limited", None)
    assert response.json()["error"]["type"] == "rate_limit_error"
    assert 1 <= int(response.headers["Retry-After"]) <= 10_000
    assert live.text(**GAP, stream=True).status_code == 429
    # Other texts have no such rate.
    assert live.text().status_code == 200


def test_the_list_of_requests_has_no_text_of_it(filling: Live) -> None:
    told: list[RequestRecorded] = []
    heard = filling.engine.events.subscribe(told.append, RequestRecorded)
    text = filling.text(prompt="secret before", suffix="secret after").json()["choices"][0]["text"]
    filling.wait_idle()
    heard.close()
    assert told[-1].path == "/v1/completions"
    assert "secret" not in repr(told)
    assert not text or text not in repr(told)

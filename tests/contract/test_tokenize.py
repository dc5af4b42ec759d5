"""Text to tokens and back over ``/v1``: what is counted is what a request reads, and nothing is loaded for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.actions.models.importing import import_local_model
from engine.engine import Engine
from tests.conftest import CheckpointMaker
from tests.contract.conftest import MODEL, Live
from tests.contract.stage import Stage
from tests.engine.generation.tools.made_templates import HERMES
from tests.gguf_files import build_gguf

TEXT = "naïve 東京 🙂 and\n\n  a fox"
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "the quick brown fox"}]


def post(live: Live, what: str = "tokenize", headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    with live.http() as client:
        return client.post(f"/v1/{what}", json=body, headers=headers)


def answer(live: Live, what: str = "tokenize", **body: Any) -> dict[str, Any]:
    response = post(live, what, **body)
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


def refused(response: httpx.Response) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


@pytest.fixture(params=["live", "gguf"])
def either(request: pytest.FixtureRequest) -> Live:
    found: Live = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("name", ["text", "content", "prompt"])
def test_a_text_and_back(either: Live, name: str) -> None:
    found = answer(either, **{name: TEXT})
    assert found.keys() == {"tokens", "count", "model", "max_model_len"}
    assert found["count"] == len(found["tokens"]) > 0
    assert found["model"].startswith(MODEL)
    assert found["max_model_len"] == 2048
    assert found["count"] == either.text(prompt=TEXT).json()["usage"]["prompt_tokens"]
    assert answer(either, "detokenize", tokens=found["tokens"]) == {"text": TEXT}
    assert answer(either, "detokenize", tokens=[], model=MODEL) == {"text": ""}


def test_an_empty_text(live: Live) -> None:
    assert answer(live, text="", with_pieces=True)["pieces"] == []


def test_pieces(either: Live) -> None:
    found = answer(either, text="the fox 🙂<|im_end|>", with_pieces=True)
    assert len(found["pieces"]) == found["count"]
    # Bytes that are no whole character are written in hexadecimal.
    assert found["pieces"] == ["the", " fox", " \\xf0\\x9f", "\\x99\\x82", "<|im_end|>"]
    assert "pieces" not in answer(either, text="x", with_pieces=False)
    assert answer(either, "detokenize", tokens=found["tokens"]) == {"text": "the fox 🙂<|im_end|>"}


def test_a_bos_is_counted_where_it_is_read(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    live = serve(own_engine(checkpoint("llama", add_bos=True)))
    model = live.engine.shelf.list()[0].name
    found = answer(live, text="the fox")
    assert found["tokens"][0] == 0
    assert found["count"] == live.text(model=model, prompt="the fox").json()["usage"]["prompt_tokens"]
    assert answer(live, text="the fox", add_special_tokens=False)["tokens"] == found["tokens"][1:]
    assert answer(live, text="")["tokens"] == [0]
    assert answer(live, text="<|bos|>the fox")["tokens"] == found["tokens"]


def test_a_conversation(either: Live) -> None:
    found = answer(either, messages=MESSAGES)
    assert found["prompt"] == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nthe quick brown fox<|im_end|>\n<|im_start|>assistant\n"
    )
    assert found["count"] == either.chat(messages=MESSAGES).json()["usage"]["prompt_tokens"]
    assert answer(either, text=found["prompt"], add_special_tokens=False)["tokens"] == found["tokens"]
    parts = [{"role": "user", "content": [{"type": "text", "text": "the sea"}]}]
    assert "the sea" in answer(either, messages=parts)["prompt"]
    # An answer that is begun is gone on with, as in a chat.
    begun = [*MESSAGES, {"role": "assistant", "content": "The"}]
    assert answer(either, messages=begun)["prompt"].endswith("<|im_start|>assistant\nThe")


def test_variables_and_tools_reach_the_template(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    reading = "{% if tools %}{{ tools | length }} tools: {{ tools[0].function.name }}\n{% endif %}"
    reading += "{% if tools %}{{ tools[0].function.description }}\n{% endif %}"
    reading += "{% if enable_thinking is false %}no thoughts\n{% endif %}" + HERMES
    live = serve(own_engine(checkpoint("llama", chat_template=reading)))
    tools = [{"type": "function", "function": {"name": "clock"}}]
    found = post(live, messages=MESSAGES, tools=tools, chat_template_kwargs={"enable_thinking": False, "mood": 1})
    assert found.json()["prompt"].startswith("1 tools: clock\n\nno thoughts\n<|im_start|>system")
    assert found.headers["X-miLLM-Ignored-Fields"] == '"chat_template_kwargs.mood"'
    assert answer(live, messages=MESSAGES, tools=[])["prompt"].startswith("<|im_start|>system")


def test_what_the_template_does_not_read_is_told(live: Live) -> None:
    tools = [{"type": "function", "function": {"name": "clock"}}]
    found = post(live, messages=MESSAGES, tools=tools, user="me")
    assert found.status_code == 200
    assert found.headers["X-miLLM-Ignored-Fields"] == '"user"'
    assert "described in the system text" in found.headers["X-miLLM-Notes"]
    tools = [{"type": "function", "function": {"name": f"f{n}", "description": "words " * 50}} for n in range(9)]
    found = post(live, messages=MESSAGES, tools=tools)
    assert found.headers["X-miLLM-Ignored-Fields"] == '"tools"'
    strict = post(live, messages=MESSAGES, tools=tools, headers={"X-miLLM-Strict": "true"})
    assert refused(strict) == (400, "unused_fields_refused", "tools")


def test_a_gguf_takes_no_variables(gguf: Live) -> None:
    found = post(gguf, messages=MESSAGES, chat_template_kwargs={"enable_thinking": False})
    assert found.headers["X-miLLM-Ignored-Fields"] == '"chat_template_kwargs"'


def test_fields_without_use_are_named(live: Live) -> None:
    found = post(live, text="x", tools=[{"function": {"name": "f"}}], chat_template_kwargs={"a": 1}, n=2, user=None)
    assert found.headers["X-miLLM-Ignored-Fields"] == '"n", "tools", "chat_template_kwargs"'
    found = post(live, messages=MESSAGES, add_special_tokens=True)
    assert found.headers["X-miLLM-Ignored-Fields"] == '"add_special_tokens"'
    assert "X-miLLM-Ignored-Fields" not in post(live, text="x", chat_template_kwargs="").headers
    found = post(live, "detokenize", tokens=[5], skip=True)
    assert found.headers["X-miLLM-Ignored-Fields"] == '"skip"'


@pytest.mark.parametrize("what", ["tokenize", "detokenize"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("profile", "calm"),
        ("steering", {"features": []}),
        ("steering_intensity", 1),
        ("return_sae_activations", {"top_k": 1, "positions": "last"}),
    ],
)
def test_nothing_is_steered_here(live: Live, what: str, field: str, value: Any) -> None:
    given: dict[str, Any] = {"text": "x"} if what == "tokenize" else {"tokens": [5]}
    assert refused(post(live, what, **given, **{field: value})) == (400, "field_not_honoured", field)
    assert post(live, what, **given, **{field: None}).status_code == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "text"),
        ({"text": None}, "text"),
        ({"text": "a", "prompt": "b"}, "prompt"),
        ({"text": "a", "messages": MESSAGES}, "messages"),
        ({"text": 3}, "text"),
        ({"text": ["a"]}, "text"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages.0.role"),
        ({"messages": MESSAGES, "tools": {}}, "tools"),
        ({"messages": MESSAGES, "chat_template_kwargs": 3}, "chat_template_kwargs"),
        ({"messages": MESSAGES, "chat_template_kwargs": {"tokenize": 1}}, "chat_template_kwargs.tokenize"),
        ({"text": "a", "with_pieces": "yes"}, "with_pieces"),
        ({"text": "a", "model": 3}, "model"),
    ],
)
def test_wrong_values(live: Live, body: dict[str, Any], param: str) -> None:
    assert refused(post(live, **body)) == (400, "invalid_parameter", param)


def test_half_a_character(live: Live) -> None:
    with live.http() as client:
        sent = client.post("/v1/tokenize", content=b'{"text": "\\ud83d"}')
    assert refused(sent) == (400, "invalid_parameter", None)  # no JSON


@pytest.mark.parametrize(
    ("tokens", "param"),
    [
        (..., "tokens"),
        ("abc", "tokens"),
        ([1, -1], "tokens.1"),
        ([1.5], "tokens.0"),
        ([True], "tokens.0"),
        ([5, 400_000], "tokens.1"),
        ([10**30], "tokens.0"),
    ],
)
def test_ids_outside_the_vocabulary(either: Live, tokens: Any, param: str) -> None:
    body = {} if tokens is ... else {"tokens": tokens}
    assert refused(post(either, "detokenize", **body)) == (400, "invalid_parameter", param)


def test_another_model_is_read_without_being_loaded(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker, tmp_path: Path
) -> None:
    engine = own_engine(None)
    live = serve(engine)
    assert refused(post(live, text="x")) == (503, "model_not_loaded", None)
    assert refused(post(live, "detokenize", tokens=[1])) == (503, "model_not_loaded", None)
    assert refused(post(live, text="x", model="nope")) == (404, "model_not_found", "model")
    assert refused(post(live, text="x", model="")) == (404, "model_not_found", "model")
    import_local_model(engine.library, engine.events, checkpoint("llama"))
    import_local_model(engine.library, engine.events, build_gguf(checkpoint("llama"), tmp_path / "g-F32.gguf"))
    found = answer(live, text=TEXT, model=MODEL)
    assert (found["model"], found["max_model_len"]) == (MODEL, 2048)
    assert answer(live, "detokenize", tokens=found["tokens"], model=MODEL) == {"text": TEXT}
    assert answer(live, messages=MESSAGES, model=MODEL)["prompt"].startswith("<|im_start|>system")
    assert refused(post(live, text="x", model="g")) == (409, "model_not_resident", "model")
    assert refused(post(live, "detokenize", tokens=[1], model="g")) == (409, "model_not_resident", "model")
    assert engine.shelf.resident is None
    assert engine.shelf.loading is None


def test_a_full_queue_does_not_matter(steered: Live, stage: Stage) -> None:
    with stage.paused():
        assert answer(steered, messages=MESSAGES)["count"] > 0


def test_large_texts(live: Live) -> None:
    """Written in steps, and read in steps: the same as all at once."""
    text = "the fox 🙂 " * 30_000
    found = answer(live, text=text, with_pieces=True)
    assert found["count"] == len(found["tokens"]) == len(found["pieces"]) > 100_000
    assert answer(live, "detokenize", tokens=found["tokens"]) == {"text": text}
    with live.http() as client:
        sent = client.post("/v1/tokenize", content=json.dumps({"text": "x" * (33 * 1024 * 1024)}))
    assert sent.status_code == 413

"""``/v1/embeddings`` over a real socket: vectors, their encodings, limits and refusals."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from engine.actions.models.importing import import_local_model
from engine.engine import Engine
from tests.conftest import CheckpointMaker
from tests.contract.conftest import LONG, MODEL, Live
from tests.contract.raw import RawRequest
from tests.contract.stage import STEERING, TEXT, Stage, stream_body
from tests.waiting import wait_until

TEXTS = ["the quick brown fox", "the sea was calm"]


def ask(live: Live, **body: Any) -> httpx.Response:
    sent = {"model": MODEL, "input": TEXTS, **body}
    with live.http() as client:
        return client.post("/v1/embeddings", json={key: value for key, value in sent.items() if value is not ...})


def vectors(live: Live, **body: Any) -> list[Any]:
    response = ask(live, **body)
    assert response.status_code == 200, response.text
    return [item["embedding"] for item in response.json()["data"]]


def refused(live: Live, **body: Any) -> dict[str, Any]:
    response = ask(live, **body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return dict(error)


def count(live: Live, text: str) -> int:
    loaded = live.engine.shelf.resident
    assert loaded is not None
    return len(loaded.backend.tokenizer.encode(text, add_special_tokens=True))


def test_the_shape(live: Live) -> None:
    response = ask(live)
    assert response.status_code == 200
    body = response.json()
    assert body.keys() == {"object", "data", "model", "usage"}  # no fingerprint
    assert (body["object"], body["model"]) == ("list", "tiny-llama")
    assert [item["index"] for item in body["data"]] == [0, 1]
    for item in body["data"]:
        assert item.keys() == {"object", "index", "embedding"}
        assert item["object"] == "embedding"
        assert len(item["embedding"]) == 32
    read = sum(count(live, text) for text in TEXTS)
    assert body["usage"] == {"prompt_tokens": read, "completion_tokens": 0, "total_tokens": read}  # A250
    assert STEERING not in response.headers
    assert response.headers["X-miLLM-Backend"] == "serial"
    assert "X-miLLM-Mode" not in response.headers


def test_one_text_gives_what_it_gives_among_others(live: Live) -> None:
    both = vectors(live)
    for text, expected in zip(TEXTS, both, strict=True):
        assert vectors(live, input=text) == [expected]
        assert vectors(live, input=[text]) == [expected]
        loaded = live.engine.shelf.resident
        assert loaded is not None
        ids = list(loaded.backend.tokenizer.encode(text, add_special_tokens=True))
        assert vectors(live, input=ids) == [expected]
        assert vectors(live, input=[ids, text]) == [expected, expected]


def test_base64(live: Live) -> None:
    plain = vectors(live)
    for text, expected in zip(vectors(live, encoding_format="base64"), plain, strict=True):
        assert isinstance(text, str)
        raw = base64.b64decode(text)
        found = list(struct.unpack(f"<{len(raw) // 4}f", raw))
        assert found == pytest.approx(expected, abs=1e-6)  # A241
    assert vectors(live, encoding_format="float") == plain
    assert refused(live, encoding_format="int8")["param"] == "encoding_format"  # A242


def test_pooling(live: Live) -> None:
    plain = vectors(live)
    assert vectors(live, pooling="mean") == plain  # A244
    assert vectors(live, pooling=None) == plain
    assert vectors(live, pooling="last") != plain
    assert vectors(live, pooling="cls", input=["the sea", "the fox"])[0] != plain[0]
    error = refused(live, pooling="max")
    assert (error["param"], error["code"]) == ("pooling", "invalid_parameter")  # A245


def test_normalize(live: Live) -> None:
    plain, unit = vectors(live, normalize=False), vectors(live, normalize=True)
    assert plain == vectors(live)
    for short, whole in zip(unit, plain, strict=True):
        length = math.sqrt(sum(value * value for value in whole))
        assert math.sqrt(sum(value * value for value in short)) == pytest.approx(1, abs=1e-5)
        assert short == pytest.approx([value / length for value in whole], abs=1e-6)


def test_limits(live: Live) -> None:
    error = refused(live, input=["x"] * 129)
    assert error["param"] == "input"
    assert "129" in error["message"]  # A247
    assert "128" in error["message"]  # A247
    assert ask(live, input=["x"] * 128).status_code == 200
    error = refused(live, input=["the sea", "the " * 2100])
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input[1]")  # A248
    error = refused(live, input="the " * 2100)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")


@pytest.mark.parametrize(
    "value", ["", [], [""], ["x", ""], [[]], ["x", 5], [True], 5, {}, None, ..., [1.5], [["x"]], [-1], [[10**9]]]
)
def test_inputs_that_are_none(live: Live, value: Any) -> None:
    error = refused(live, input=value)
    assert error["code"] == "invalid_parameter"
    assert str(error["param"]).startswith("input")


def test_an_empty_text_is_numbered(live: Live) -> None:
    error = refused(live, input=["x", ""])
    assert error["param"] == "input"
    assert "input[1]" in error["message"]


def test_fields_of_others(live: Live) -> None:
    for name, value in (
        ("dimensions", 5),  # A071
        ("steering", {"features": []}),
        ("profile", "p"),
        ("seed", 1),
        ("n", 2),  # A065
        ("response_format", {"type": "json_object"}),
    ):
        error = refused(live, **{name: value})
        assert (error["code"], error["param"]) == ("field_not_honoured", name)
    assert ask(live, n=1, response_format={"type": "text"}).status_code == 200  # A065, A070
    response = ask(live, user="someone", foo=1, dimensions=None)
    assert response.status_code == 200
    assert response.headers["X-miLLM-Ignored-Fields"] == '"user", "foo"'  # A059
    missing = ask(live, model="nobody")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


def test_never_steered(stage: Stage) -> None:
    stage.attach()
    before = vectors(stage.live)
    plain = stage.text()
    stage.activate(stage.profile("loud", {3: 60.0}))
    assert stage.text() != plain
    assert vectors(stage.live) == before


def test_never_steered_by_any_of_several(stage: Stage) -> None:
    before = vectors(stage.live)
    plain = stage.text()
    for layer in (0, 1, 3):
        stage.attach(f"sae-{layer}", layer)
        stage.engine.hand_steering.set_value(3, 40.0, sae_id=f"sae-{layer}")
    assert [layer for layer in (0, 1, 2, 3) if layer in stage.engine.desk.live_plan.deltas] == [0, 1, 3]
    assert stage.text() != plain
    assert vectors(stage.live) == before


def test_the_sdk(live: Live) -> None:
    plain = vectors(live)
    with live.sdk() as client:
        for options in ({}, {"encoding_format": "float"}):  # without, it asks for base64 and decodes
            answer = client.embeddings.create(model=MODEL, input=TEXTS, **options)  # type: ignore[arg-type]
            for item, expected in zip(answer.data, plain, strict=True):
                assert item.embedding == pytest.approx(expected, abs=1e-6)
        assert answer.usage.total_tokens == sum(count(live, text) for text in TEXTS)  # A250


def test_a_client_that_leaves_frees_the_queue(narrow: Live) -> None:
    with RawRequest(narrow, TEXT, stream_body(TEXT, max_tokens=LONG)) as busy:
        busy.read_until(b"data: ")
        with RawRequest(narrow, "/v1/embeddings", {"model": MODEL, "input": "the sea"}):
            wait_until(lambda: narrow.engine.generation.stats().queue_pending == 2, "a waiting request")
        wait_until(lambda: narrow.engine.generation.stats().queue_pending == 1, "that it has left")


def test_what_is_refused_loads_nothing(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    engine = own_engine(None)
    import_local_model(engine.library, engine.events, checkpoint("llama"))
    live = serve(engine)
    for bad in ({"input": []}, {"input": ["x"] * 129}, {"input": [""]}, {"dimensions": 5}, {"pooling": "max"}):
        assert ask(live, **bad).status_code == 400
        assert engine.shelf.resident is None
        assert engine.shelf.loading is None
    assert ask(live).status_code == 200


def test_strict_refuses_what_has_no_use_for_a_vector(live: Live) -> None:
    with live.http() as client:
        strict = client.post(
            "/v1/embeddings",
            json={"model": MODEL, "input": "x", "foo": 1, "temperature": 1},
            headers={"X-miLLM-Strict": "true"},
        )
    assert strict.status_code == 400
    error = strict.json()["error"]
    assert (error["code"], error["param"]) == ("unused_fields_refused", "foo")
    assert "temperature" in error["message"]

"""Structured output over a real socket: constrained answers, whole and streamed, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from jsonschema import validate
from pydantic import BaseModel

from engine.engine import Engine
from engine.generation.constraints.compiler import AT_ONCE
from engine.generation.constraints.validation import DocumentCheck
from engine.generation.response_format import ResponseFormat
from tests.contract.conftest import MODEL, Live
from tests.contract.stage import STEERING, Stage, inline
from tests.contract.test_streaming import events, text_of

JUDGE: dict[str, Any] = {
    "type": "object",
    "properties": {"label": {"enum": ["humor", "not_humor"]}, "score": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["label", "score"],
    "additionalProperties": False,
}


def form(schema: Any = JUDGE, name: str = "judge", **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, **more}}


def ask(live: Live, schema: Any = JUDGE, **body: Any) -> httpx.Response:
    response = live.chat(**{"response_format": form(schema), "temperature": 1, "max_tokens": 120, **body})
    assert response.status_code == 200, response.text
    return response


def refused(live: Live, **body: Any) -> dict[str, Any]:
    response = live.chat(**body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return dict(error)


def test_a_complete_document(live: Live) -> None:
    response = ask(live)
    choice = response.json()["choices"][0]
    assert choice["finish_reason"] == "stop"  # A160
    validate(json.loads(choice["message"]["content"]), JUDGE)  # A160
    assert response.headers["X-miLLM-Constrained"] == 'json_schema;name="judge"'
    assert response.headers["X-miLLM-Mode"] == "generation"
    assert response.headers["X-miLLM-Backend"] == "cbm"
    assert choice["message"].keys() == {"role", "content"}  # never split
    assert "X-miLLM-Ignored-Fields" not in response.headers
    assert "X-miLLM-Constrained" not in live.chat(response_format={"type": "text"}).headers


def test_strict_false_is_enforced_all_the_same(live: Live) -> None:
    response = ask(live, response_format=form(strict=False, name="NAME", description="a judgement"))
    assert response.headers["X-miLLM-Constrained"] == 'json_schema;name="NAME"'  # A154
    validate(json.loads(response.json()["choices"][0]["message"]["content"]), JUDGE)  # A154


def test_any_object(live: Live) -> None:
    # The bias ends the document as soon as it may end.
    end = min(live.engine.shelf.resident.backend.tokenizer.eos_ids)  # type: ignore[union-attr]
    brace = live.engine.shelf.resident.backend.tokenizer.encode("}", False)[0]  # type: ignore[union-attr]
    response = ask(live, response_format={"type": "json_object"}, logit_bias={str(end): 100, str(brace): 100})
    assert response.headers["X-miLLM-Constrained"] == "json_object"
    choice = response.json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert isinstance(json.loads(choice["message"]["content"]), dict)


def test_a_document_that_is_cut_says_so(live: Live) -> None:
    choice = ask(live, max_tokens=3).json()["choices"][0]
    assert choice["finish_reason"] == "length"


def test_choices_are_constrained_one_by_one(live: Live) -> None:
    choices = ask(live, n=2).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1]
    for choice in choices:
        validate(json.loads(choice["message"]["content"]), JUDGE)  # A163


def test_streams(live: Live) -> None:
    asked: dict[str, Any] = {"response_format": form(), "temperature": 1, "max_tokens": 120}
    response, chunks = events(live, **asked)
    assert response.status_code == 200  # A161
    assert response.headers["X-miLLM-Constrained"] == 'json_schema;name="judge"'
    validate(json.loads(text_of(chunks)), JUDGE)  # A161
    _, chunks = events(live, n=2, **asked)
    for index in (0, 1):
        validate(json.loads(text_of(chunks, index)), JUDGE)  # A163


def test_a_seed_repeats_the_document(live: Live) -> None:
    first, second = (ask(live, seed=7).json()["choices"] for _ in range(2))
    assert first == second
    _, chunks = events(live, response_format=form(), temperature=1, max_tokens=120, seed=7)
    assert text_of(chunks) == first[0]["message"]["content"]


def test_steering_leaves_it_valid(stage: Stage) -> None:
    stage.attach()
    response = ask(stage.live, steering=inline((3, 60.0)))
    assert response.headers[STEERING] != "none"
    validate(json.loads(response.json()["choices"][0]["message"]["content"]), JUDGE)  # A166


def test_keywords_that_cannot_be_enforced(live: Live) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer", "multipleOf": 2}}, "not": {}}
    error = refused(live, response_format=form(schema))
    assert error["code"] == "response_format_unsupported"  # A155
    assert error["param"] == "response_format"
    assert "multipleOf at /properties/x/multipleOf" in error["message"]  # A155
    assert "not at /not" in error["message"]


def test_references(live: Live) -> None:
    remote = {"type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}}
    assert refused(live, response_format=form(remote))["code"] == "response_format_unsupported"  # A157
    local = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"A": {"enum": [1, 2]}},
    }
    choice = ask(live, local).json()["choices"][0]
    validate(json.loads(choice["message"]["content"]), local)  # A157


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth - 1):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {f"p{i}": {"type": "null"} for i in range(257)}},
        {"type": "string", "description": "x" * 65_537},
        nested(33),
    ],
    ids=["properties", "bytes", "depth"],
)
def test_limits_of_a_schema(live: Live, schema: dict[str, Any]) -> None:
    error = refused(live, response_format=form(schema))
    assert error["code"] == "response_format_unsupported"  # A158
    assert error["param"] == "response_format"


def test_what_cannot_be_combined(live: Live) -> None:
    for more in ({"stop": "x"}, {"ignore_eos": True}):  # A161
        error = refused(live, response_format=form(), **more)
        assert (error["code"], error["param"]) == ("response_format_unsupported", "response_format")
    for name in ("bad name", "n" * 65):
        assert refused(live, response_format=form(name=name))["param"] == "response_format.json_schema.name"  # A164
    error = live.text(response_format=form()).json()["error"]
    assert (error["code"], error["param"]) == ("field_not_honoured", "response_format")


def test_the_name_of_the_model_is_looked_at_first(live: Live) -> None:
    response = live.chat(model="nobody", response_format=form({"not": {}}))
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


def test_compiling_is_bounded_in_time(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], tiny_checkpoint: Any
) -> None:
    own = serve(own_engine(tiny_checkpoint, STRUCTURED_OUTPUT_COMPILE_TIMEOUT=0.25))
    turns = own.engine.generation._constraints._turns
    for _ in range(AT_ONCE):  # others are being compiled, and take for ever
        assert turns.acquire(timeout=60)
    response = own.chat(response_format=form(), max_tokens=120)
    turns.release(AT_ONCE)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "response_format_unsupported")
    assert "0.25 seconds" in error["message"]
    own.engine.generation.compile_constraint(MODEL, ResponseFormat(JUDGE, "judge")).result(60)
    assert own.chat(response_format=form(), max_tokens=120).status_code == 200


class Judgement(BaseModel):
    """What the SDK makes a schema of."""

    funny: bool


def test_the_sdk_parses(live: Live) -> None:
    with live.sdk() as client:
        answer = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "the quick"}],
            max_tokens=60,
            response_format={"type": "json_schema", "json_schema": {"name": "judge", "schema": JUDGE, "strict": True}},
        )
        validate(json.loads(answer.choices[0].message.content or ""), JUDGE)
        parsed = client.chat.completions.parse(
            model=MODEL,
            messages=[{"role": "user", "content": "the quick"}],
            max_tokens=60,
            response_format=Judgement,
        )
        assert isinstance(parsed.choices[0].message.parsed, Judgement)


def test_a_document_that_fails_the_check(live: Live) -> None:
    # The grammar gives what the schema says; the check of this one schema is made to want something else.
    asked = form({"enum": ["a", "b"]}, "twisted")
    compiled = live.engine.generation.compile_constraint(MODEL, ResponseFormat({"enum": ["a", "b"]}, "twisted"))
    compiled.result(60)._check = DocumentCheck({"type": "integer"})
    response = live.chat(response_format=asked, max_tokens=60)
    assert response.status_code == 500
    error = response.json()["error"]
    assert (error["code"], error["type"]) == ("constrained_output_invalid", "server_error")
    _, chunks = events(live, response_format=asked, max_tokens=60)
    assert chunks[-1]["error"]["code"] == "constrained_output_invalid"
    assert text_of(chunks[:-1]) in ('"a"', '"b"')
    assert all(choice["finish_reason"] is None for chunk in chunks[:-1] for choice in chunk["choices"])
    assert live.chat().status_code == 200

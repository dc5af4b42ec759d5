"""An API that nobody knows, made here in a page: what it says is its own, what it does is everybody's way."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import httpx
import pytest
from pydantic import BaseModel
from quart import Quart, Response

from engine.engine import Engine
from engine.errors import MillmError
from engine.generation.request import GenerationRequest, RequestFinished, TextDelta, TextInput, text_of
from engine.generation.service import PreparedRequest
from engine.generation.text.parts import Kind
from engine.sampling import Sampling
from server import dialects
from server.body import validate
from server.context import ServerContext
from server.dialect import Dialect
from server.fields import Column, Rule, Use
from server.generation.endpoint import Answer, Asked, Endpoint, Written
from server.generation.flow import answer
from server.generation.running import Running
from tests.contract.conftest import MODEL, Live, text_body

HONOURED = Rule(Use.HONOURED)
NOTES = Column("notes", "notes", {**dict.fromkeys(("who", "say", "most", "live"), HONOURED), "loud": Rule(Use.REFUSED)})
PATH = "/v1/notes"
SAYING = {"who": MODEL, "say": "the quick brown fox", "most": 8}


class NoteBody(BaseModel):
    who: str
    say: str
    most: int = 8
    live: bool = False


class Note(Answer[Asked]):
    END = b'{"over":true}\n'

    def whole(self, choices: Sequence[Written], finished: RequestFinished) -> dict[str, Any]:
        return {"note": choices[0].text, "steering": finished.steering.text()}

    async def events(self, running: Running) -> AsyncIterator[bytes]:
        while not isinstance(delta := await running.next(), RequestFinished):
            if isinstance(delta, TextDelta):
                yield json.dumps({"more": text_of(delta.pieces, Kind.CONTENT)}).encode() + b"\n"

    def failure(self, error: MillmError | None) -> bytes:
        return json.dumps({"oops": "?" if error is None else error.code}).encode() + b"\n"


class Notes(Endpoint[Asked]):
    column = NOTES
    schema = NoteBody
    stream_headers: ClassVar[Mapping[str, str]] = {"Content-Type": "application/x-ndjson"}

    def parse(self, body: dict[str, Any]) -> Asked:
        read = validate(NoteBody, body)
        sampling = Sampling(temperature=0.0)
        generation = GenerationRequest(read.who, TextInput((read.say,)), sampling, max_tokens=read.most)
        return Asked(generation, read.live, ())

    def begin(self, context: ServerContext, asked: Asked, prepared: PreparedRequest) -> Note:
        return Note(context, asked, prepared)


class NoteDialect(Dialect):
    roots = (PATH,)
    error_schema = "ApiError"

    def register(self, app: Quart, context: ServerContext) -> None:
        @app.post(PATH)
        async def note() -> Response:
            return await answer(context, Notes())

    def envelope(self, error: MillmError, *, while_generating: bool = False) -> dict[str, Any]:
        return {"oops": error.code, "where": error.param}


@pytest.fixture
def notes(engine: Engine, serve: Callable[..., Live], monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    monkeypatch.setattr(dialects, "DIALECTS", (*dialects.DIALECTS, NoteDialect()))
    with serve(engine, API_KEY="k", MAX_BODY_BYTES=2048).http(headers={"Authorization": "Bearer k"}) as http:
        yield http


def test_it_writes_what_the_others_write(notes: httpx.Client) -> None:
    expected = notes.post("/v1/completions", json=text_body()).json()["choices"][0]["text"]
    whole = notes.post(PATH, json=SAYING)
    assert whole.json() == {"note": expected, "steering": "none"}
    assert whole.headers["X-miLLM-Steering"] == "none" and "X-miLLM-Backend" in whole.headers
    streamed = notes.post(PATH, json={**SAYING, "live": True})
    assert streamed.headers["Content-Type"] == "application/x-ndjson"
    *pieces, over = [json.loads(line) for line in streamed.text.splitlines()]
    assert "".join(piece["more"] for piece in pieces) == expected and over == {"over": True}


def test_no_field_of_it_is_lost(notes: httpx.Client) -> None:
    assert notes.post(PATH, json={**SAYING, "odd": 1}).headers["X-miLLM-Ignored-Fields"] == '"odd"'
    strict = notes.post(PATH, json={**SAYING, "odd": 1}, headers={"X-miLLM-Strict": "true"})
    assert (strict.status_code, strict.json()) == (400, {"oops": "unused_fields_refused", "where": "odd"})
    refused = notes.post(PATH, json={**SAYING, "loud": True})
    assert (refused.status_code, refused.json()) == (400, {"oops": "field_not_honoured", "where": "loud"})


@pytest.mark.parametrize(
    ("ask", "status", "code"),
    [
        (lambda http: http.post(PATH, json={**SAYING, "most": "many"}), 400, "invalid_parameter"),
        (lambda http: http.post(PATH, json={**SAYING, "who": "nobody"}), 404, "model_not_found"),
        (lambda http: http.post(PATH, content=b"{"), 400, "invalid_parameter"),
        (lambda http: http.post(PATH, content=b" " * 4096), 413, "payload_too_large"),
        (lambda http: http.get(PATH), 405, "method_not_allowed"),
        (lambda http: http.post(f"{PATH}/deeper"), 404, "not_found"),
        (lambda http: http.post(PATH, json=SAYING, headers={"Authorization": "Bearer x"}), 401, "invalid_api_key"),
        (lambda http: http.post(PATH, json=SAYING, headers={"Origin": "http://a.b"}), 403, "origin_not_allowed"),
        (lambda http: http.post(PATH, json=SAYING, headers={"Host": "a.b"}), 403, "host_not_allowed"),
    ],
    ids=["value", "model", "json", "size", "method", "path", "key", "origin", "host"],
)
def test_every_refusal_below_its_root_is_its_own(
    notes: httpx.Client, ask: Callable[[httpx.Client], httpx.Response], status: int, code: str
) -> None:
    answered = ask(notes)
    assert answered.status_code == status
    assert answered.json().keys() == {"oops", "where"} and answered.json()["oops"] == code


def test_the_longer_root_counts_and_the_others_stay_theirs(notes: httpx.Client) -> None:
    assert notes.get("/v1/notesx").json()["error"]["code"] == "not_found"
    assert notes.get("/api/notes").json()["error"]["code"] == "NOT_FOUND"

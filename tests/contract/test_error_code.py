"""Every refusal names its code in a header, whichever API and whichever door it comes from; answers say what was warm."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from tests.contract.conftest import Live, chat_body

CODE, WARM = "X-miLLM-Error-Code", "X-miLLM-Warm"
PAGE = "https://app.example"


def code(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    return response.headers[CODE]


def test_refusals_of_the_way_of_a_request(live: Live) -> None:
    assert code(live.chat(temperature=9), 400) == "invalid_parameter"
    assert code(live.chat(model="nobody"), 404) == "model_not_found"
    assert code(live.text(audio={}), 400) == "field_not_honoured"
    assert code(live.chat(headers={"X-miLLM-Strict": "true"}, foo=1), 400) == "unused_fields_refused"
    assert code(live.chat(headers={"X-miLLM-Strict": "perhaps"}), 400) == "invalid_parameter"


def test_refusals_of_the_doors(live: Live, serve: Callable[..., Live]) -> None:
    guarded = serve(live.engine, API_KEY="sesame", MAX_BODY_BYTES=2048)
    with guarded.http() as client:
        for path in ("/v1/models", "/api/models", "/"):
            assert code(client.get(path), 401) == "invalid_api_key"
        client.headers["X-Api-Key"] = "sesame"
        for path in ("/v1/models", "/api/models"):
            assert code(client.get(path, headers={"Host": "evil.example"}), 403) == "host_not_allowed"
            assert code(client.get(path, headers={"Origin": PAGE}), 403) == "origin_not_allowed"
        for path in ("/v1/nothing", "/api/nothing", "/nothing"):
            assert code(client.get(path), 404) == "not_found"
        for path in ("/v1/chat/completions", "/api/models/1/load"):
            assert code(client.get(path), 405) == "method_not_allowed"
        for path in ("/v1/chat/completions", "/api/sweeps"):
            assert code(client.post(path, json=chat_body(messages=["x" * 4096])), 413) == "payload_too_large"


def test_a_management_refusal_has_one_code_in_body_and_header(live: Live) -> None:
    with live.http() as client:
        wrong = client.get("/api/circuits", params={"limit": "many"})
        assert code(wrong, 422) == "validation_error"
        assert wrong.json()["error"]["code"] == "VALIDATION_ERROR"
        assert code(client.get("/api/models/4711"), 404) == "model_not_found"


def test_a_page_may_read_it(live: Live, serve: Callable[..., Live]) -> None:
    server = serve(live.engine, CORS_ORIGINS=[PAGE])
    refused = server.chat(headers={"Origin": PAGE}, temperature=9)
    assert code(refused, 400) == "invalid_parameter"
    assert {CODE, WARM} <= set(refused.headers["Access-Control-Expose-Headers"].split(", "))


def test_an_answer_has_none(live: Live) -> None:
    assert CODE not in live.chat().headers
    with live.http() as client:
        assert CODE not in client.get("/v1/models").headers


@pytest.mark.parametrize("way", ["chat", "text"])
def test_what_was_warm(live: Live, way: str) -> None:
    def ask() -> httpx.Response:
        words = "Marmots dig burrows beside the brook. " * 12
        if way == "text":
            return live.text(prompt=f"text {words}")
        return live.chat(messages=[{"role": "user", "content": f"chat {words}"}])

    first, second = ask(), ask()
    assert int(first.headers[WARM]) < first.json()["usage"]["prompt_tokens"]
    assert int(second.headers[WARM]) == second.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    scored = live.text(prompt="never read before, and read once", max_tokens=1, logprobs=1)
    assert (scored.headers["X-miLLM-Mode"], scored.headers[WARM]) == ("scoring", "0")


def test_a_stream_does_not_know_yet(live: Live) -> None:
    with live.http() as client:
        assert WARM not in client.post("/v1/chat/completions", json=chat_body(stream=True)).headers

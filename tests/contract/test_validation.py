"""Bad input over the wire: always a 4xx in the shape of its surface, never a 500 or a hang."""

from __future__ import annotations

import codecs
import json
import socket
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.contract.conftest import Live, chat_body, text_body

PATHS = ["/v1/chat/completions", "/v1/completions"]


def post(live: Live, path: str, content: bytes | Iterator[bytes], **headers: str) -> Any:
    with live.http() as client:
        return client.post(path, content=content, headers={"Content-Type": "application/json", **headers})


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"nonsense", b'{"model": "\xff"}', b"[" * 5_000_000, b'{"messages":' * 400_000],
    ids=["empty", "open", "list", "words", "bytes", "nested-lists", "nested-objects"],
)
def test_what_is_no_json_object(live: Live, path: str, content: bytes) -> None:
    response = post(live, path, content)
    assert response.status_code == 400  # A032
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == "invalid_parameter"
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"temperature": 2.1}, "temperature"),  # A023
        ({"top_p": 1.5}, "top_p"),  # A025
        ({"max_tokens": 0}, "max_tokens"),  # A026
        ({"stop": ["x"] * 17}, "stop"),  # A028
        ({"stop": ""}, "stop"),  # A028
        ({"stop": ["a", ""]}, "stop"),  # A028
        ({"n": 0}, "n"),  # A029
        ({"seed": True}, "seed"),  # A037
        ({"seed": 2**63}, "seed"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"top_k": -2}, "top_k"),
        ({"seed": 1.5}, "seed"),  # A038
        ({"logit_bias": {"abc": 1}}, "logit_bias"),  # A064
        ({"logit_bias": {"5": 1, "05": 2}}, "logit_bias"),  # one of them would be lost
        ({"logit_bias": {"5": 101}}, "logit_bias"),  # A064
        ({"logit_bias": {str(token): 1 for token in range(1025)}}, "logit_bias"),  # A064
        ({"logit_bias": {"100000": 1}}, "logit_bias"),  # A064: outside the vocabulary
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
        ({"min_tokens": 1025, "max_tokens": ...}, "min_tokens"),
        ({"model": ...}, "model"),
        ({"steering_intensity": 2.01}, "steering_intensity"),  # A040
        ({"steering_intensity": True}, "steering_intensity"),  # A040
        ({"steering_intensity": "loud"}, "steering_intensity"),  # A040
    ],
)
def test_each_bad_field_is_named(live: Live, changes: dict[str, Any], param: str) -> None:
    for response in (live.chat(**changes), live.text(**changes)):
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["param"] == param
        assert error["code"] == "invalid_parameter"
        assert error["type"] == "invalid_request_error"


def test_several_bad_fields_give_one_refusal(live: Live) -> None:
    response = live.chat(temperature=3, top_p=2, n=0)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "temperature"
    assert "and 2 more validation errors" in error["message"]  # A031
    several = live.chat(dimensions=5, functions=[{"name": "f"}]).json()["error"]
    assert several["param"] == "dimensions"  # A076
    assert "'functions'" in several["message"]  # A076


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_json_does_not_have(live: Live, word: str) -> None:
    response = post(
        live, PATHS[0], json.dumps(chat_body()).replace('"temperature": 0', f'"temperature": {word}').encode()
    )
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "temperature"


def test_nan_in_a_field_nobody_reads(live: Live) -> None:
    response = post(live, PATHS[0], json.dumps({**chat_body(), "foo": float("nan")}).encode())
    assert response.status_code == 400


def test_messages_of_a_bad_shape(live: Live) -> None:
    for messages, param in (
        ([{"role": "robot", "content": "x"}], "messages.0.role"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages.0.content.0.type"),
        ("hi", "messages"),
        ([], "messages"),
    ):
        response = live.chat(messages=messages)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == param


def test_an_empty_prompt_with_nothing_to_start_from(live: Live) -> None:
    response = live.text(prompt="", add_special_tokens=False)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "prompt"


def test_limits_that_still_pass(live: Live) -> None:
    assert live.chat(stop=[f"zz{i}" for i in range(16)]).status_code == 200  # A028
    assert live.chat(seed=4294967295).status_code == 200  # A037
    assert live.chat(max_tokens=5, max_completion_tokens=5).status_code == 200  # A035
    assert live.chat(logit_bias={}).status_code == 200  # A064
    conflict = live.chat(max_tokens=5, max_completion_tokens=6)  # A034
    assert conflict.status_code == 400
    assert "max_tokens" in conflict.json()["error"]["message"]
    assert "max_completion_tokens" in conflict.json()["error"]["message"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dimensions", 5),  # A071
        ("functions", [{"name": "f"}]),  # A062
        ("verbosity", "low"),
    ],
)
def test_fields_that_cannot_be_honoured(live: Live, name: str, value: Any) -> None:
    for response in (live.chat(**{name: value}), live.text(**{name: value})):
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["code"] == "field_not_honoured"
        assert error["param"] == name
        assert "tiny-llama" in error["message"]
    for response in (live.chat(**{name: None}), live.text(**{name: None})):
        assert response.status_code == 200  # A073


def test_tools_and_their_neutral_values(live: Live) -> None:
    assert live.chat(tools=[]).status_code == 200  # A062
    assert live.chat(tool_choice="auto").status_code == 200
    assert live.chat(tool_choice="none").status_code == 200
    assert live.text(response_format={"type": "text"}).status_code == 200  # A070
    assert live.text(top_logprobs=2).json()["error"]["code"] == "field_not_honoured"  # A068


@pytest.mark.parametrize("header", ["X-miLLM-Lease", "X-miLLM-Load-Policy"])
def test_headers_whose_promise_cannot_be_kept(live: Live, header: str) -> None:
    response = live.chat(headers={header: "refuse"})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "field_not_honoured"
    assert response.json()["error"]["param"] == header


def test_the_default_load_policy_may_be_named(live: Live) -> None:
    assert live.chat(headers={"X-miLLM-Load-Policy": "Auto"}).status_code == 200
    assert live.chat(headers={"X-miLLM-Load-Policy": "never"}).json()["error"]["code"] == "invalid_parameter"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream", ""])
def test_what_parses_is_taken_whatever_it_is_called(live: Live, kind: str) -> None:
    response = post(live, PATHS[0], json.dumps(chat_body()).encode(), **{"Content-Type": kind})
    assert response.status_code == 200


def test_a_byte_order_mark_is_passed_over(live: Live) -> None:
    marked = codecs.BOM_UTF8 + json.dumps(chat_body()).encode()
    assert post(live, PATHS[0], marked).json()["choices"] == live.chat().json()["choices"]
    named = codecs.BOM_UTF8 + json.dumps({**chat_body(), "foo": float("nan")}).encode()
    assert "not valid JSON" in post(live, PATHS[0], named).json()["error"]["message"]


def test_of_a_key_that_comes_twice_the_last_counts(live: Live) -> None:
    raw = json.dumps(text_body()).replace('"max_tokens": 8', '"max_tokens": 3, "max_tokens": 5')
    assert post(live, PATHS[1], raw.encode()).json()["usage"]["completion_tokens"] == 5


def test_bodies_past_the_limit(serve: Callable[..., Live], live: Live) -> None:
    small = serve(live.engine, MAX_BODY_BYTES=4096)
    fits = json.dumps(chat_body()).encode().ljust(4096)
    assert post(small, PATHS[0], fits).status_code == 200
    announced = post(small, PATHS[0], fits + b" ")
    chunked = post(small, PATHS[0], iter([fits, b" " * 100_000]))
    huge = post(small, PATHS[0], b" " * 3_000_000)
    for response in (announced, chunked, huge):
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "payload_too_large"
        assert response.json()["error"].keys() == {"message", "type", "param", "code"}
        assert "4096" in response.json()["error"]["message"]
    assert small.chat().status_code == 200


def test_a_refusal_reaches_a_client_that_is_still_sending(serve: Callable[..., Live], live: Live) -> None:
    guarded = serve(live.engine, API_KEY="secret")
    response = post(guarded, PATHS[0], b" " * 8_000_000)
    assert response.status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/nothing", 404, "not_found"),
        ("POST", "/v1", 404, "not_found"),
        ("GET", "/api/nothing", 404, "NOT_FOUND"),
        ("POST", "/api/health", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/nothing", 404, "NOT_FOUND"),
        ("GET", "/%0d%0aX-Evil:%201", 404, "NOT_FOUND"),
    ],
)
def test_routes_that_are_not_there(live: Live, method: str, path: str, status: int, code: str) -> None:
    with live.http() as client:
        response = client.request(method, path)
    assert response.status_code == status
    body = response.json()
    if path.startswith("/v1"):
        assert body["error"].keys() == {"message", "type", "param", "code"}
    else:
        assert body.keys() == {"success", "data", "error"}  # A292
        assert body["success"] is False
        assert body["data"] is None
        assert body["error"].keys() == {"code", "message", "details"}
    assert body["error"]["code"] == code
    assert "x-evil" not in response.headers
    if status == 405:
        assert response.headers["allow"]


def test_several_slashes_count_as_one(live: Live) -> None:
    """A base URL that ends with a slash, joined to a path that begins with one, by a client that follows nothing."""
    with live.http() as client:
        assert client.post("/v1//chat/completions", json=chat_body()).status_code == 200
        assert client.get(f"{live.base}//v1///models").json()["object"] == "list"
        assert client.get("/v1//nothing").json()["error"]["code"] == "not_found"
        assert client.get("/api//health").json()["status"] == "healthy"


def test_a_target_that_is_a_whole_url(live: Live) -> None:
    """As clients send it that take the server for a proxy."""
    connection = HTTPConnection("127.0.0.1", live.port, timeout=60)
    connection.request("GET", f"{live.base}/v1/models")
    assert json.loads(connection.getresponse().read())["object"] == "list"
    connection.close()


def test_slashes_open_no_door(serve: Callable[..., Live], live: Live) -> None:
    guarded = serve(live.engine, API_KEY="secret")
    with guarded.http() as client:
        for path in ("/v1//models", "/api//models", "/api/health//detailed", "/api/health/..//models"):
            assert client.get(path).status_code == 401
        assert client.get("/api//health").status_code == 200


def test_a_request_line_that_is_no_http_closes_the_connection(live: Live) -> None:
    with socket.create_connection(("127.0.0.1", live.port), 30) as client:
        client.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 400")
    assert live.chat().status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("DELETE", "/api/monitoring/history", 200), ("GET", "/api/health", 200), ("DELETE", "/api/profiles/x", 404)],
)
def test_a_body_that_nobody_reads_costs_nothing(live: Live, method: str, path: str, status: int) -> None:
    with live.http() as client:
        for _ in range(10):
            assert client.request(method, path, content=b"x" * 4_000_000).status_code == status
            assert client.get("/api/health").status_code == 200


@pytest.mark.parametrize(
    ("changes", "received"),
    [
        ({"chat_template_kwargs": 5}, "the number 5"),
        ({"chat_template_kwargs": [{}, 5]}, "item 1 is the number 5"),
        ({"chat_template_kwargs": "[1]"}, "it holds a list of 1 item"),
        ({"chat_template_kwargs": "{"}, 'received the string "{"'),
        ({"temperature": 2.5}, "received the number 2.5"),
        ({"temperature": "hot"}, 'received the string "hot"'),
        ({"temperature": [1, 2]}, "received a list of 2 items"),
        ({"max_tokens": True}, "received true"),
        ({"seed": {}}, "received an object with 0 keys"),
        ({"n": 1.5}, "received the number 1.5"),
        ({"stop": ["a", 7]}, "item 1 is the number 7"),
        ({"stop": 7}, "received the number 7"),
        ({"logit_bias": {"x": 1}}, 'one is the string "x"'),
        ({"logit_bias": {"5": "much"}}, 'that of 5 is the string "much"'),
        ({"messages": "hi"}, "received a string of 2 characters"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "received a string of 5 characters"),
        ({"messages": [{"role": "user", "content": 5}]}, "received the number 5"),
        ({"messages": [5]}, "received the number 5"),
        ({"stream": "yes"}, 'received the string "yes"'),
        ({"model": 5}, "received the number 5"),
        ({"steering_intensity": "loud"}, 'received the string "loud"'),
        ({"steering": 5}, "received the number 5"),
        ({"steering": {"features": [{"index": -1, "strength": 1}]}}, "received the number -1"),
        ({"response_format": {"type": "xml"}}, 'received the string "xml"'),
        ({"return_sae_activations": {"top_k": 0, "positions": "all"}}, "received the number 0"),
        ({"top_logprobs": 21, "logprobs": True}, "received the number 21"),
    ],
)
def test_a_refusal_says_what_was_received(live: Live, changes: dict[str, Any], received: str) -> None:
    error = live.chat(**changes).json()["error"]
    assert received in error["message"]


def test_a_refusal_repeats_no_megabyte(live: Live) -> None:
    for changes in ({"temperature": "x" * 1_000_000}, {"messages": [{"role": "y" * 1_000_000, "content": ""}]}):
        response = live.chat(**changes)
        assert response.status_code == 400
        assert "a string of 1000000 characters" in response.json()["error"]["message"]
        assert len(response.text) < 1000

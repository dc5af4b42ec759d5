"""Steering for programs that cannot change a body: headers that mean what the fields mean."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contract.conftest import MODEL, Live, chat_body, text_body
from tests.contract.stage import CHAT, INTENSITY, STEERING, TEXT, Stage, inline

PROFILE, NOTES = "X-miLLM-Profile", "X-miLLM-Notes"


def steered(stage: Stage, path: str, headers: dict[str, str], **body: object) -> str:
    response = stage.live.chat(headers=headers, **body) if path == CHAT else stage.live.text(headers=headers, **body)
    assert response.status_code == 200, response.text
    return response.headers[STEERING]


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_header_steers_as_its_field_does(stage: Stage, path: str) -> None:
    stage.attach()
    stage.profile("Ruhe 100% für alle", {3: 40.0})
    by_field = steered(stage, path, {}, profile="Ruhe 100% für alle", steering_intensity=0.5)
    headers = {PROFILE: "Ruhe 100%25 f%C3%BCr alle", INTENSITY: "0.5"}
    assert steered(stage, path, headers) == by_field
    assert by_field.count("f%C3%BCr") == 1
    # The same said twice is no contradiction.
    assert steered(stage, path, headers, profile="Ruhe 100% für alle", steering_intensity=0.5) == by_field
    assert steered(stage, path, {PROFILE: headers[PROFILE]}, steering_intensity=0.5) == by_field
    assert steered(stage, path, {INTENSITY: "OFF"}) == "none"
    assert steered(stage, path, {}) == "none"


def test_a_stream_is_steered_by_header_too(stage: Stage) -> None:
    stage.attach()
    stage.profile("calm", {3: 40.0})
    with stage.live.http() as client:
        text = client.post(CHAT, json=chat_body(stream=True), headers={PROFILE: "calm"}).text
    assert 'name=\\"calm\\"' in text


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("headers", "body", "param"),
    [
        ({PROFILE: "calm"}, {"profile": "storm"}, PROFILE),
        ({INTENSITY: "1"}, {"steering_intensity": 0.5}, INTENSITY),
        ({INTENSITY: "1"}, {"steering_intensity": "max"}, INTENSITY),
        ({INTENSITY: "loud"}, {}, INTENSITY),
        ({INTENSITY: "2.5"}, {}, INTENSITY),
        ({INTENSITY: ""}, {}, INTENSITY),
        ({PROFILE: "100%"}, {}, PROFILE),
        ({PROFILE: "%FF"}, {}, PROFILE),
        ({PROFILE: "calm"}, {"steering": {"features": []}}, PROFILE),
        ({INTENSITY: "1"}, {"steering": {"features": []}}, INTENSITY),
    ],
)
def test_what_is_refused(live: Live, path: str, headers: dict[str, str], body: dict[str, object], param: str) -> None:
    response = (live.chat if path == CHAT else live.text)(headers=headers, **body)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "invalid_parameter", param)
    assert response.headers["X-miLLM-Error-Code"] == "invalid_parameter"


def test_two_headers_that_differ(live: Live) -> None:
    with live.http() as client:
        pairs = [(INTENSITY, "1"), (INTENSITY, "0.5")]
        response = client.post(TEXT, json=text_body(), headers=pairs)
        assert (response.status_code, response.json()["error"]["param"]) == (400, INTENSITY)
        raw = [(PROFILE.encode(), "für".encode())]
        assert client.post(TEXT, json=text_body(), headers=raw).json()["error"]["param"] == PROFILE


def test_a_profile_that_is_not_there_names_the_header(live: Live) -> None:
    response = live.chat(headers={PROFILE: "nobody"})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (404, "profile_not_found", PROFILE)
    assert PROFILE in error["message"]
    assert live.chat(profile="nobody").json()["error"]["param"] == "profile"


def test_the_schema_and_the_header_come_before_the_model(live: Live) -> None:
    assert live.chat(headers={INTENSITY: "loud"}, model="nobody").status_code == 400
    assert live.chat(headers={INTENSITY: "loud"}, temperature=9).json()["error"]["param"] == "temperature"


def test_where_nothing_is_steered_they_do_nothing_and_it_is_said(live: Live) -> None:
    headers = {PROFILE: "nobody", INTENSITY: "loud"}
    with live.http() as client:
        vectors = client.post("/v1/embeddings", json={"model": MODEL, "input": "a"}, headers=headers)
        assert vectors.status_code == 200
        assert f"{PROFILE} and {INTENSITY} had no effect" in vectors.headers[NOTES]
        assert NOTES not in client.post("/v1/embeddings", json={"model": MODEL, "input": "a"}).headers
        assert client.get("/v1/models", headers=headers).status_code == 200
    for ask in (live.text, lambda **more: live.chat(**{**more, "logprobs": True})):
        scored = ask(headers={PROFILE: "nobody"}, max_tokens=1, logprobs=1)
        assert scored.status_code == 200, scored.text
        assert scored.headers["X-miLLM-Mode"] == "scoring"
        assert f"{PROFILE} had no effect" in scored.headers[NOTES]


def test_inline_steering_goes_on_alone(stage: Stage) -> None:
    stage.attach()
    assert stage.live.chat(steering=inline((3, 20.0))).headers[STEERING].startswith("inline")


def test_a_page_may_send_them(live: Live, serve: Callable[..., Live]) -> None:
    server = serve(live.engine, CORS_ORIGINS=["https://app.example"])
    with server.http() as client:
        asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
        allowed = client.options(CHAT, headers=asked).headers["Access-Control-Allow-Headers"]
    assert PROFILE in allowed and INTENSITY in allowed

"""The key, the Origin and the Host: who is answered, and in which shape the others are refused."""

from __future__ import annotations

from collections.abc import Callable

import openai
import pytest

from engine.events import ServerStateChanged
from tests.contract.conftest import MODEL, Live

PAGE = "https://app.example"


@pytest.fixture
def guarded(live: Live, serve: Callable[..., Live]) -> Live:
    return serve(live.engine, API_KEY="sesame")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic sesame"},
        {"Authorization": "sesame"},
        {"Authorization": "Bearer sesame2"},
        {"X-Api-Key": "wrong"},
    ],
)
def test_without_the_key(guarded: Live, headers: dict[str, str]) -> None:
    with guarded.http(headers=headers) as client:
        for path in ("/v1/models", "/", "/api/health/detailed", "/nothing"):
            response = client.get(path)
            assert response.status_code == 401
            assert response.headers["WWW-Authenticate"] == "Bearer"
        assert client.get("/v1/models").json()["error"]["code"] == "invalid_api_key"
        assert client.get("/api/health/ready").json()["error"]["code"] == "INVALID_API_KEY"
        assert client.get("/api/health").status_code == 200  # the one open door


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer sesame"},
        {"authorization": "bearer  sesame"},
        {"X-Api-Key": "sesame"},
        {"Authorization": "Bearer any", "X-Api-Key": "sesame"},
    ],
)
def test_with_the_key(guarded: Live, headers: dict[str, str]) -> None:
    with guarded.http(headers=headers) as client:
        assert client.get("/v1/models").status_code == 200
        assert client.get("/").status_code == 200


def test_the_key_in_the_sdk(guarded: Live) -> None:
    with guarded.sdk(api_key="sesame") as client:
        assert client.models.list().data[0].id == MODEL
    with guarded.sdk(api_key="wrong") as client, pytest.raises(openai.AuthenticationError) as caught:
        client.models.list()
    assert caught.value.code == "invalid_api_key"


def test_a_key_that_is_not_ascii(live: Live, serve: Callable[..., Live]) -> None:
    guarded = serve(live.engine, API_KEY="sesame")
    with guarded.http() as client:
        assert client.get("/v1/models", headers={"Authorization": "Bearer sésame".encode()}).status_code == 401  # type: ignore[dict-item]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "https://app.example.evil"])
def test_pages_that_are_not_on_the_list(live: Live, serve: Callable[..., Live], origin: str) -> None:
    for server in (live, serve(live.engine, CORS_ORIGINS=[PAGE])):
        response = server.chat(headers={"Origin": origin})
        assert response.status_code == 403
        assert response.json()["error"]["code"] == "origin_not_allowed"
        assert "access-control-allow-origin" not in response.headers
        with server.http() as client:
            preflight = client.options("/v1/models", headers={"Origin": origin, "Access-Control-Request-Method": "GET"})
            assert preflight.status_code == 403
            assert client.get("/api/health", headers={"Origin": origin}).status_code == 403


def test_a_page_on_the_list(live: Live, serve: Callable[..., Live]) -> None:
    server = serve(live.engine, CORS_ORIGINS=[PAGE], API_KEY="sesame")
    with server.http() as client:
        preflight = client.options(
            "/v1/chat/completions",
            headers={
                "Origin": PAGE,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
            },
        )
        assert preflight.status_code == 204
        assert preflight.headers["Access-Control-Allow-Origin"] == PAGE
        assert "POST" in preflight.headers["Access-Control-Allow-Methods"]
        assert preflight.headers["Access-Control-Allow-Headers"] == "authorization,content-type,x-stainless-os"
        answer = client.get("/v1/models", headers={"Origin": PAGE, "Authorization": "Bearer sesame"})
        assert answer.status_code == 200
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE
        exposed = answer.headers["Access-Control-Expose-Headers"].split(", ")
        assert {"X-miLLM-Steering", "X-miLLM-Steering-Intensity", "X-miLLM-Circuit-Rung"} <= set(exposed)
        assert "Origin" in answer.headers["Vary"]
        refused = client.get("/v1/models", headers={"Origin": PAGE})
        assert refused.status_code == 401
        assert refused.headers["Access-Control-Allow-Origin"] == PAGE  # so that the page can read why


def test_a_star_allows_any_page(live: Live, serve: Callable[..., Live]) -> None:
    server = serve(live.engine, CORS_ORIGINS=["*"])
    assert server.chat(headers={"Origin": "https://any.example"}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "[::2]:1",
        "10.0.0.1",
        "localhost:80.evil.example",
        "localhost:evil",
        "localhost:80:80",
        "localhost:99999",
        "localhost:-1",
        "localhost:+1",
        "localhost..",
        "..",
        ".localhost",
        "a" * 64 + ".example",
        "localhost@evil.example",
        "evil.example@localhost",
        "user:pass@localhost",
        "localhost/",
        "localhost?",
        "localhost evil.example",
        "localhost, evil.example",
        "[::1].evil.example",
        "[::1]evil:80",
        "[::1",
        "[::1%25lo]",
        "::1",
        "2130706433",
        "0.0.0.0",
        "",
    ],
)
def test_hosts_that_are_not_ours(live: Live, host: str) -> None:
    for path in ("/v1/models", "/api/health"):
        with live.http() as client:
            response = client.get(path, headers={"Host": host})
        assert response.status_code == 403
        assert response.json()["error"]["code"].lower() == "host_not_allowed"


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1234",
        "127.0.0.1",
        "[::1]:80",
        "host.docker.internal:8000",
        "localhost.",
        "localhost:",
        "LocalHost.:8000",
        "[0:0:0:0:0:0:0:1]",
        "[::1]:65535",
    ],
)
def test_hosts_that_are_ours(live: Live, host: str) -> None:
    with live.http() as client:
        assert client.get("/v1/models", headers={"Host": host}).status_code == 200


def test_a_bind_beyond_this_machine_takes_any_host(live: Live, serve: Callable[..., Live]) -> None:
    server = serve(live.engine, HOST="0.0.0.0", API_KEY="sesame")
    assert server.address == f"http://127.0.0.1:{server.port}/v1"
    with server.http(headers={"Authorization": "Bearer sesame"}) as client:
        assert client.get("/v1/models", headers={"Host": "mybox.lan:8000"}).status_code == 200
        for odd in ("..", "a" * 64 + ".example", "mybox.lan:x"):
            assert client.get("/v1/models", headers={"Host": odd}).status_code == 200
    assert ServerStateChanged.name == "server:state"


# --- what a foreign page has its browser fetch ------------------------------------------------------------------------

IMAGE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
FRAME = {**LINK, "Sec-Fetch-Dest": "iframe"}


@pytest.mark.parametrize("path", ["/", "/api/health", "/v1/models", "/metrics", "/nothing", "/openapi.json"])
def test_tags_of_foreign_pages_are_not_answered(live: Live, serve: Callable[..., Live], path: str) -> None:
    for server in (live, serve(live.engine, CORS_ORIGINS=[PAGE])):
        with server.http() as client:
            for headers in (
                IMAGE,
                FRAME,
                {"Sec-Fetch-Site": "cross-site"},
                {"sec-fetch-site": "Cross-Site"},
                {**IMAGE, "Sec-Fetch-Site": "same-site"},
            ):
                response = client.get(path, headers=headers)
                assert response.status_code == 403
                error = response.json()["error"]
                assert error["code"].lower() == "origin_not_allowed"
                assert "CORS_ORIGINS" in error["message"]
            posted = client.post("/v1/chat/completions", headers=IMAGE, content=b"{}")
            assert posted.status_code == 403


def test_links_lead_to_the_pages_for_people(live: Live) -> None:
    with live.http() as client:
        assert client.get("/", headers=LINK).status_code == 200
        assert client.get("/api/health", headers=LINK).status_code == 200
        assert client.get("/v1/models", headers=LINK).status_code == 403
        assert client.post("/", headers=LINK).status_code == 403


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_the_persons_own_browsing_is_answered(live: Live, site: str) -> None:
    with live.http() as client:
        assert client.get("/v1/models", headers={**LINK, "Sec-Fetch-Site": site}).status_code == 200


def test_an_allowed_page_goes_on_working(live: Live, serve: Callable[..., Live]) -> None:
    own = serve(live.engine, CORS_ORIGINS=[PAGE])
    headers = {"Origin": PAGE, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    with own.http() as client:
        assert client.get("/v1/models", headers=headers).status_code == 200
        asked = {**headers, "Access-Control-Request-Method": "POST"}
        assert client.options("/v1/chat/completions", headers=asked).status_code == 204
    assert own.chat(headers=headers).status_code == 200
    with serve(live.engine, CORS_ORIGINS=["*"]).http() as client:
        assert client.get("/v1/models", headers=IMAGE).status_code == 200


@pytest.mark.parametrize(
    ("listed", "origin", "status"),
    [
        ("https://app.example:443/", "https://app.example", 200),
        ("HTTPS://App.Example", "https://app.example", 200),
        ("http://[::1]:3000", "http://[::1]:3000", 200),
        ("http://app.example:80", "http://app.example", 200),
        ("http://app.example:443", "http://app.example", 403),
        ("https://app.example", "http://app.example", 403),
        ("https://app.example", "https://app.example:8443", 403),
        ("https://app.example", "https://user@app.example", 403),
        ("https://app.example", "https://app.example.", 403),
        ("https://app.example", "https://app.example@evil.example", 403),
        ("https://app.example", "null", 403),
        ("https://app.example", "", 403),
    ],
)
def test_origins_are_compared_as_origins(
    live: Live, serve: Callable[..., Live], listed: str, origin: str, status: int
) -> None:
    own = serve(live.engine, CORS_ORIGINS=[listed])
    with own.http() as client:
        assert client.get("/v1/models", headers={"Origin": origin}).status_code == status

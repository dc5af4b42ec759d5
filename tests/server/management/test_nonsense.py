"""Nonsense at every route is the client's mistake, never the server's."""

from __future__ import annotations

import re
from typing import Any

from server.app import context_of, create_app
from server.config import ServerSettings
from tests.server.management.conftest import House

BODIES: list[Any] = [
    None,
    b"{",
    b"[" * 5000,
    b"\xff\xfe",
    b"null",
    {},
    {"x": 1},
    {"name": "\u0000", "layer": 0},
    {"name": "x" * 100_000},
    {"feature_idx": 10**30, "value": 1},
    {"steering": {"9" * 4000: 1}},
    {"saes": [{"sae_id": "..", "layer": 2**31 - 1}]},
    {"path": "\u0000"},
    {"path": "/" + "a" * 4000},
    {"intensity": 1e308},
    {"features": [2**31 - 1]},
    b'{"name": "\\ud800"}',
]
QUERIES = [
    "",
    "?x=1",
    "?layer=99999999999999999999",
    "?limit=%00",
    "?circuit_id=%FF&circuit_id=2",
    "?sae_id=%F0%9F%98%80",
]
NAMES = ["%00", "%FF", "..", "%2F", "%F0%9F%98%80", "x" * 300]


def routes(house: House) -> list[tuple[str, str]]:
    app = create_app(house.engine, ServerSettings())
    context_of(app).close()
    return [
        (method, str(rule))
        for rule in app.url_map.iter_rules()
        if str(rule).startswith("/api/") and not str(rule).startswith("/api/health") and not rule.websocket
        for method in sorted(rule.methods or ())
        if method not in ("HEAD", "OPTIONS")
    ]


def filled(rule: str, name: str) -> str:
    """The rule as a path, with ``name`` in every variable place."""
    return re.sub(r"<[^>]+>", name, rule)


def test_every_route(steered: House) -> None:
    found = routes(steered)
    assert len(found) > 50
    for method, rule in found:
        asked: list[tuple[str, Any]] = [(filled(rule, "x") + query, None) for query in QUERIES]
        if "<" in rule:
            asked += [(filled(rule, name), None) for name in NAMES]
        if method in ("POST", "PUT", "PATCH"):
            asked += [(filled(rule, "x"), body) for body in BODIES]
        for path, body in asked:
            response = steered.api.call(method, path, body)
            what = (method, path[:200], str(body)[:200], response.text[:500])
            assert response.status_code < 500, what
            if response.status_code >= 400:
                envelope = response.json()
                assert envelope.keys() == {"success", "data", "error"}, what
                assert (envelope["success"], envelope["data"]) == (False, None), what

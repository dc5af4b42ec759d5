"""Any value at any place of any request: a refusal in words and in its form, or an answer; never a failure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.contract.conftest import MODEL
from tests.hostile import SENT, spoilt
from tests.server.management.conftest import House
from tests.server.management.documents import circuit, cluster

Body = dict[str, Any]

LONGEST = 10_000
"""Characters of a refusal: it repeats what was sent only as far as a person reads it."""

PLACE = {"sae_id": "a", "layer": 1}
CHOICE = {"enabled": True, "features": [1], "history_size": 5, "top_k": 3, **PLACE}
PROFILE = {"name": "calm", "description": "d", "steering": {"1": 1.0}, "model_id": "m", **PLACE}
SETS = [{"sae_id": "a", "layer": 1}, {"sae_id": "b", "layer": 2}]
DIAL = {"intensity": 1.0, "reapply": True, "acknowledge_unvalidated": True}
REPOSITORY = {"repository_id": "a/b", "revision": "main", "hf_token": "x"}
ITEM = {"kind": "manual", "features": 1, "strengths": {"1": 1.0}}

BODIES: dict[str, tuple[Body, ...]] = {
    "POST /api/models": (
        {"source": "local", "local_path": "/nowhere", "copy": False, "trust_remote_code": False, "custom_name": "x"},
        {"source": "huggingface", "repo_id": "a/b", "gguf_files": ["a.gguf"], "gguf_label": "x", "hf_token": "x"},
    ),
    "PATCH /api/models/{model_id}": ({"name": MODEL},),
    "POST /api/models/{model_id}/load": ({"gpu": 0},),
    "POST /api/models/{model_id}/locate": ({"local_path": "/nowhere"},),
    "POST /api/models/preview": ({"repo_id": "a/b", "revision": "main", "hf_token": "x"},),
    "POST /api/saes/preview": (REPOSITORY,),
    "POST /api/saes/download": ({**REPOSITORY, "file_path": "x"},),
    "POST /api/saes/{sae_id}/attach": ({"layer": 1},),
    "POST /api/saes/attach-set": ({"saes": SETS}, {"name": "x"}),
    "POST /api/saes/attach-sets": ({"name": "x", "saes": SETS},),
    "POST /api/saes/contrast": (
        {
            "a": ["x"],
            "b": ["y"],
            "limit": 3,
            "max_density": 1.0,
            "as_cluster": {"name": "n", "side": "a", "features": [1], "count": 1, "total": 1.0, "save": True},
            **PLACE,
        },
    ),
    "POST /api/saes/import": ({"path": "/nowhere", "sae_id": "q", "layer": 1, "copy": False},),
    "POST /api/saes/monitoring": (CHOICE,),
    "POST /api/saes/read": (
        {"text": "sea", "top_k": 3, "features": [1], **PLACE},
        {"messages": [{"role": "user", "content": "x"}]},
        {"token_ids": [1, 2]},
    ),
    "POST /api/saes/steering": ({"feature_idx": 1, "value": 1.0, **PLACE},),
    "POST /api/saes/steering/batch": ({"steering": {"1": 1.0}, **PLACE},),
    "POST /api/saes/steering/enable": (PLACE,),
    "POST /api/saes/steering/disable": (PLACE,),
    "POST /api/profiles": (PROFILE,),
    "PUT /api/profiles/{profile_id}": (PROFILE,),
    "PATCH /api/profiles/{profile_id}": (PROFILE,),
    "POST /api/profiles/{profile_id}/activate": ({"apply_steering": True},),
    "PUT /api/profiles/{profile_id}/intensity": ({"intensity": 1.0, "reapply": True},),
    "POST /api/profiles/save-current": ({"name": "now", "description": "d", **PLACE},),
    "PUT /api/clusters/{cluster_id}/intensity": ({"intensity": 1.0, "reapply": True},),
    "PUT /api/clusters/active/intensity": ({"intensity": 1.0, "reapply": True},),
    "PUT /api/circuits/{circuit_id}/intensity": (DIAL,),
    "PUT /api/circuits/active/intensity": (DIAL,),
    "POST /api/monitoring/configure": (CHOICE,),
    "POST /api/monitoring/enable": ({"enabled": True},),
    "POST /api/monitoring/statistics/top": ({"k": 3, "metric": "mean", **PLACE},),
    "POST /api/sweeps": (
        {
            "base": {"kind": "profile", "id": "nobody"},
            "prompts": ["sea"],
            "intensities": [1.0],
            "plain": True,
            "max_tokens": 1,
            "temperature": 0.0,
            "seed": 1,
            "topic": ["x"],
            "system": "x",
        },
    ),
    "POST /api/experiments": (
        {
            "title": "t",
            "model": "m",
            "prompt": "p",
            "plain": "a",
            "steered": "b",
            "settings": {"temperature": 1.0, "seed": 1, "earlier_turns": [{"role": "user", "content": "x"}]},
            "steering": {"text": "x", "items": [ITEM], "path": [{"token": 1, "items": [ITEM]}]},
            "evidence": {"rung": 1, "language": "associated"},
            "versions": {"a": "1"},
            "plain_details": {"a": [1]},
        },
    ),
    "PATCH /api/experiments/{experiment_id}": ({"title": "t"},),
    "POST /api/hub/pairs/{key}/fetch": ({"hf_token": "x"},),
}
"""A body for every route under ``/api`` that takes one; between them they have every field."""

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"]}
COMMON: Body = {
    "stream": False,
    "stream_options": {"include_usage": True},
    "temperature": 1.0,
    "top_p": 0.5,
    "top_k": 3,
    "min_p": 0.1,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "repetition_penalty": 1.1,
    "repeat_penalty": 1.1,
    "n": 1,
    "best_of": 1,
    "max_completion_tokens": 1,
    "min_tokens": 0,
    "ignore_eos": False,
    "stop": ["x"],
    "seed": 1,
    "logit_bias": {"5": 1.0},
    "return_tokens_as_token_ids": True,
    "profile": "nobody",
    "steering": {"features": [{"index": 1, "strength": 1.0}]},
    "steering_intensity": 1.0,
    "return_sae_activations": {"top_k": 1},
    "allowed_token_ids": [1, 2],
}
CHAT: Body = {"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "sea"}]}
OPENAI: dict[str, tuple[Body, Body]] = {
    "/v1/chat/completions": (
        CHAT,
        {
            **COMMON,
            "logprobs": True,
            "top_logprobs": 1,
            "chat_template_kwargs": {"a": {"b": 1}},
            "enable_thinking": True,
            "extra_messages": [[{"role": "user", "content": [{"type": "text", "text": "x"}]}]],
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
            "metadata": {"task": "x"},
            "tools": [],
        },
    ),
    "/v1/completions": (
        {"model": MODEL, "prompt": "sea", "max_tokens": 1},
        {**COMMON, "logprobs": 1, "add_special_tokens": True},
    ),
    "/v1/embeddings": (
        {"model": MODEL, "input": ["sea", "harbour"]},
        {"encoding_format": "float", "pooling": "mean", "normalize": True, "dimensions": 3},
    ),
    "/v1/tokenize": (
        {"messages": [{"role": "user", "content": "sea"}]},
        {"tools": [{"type": "function"}], "chat_template_kwargs": {"a": 1}, "with_pieces": True, "model": MODEL},
    ),
    "/v1/detokenize": ({"tokens": [5, 6]}, {"model": MODEL}),
    "/v1/models/load": ({"id": MODEL}, {"runtime": "transformers"}),
}
"""A body, and what may be sent besides: each is tried for itself."""

TEXTS = ("%00", "%FF%ED%A0%80", "%0D%0A", "%2e%2e%2f", "-1", "1e400", "9" * 5000, "%E2%98%83", "")
HEADERS = (b"\xff", b"a" * 3000, b"-1", b"1e400", b"\"'", b"application/json; charset=utf-16", b"gzip", b"0")


def check(response: httpx.Response, what: object) -> None:
    """Not the server's failure, and in the form of its surface where it is refused."""
    # What needs the hub, and a model that is just being loaded, has statuses of its own; nothing else may.
    path = response.url.path
    assert response.status_code < 500 or (response.status_code == 501 and path.startswith("/slots/")), (
        what,
        response.text[:500],
    )
    if response.status_code < 400:
        return
    assert len(response.text) <= LONGEST, (what, len(response.text))
    if not response.text:  # a HEAD
        return
    answer = response.json()
    if path.startswith(("/v1", "/props", "/slots")):
        assert answer.keys() == {"error"}, what
        error = answer["error"]
        assert error.keys() == {"message", "type", "param", "code"}, what
        kind = "invalid_request_error" if response.status_code < 500 else "server_error"
        assert error["type"] == kind, (what, error)
    else:
        assert (answer["success"], answer["data"]) == (False, None), what
        error = answer["error"]
        assert error.keys() == {"code", "message", "details"}, what
    assert error["message"] and error["code"], what


@pytest.fixture
def ids(steered: House) -> dict[str, Any]:
    """Something behind every name in a path."""
    steered.engine.clusters.import_document(json.dumps(cluster()).encode())
    steered.engine.circuits.import_document(json.dumps(circuit()).encode())
    profile = steered.engine.profiles.create("sea", steering={3: 2.0}, sae_id="a", layer=1)
    return {
        "model_id": steered.api.ok("GET", "/api/models")[0]["id"],
        "sae_id": "a",
        "profile_id": profile.record.id,
        "cluster_id": steered.engine.clusters.list().clusters[0].record.id,
        "circuit_id": steered.engine.circuits.list().circuits[0].record.id,
    }


def operations(house: House) -> Iterator[tuple[str, str, Body]]:
    document = house.api.call("GET", "/openapi.json").json()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def filled(path: str, ids: dict[str, Any], other: str = "x") -> str:
    return re.sub(r"\{(\w+)\}", lambda name: str(ids.get(name[1], other)), path)


def test_every_body_under_api(steered: House, ids: dict[str, Any]) -> None:
    of_json = {
        f"{method} {path}"
        for method, path, operation in operations(steered)
        if "$ref" in operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    }
    assert {each for each in of_json if "/api/" in each} <= BODIES.keys() <= of_json
    for name, bodies in BODIES.items():
        method, _, path = name.partition(" ")
        for body in bodies:
            for what, raw in spoilt(body, values=SENT):
                check(steered.api.call(method, filled(path, ids), raw), (name, what))
    assert steered.api.call("POST", "/v1/chat/completions", CHAT).status_code == 200


@pytest.mark.parametrize("path", OPENAI)
def test_every_body_under_v1(steered: House, path: str) -> None:
    sound, more = OPENAI[path]
    for what, raw in spoilt(sound, values=SENT):
        check(steered.api.call("POST", path, raw), what)
    for name, value in more.items():
        for what, raw in spoilt({**sound, name: value}, (name,), SENT):
            check(steered.api.call("POST", path, raw), what)
    assert steered.api.call("POST", path, sound).status_code == 200


def test_every_parameter_and_every_part_of_a_path(steered: House, ids: dict[str, Any]) -> None:
    for method, path, operation in operations(steered):
        queries = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
        for text in TEXTS:
            asked = [f"{filled(path, ids)}?{name}={text}" for name in queries]
            asked += [f"{filled(path, ids)}?{text}={text}&{text}=2"]
            if "{" in path:
                asked.append(filled(path, {}, text or "%20"))
            for url in asked:
                check(steered.api.call(method, url), (method, url[:200]))


def test_every_method_and_header(steered: House, ids: dict[str, Any]) -> None:
    paths = {filled(path, ids) for _, path, _ in operations(steered)} - {"/metrics"}
    names = ("Content-Type", "Content-Encoding", "Accept", "Cookie", "Range", "Expect", "X-miLLM-Strict", "Upgrade")
    for path in sorted(paths):
        for method in ("HEAD", "OPTIONS", "TRACE", "PROPFIND", "PUT", "PATCH", "POST"):
            check(steered.api.call(method, path, b"--x\r\n\r\n\r\n--x--"), (method, path))
    for path in ("/v1/chat/completions", "/api/saes/steering"):
        for name in names:
            for value in HEADERS:
                headers = [(name.encode(), value), (name.encode(), value)]
                check(steered.api.call("POST", path, b"{}", headers=headers), (path, name, value))
        for raw in (json.dumps(CHAT).encode("utf-16"), b"\xff" * 9, b"a=b&c=d", b"\x1f\x8b\x08\x00", b"\xef\xbb\xbf{}"):
            check(steered.api.call("POST", path, raw), (path, raw))

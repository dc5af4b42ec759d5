"""Malformed cluster documents and bundles: name, document or bytes, code, pointer, part of the message."""

from __future__ import annotations

import math
from typing import Any

from tests.engine.documents.samples import circuit, cluster

NAN = float("nan")

Case = tuple[str, object, str, str, str]


def members(count: int) -> list[dict[str, Any]]:
    return [{"feature_idx": index, "strength": 1.0} for index in range(count)]


def member(**changes: Any) -> list[dict[str, Any]]:
    return [{"feature_idx": 1, "strength": 2.0, **changes}]


CLUSTER_CASES: list[Case] = [
    # name, document or bytes, code, pointer, part of the message
    ("no JSON", b"{", "validation_error", "", "not JSON"),
    ("empty", b"", "validation_error", "", "not JSON"),
    ("no object", [], "validation_error", "", "must be a JSON object"),
    ("no UTF-8", b'{"kind": "\xff"}', "validation_error", "", "not UTF-8"),
    ("UTF-16", '{"kind": "x"}'.encode("utf-16"), "validation_error", "", "not UTF-8"),
    ("nesting bomb of lists", b"[" * 100_000, "validation_error", "", "100,000 levels"),
    ("nesting bomb of objects", b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "validation_error", "", "50,000 levels"),
    (
        "33 levels in an unknown key",
        b'{"kind":"mistudio.cluster-definition","x":' + b"[" * 32 + b"]" * 32 + b"}",
        "validation_error",
        "",
        "33 levels",
    ),
    ("2 MB", b'{"name": "' + b"a" * 2_000_000 + b'"}', "payload_too_large", "", "2,000,012 bytes"),
    ("one byte too long", b'"' + b" " * 1_048_575 + b'"', "payload_too_large", "", "1,048,577 bytes"),
    (
        "long once numbers are spelt out",
        b'{"kind":"mistudio.cluster-definition","x":[' + b",".join([b"1e15"] * 100_000) + b"]}",
        "payload_too_large",
        "",
        "1,048,576",
    ),
    ("key named twice", b'{"x": {"a": 1, "a": 2}}', "validation_error", "/x/a", "named twice"),
    ("NaN strength", cluster(members=member(strength=NAN)), "validation_error", "/members/0/strength", "not NaN"),
    (
        "infinite strength",
        cluster(members=member(strength=math.inf)),
        "validation_error",
        "/members/0/strength",
        "not Infinity",
    ),
    ("number no double holds", b'{"x": [0, 1e999]}', "validation_error", "/x/1", "finite number"),
    ("whole number no double holds", b'{"x": 1' + b"0" * 310 + b"}", "validation_error", "/x", "finite number"),
    ("5,000 digits", b'{"x": ' + b"1" * 5000 + b"}", "validation_error", "/x", "5000 digits"),
    ("half a character", b'{"x": "\\ud800"}', "validation_error", "/x", "Unicode"),
    ("half a character in a key", b'{"x": {"\\ud800": 1}}', "validation_error", "/x", "Unicode"),
    ("no kind", {"name": "x"}, "unknown_kind", "/kind", "names no kind"),
    ("wrong kind", cluster(kind="mistudio.thing"), "unknown_kind", "/kind", "mistudio.thing"),
    ("versioned kind", cluster(kind="mistudio.cluster-definition/v1"), "unknown_kind", "/kind", "definition/v1"),
    ("kind of no text", cluster(kind=["x"]), "unknown_kind", "/kind", "kind"),
    ("a circuit", circuit(), "unknown_kind", "/kind", "circuit document"),
    ("another schema", cluster(schema_version="2"), "validation_error", "/schema_version", "must be '1'"),
    (
        "no name",
        {key: value for key, value in cluster().items() if key != "name"},
        "validation_error",
        "/name",
        "required",
    ),
    ("empty name", cluster(name=""), "validation_error", "/name", "at least 1"),
    ("long name", cluster(name="a" * 121), "validation_error", "/name", "at most 120"),
    ("name of no text", cluster(name=7), "validation_error", "/name", "must be text"),
    ("long narrative", cluster(narrative="a" * 10_001), "validation_error", "/narrative", "at most 10000"),
    ("no members", cluster(members=[]), "validation_error", "/members", "at least 1"),
    ("21 members", cluster(members=members(21)), "validation_error", "/members", "at most 20"),
    ("members no list", cluster(members={"0": {}}), "validation_error", "/members", "must be a list"),
    ("member no object", cluster(members=[3]), "validation_error", "/members/0", "must be an object"),
    (
        "duplicate features",
        cluster(members=[*members(3), *member()]),
        "validation_error",
        "/members/3/feature_idx",
        "feature 1 a second time",
    ),
    ("no index", cluster(members=[{"strength": 1}]), "validation_error", "/members/0/feature_idx", "required"),
    (
        "negative index",
        cluster(members=member(feature_idx=-1)),
        "validation_error",
        "/members/0/feature_idx",
        "at least 0",
    ),
    (
        "boolean index",
        cluster(members=member(feature_idx=True)),
        "validation_error",
        "/members/0/feature_idx",
        "whole number",
    ),
    (
        "broken index",
        cluster(members=member(feature_idx=1.5)),
        "validation_error",
        "/members/0/feature_idx",
        "whole number",
    ),
    (
        "index as text",
        cluster(members=member(feature_idx="1")),
        "validation_error",
        "/members/0/feature_idx",
        "whole number",
    ),
    ("no strength", cluster(members=[{"feature_idx": 1}]), "validation_error", "/members/0/strength", "required"),
    ("strong", cluster(members=member(strength=300.5)), "validation_error", "/members/0/strength", "at most 300"),
    (
        "strong downwards",
        cluster(members=member(strength=-301)),
        "validation_error",
        "/members/0/strength",
        "at least -300",
    ),
    (
        "boolean strength",
        cluster(members=member(strength=True)),
        "validation_error",
        "/members/0/strength",
        "finite number",
    ),
    (
        "strength as text",
        cluster(members=member(strength="2")),
        "validation_error",
        "/members/0/strength",
        "finite number",
    ),
    ("sign 0", cluster(members=member(sign=0)), "validation_error", "/members/0/sign", "1 or -1"),
    ("boolean sign", cluster(members=member(sign=True)), "validation_error", "/members/0/sign", "1 or -1"),
    ("pinned 1", cluster(members=member(pinned=1)), "validation_error", "/members/0/pinned", "true or false"),
    ("similarity", cluster(members=member(similarity=1.1)), "validation_error", "/members/0/similarity", "at most 1"),
    (
        "interpretability",
        cluster(members=member(meta={"interpretability": -0.1})),
        "validation_error",
        "/members/0/meta/interpretability",
        "at least 0",
    ),
    (
        "eleven tokens",
        cluster(members=member(meta={"top_tokens": ["a"] * 11})),
        "validation_error",
        "/members/0/meta/top_tokens",
        "at most 10",
    ),
    (
        "script link",
        cluster(members=member(meta={"neuronpedia": "javascript:alert(1)"})),
        "validation_error",
        "/members/0/meta/neuronpedia",
        "http",
    ),
    (
        "long example",
        cluster(members=member(meta={"example": {"text": "a" * 501}})),
        "validation_error",
        "/members/0/meta/example/text",
        "at most 500",
    ),
    ("path", cluster(sae={"source_hint": "/etc/passwd"}), "validation_error", "/sae/source_hint", "not a path"),
    ("home path", cluster(sae={"source_hint": "~/x"}), "validation_error", "/sae/source_hint", "not a path"),
    ("upward path", cluster(sae={"source_hint": "../x"}), "validation_error", "/sae/source_hint", "not a path"),
    ("drive path", cluster(sae={"source_hint": "C:\\x"}), "validation_error", "/sae/source_hint", "not a path"),
    ("share path", cluster(sae={"source_hint": "\\\\host\\x"}), "validation_error", "/sae/source_hint", "not a path"),
    ("boolean layer", cluster(sae={"layer": False}), "validation_error", "/sae/layer", "whole number"),
    ("intensity", cluster(budget={"intensity": 2.5}), "validation_error", "/budget/intensity", "at most 2"),
    ("constants", cluster(budget={"constants": {"a/b": "x"}}), "validation_error", "/budget/constants/a~1b", "number"),
    ("long note", cluster(provenance={"source_note": "a" * 501}), "validation_error", "/provenance/source_note", "500"),
    (
        "empty bundle",
        {"kind": "mistudio.cluster-bundle", "definitions": []},
        "validation_error",
        "/definitions",
        "at least 1",
    ),
    ("no definitions", {"kind": "mistudio.cluster-bundle"}, "validation_error", "/definitions", "required"),
    (
        "51 definitions",
        {"kind": "mistudio.cluster-bundle", "definitions": [{}] * 51},
        "validation_error",
        "/definitions",
        "at most 50",
    ),
]

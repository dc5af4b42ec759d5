"""Which schemas are accepted, and that what is accepted is enforced, keyword by keyword."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from engine.errors import InvalidParameter
from engine.generation.constraints.grammar import Grammar, Vocabulary
from engine.generation.constraints.numbers import as_told
from engine.generation.constraints.validation import DocumentCheck
from engine.generation.errors import ConstrainedOutputInvalid, ResponseFormatUnsupported
from engine.generation.response_format import ResponseFormat
from engine.models.backends.tokenizer import CheckpointTokenizer
from tests.engine.generation import made_tokenizers
from tests.tiny import build_tokenizer


def refusal_of(schema: Any) -> ResponseFormatUnsupported:
    with pytest.raises(ResponseFormatUnsupported) as refusal:
        ResponseFormat(schema, "n")
    assert refusal.value.param == "response_format"
    return refusal.value


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels - 1):
        schema = {"type": "array", "items": schema}
    return schema


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keyword",
    [
        "multipleOf",
        "not",
        "uniqueItems",
        "allOf",
        "if",
        "then",
        "else",
        "patternProperties",
        "dependentRequired",
        "$dynamicRef",
        "contains",
        "$id",
        "propertyNames",
        "minProperties",
        "unevaluatedProperties",
        "x-guidance",
        "nullable",
    ],
)
def test_a_keyword_that_is_not_on_the_list(keyword: str) -> None:
    # A155: the keyword and its pointer
    refusal = refusal_of({"type": "object", "properties": {"x": {"type": "integer", keyword: 2}}})
    assert f"{keyword} at /properties/x/{keyword}" in refusal.message
    assert refusal.details["keywords"] == [{"keyword": keyword, "pointer": f"/properties/x/{keyword}"}]


def test_pointers_are_escaped_and_lead_through_every_keyword() -> None:
    bad = {"not": {}}
    refusal = refusal_of(
        {
            "properties": {"a/b~c": bad},
            "additionalProperties": bad,
            "items": bad,
            "anyOf": [{}, bad],
            "$defs": {"D": bad},
        }
    )
    assert [each["pointer"] for each in refusal.details["keywords"]] == [
        "/properties/a~1b~0c/not",
        "/additionalProperties/not",
        "/items/not",
        "/anyOf/1/not",
        "/$defs/D/not",
    ]


def test_at_most_20_are_listed() -> None:
    refusal = refusal_of({"properties": {f"p{i}": {"multipleOf": 2} for i in range(23)}})
    assert len(refusal.details["keywords"]) == 20
    assert refusal.details["keywords_total"] == 23
    assert "and 3 more" in refusal.message
    assert "p20" not in refusal.message


@pytest.mark.parametrize(
    "reference",
    ["https://example.com/a.json", "#", "#/properties/a", "other.json#/$defs/A", "#A", "#/$defs/A%41", 7],
)
def test_references_elsewhere(reference: Any) -> None:
    # A157
    refusal = refusal_of({"$defs": {"A": {}}, "properties": {"a": {"$ref": reference}}})
    assert refusal.details["keywords"] == [{"keyword": "$ref", "pointer": "/properties/a/$ref"}]


def test_references_into_definitions() -> None:
    # A157
    ResponseFormat({"$defs": {"A": {"type": "integer"}}, "$ref": "#/$defs/A"}, "n")
    ResponseFormat({"definitions": {"A": {"type": "integer"}}, "$ref": "#/definitions/A"}, "n")
    assert "no schema" in refusal_of({"$ref": "#/$defs/A"}).message
    assert "no schema" in refusal_of({"$defs": {"A": {"default": {"not": {}}}}, "$ref": "#/$defs/A/default"}).message


@pytest.mark.parametrize(
    "definitions",
    [
        {"a": {"$ref": "#/$defs/a"}},
        {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/a"}]}},
    ],
)
def test_circles_that_never_reach_a_value(definitions: dict[str, Any]) -> None:
    assert "refers back to itself" in refusal_of({"$defs": definitions, "$ref": "#/$defs/a"}).message


ENDLESS = {"type": "object", "properties": {"in": {"$ref": "#/$defs/E"}}, "required": ["in"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"E": ENDLESS}, "$ref": "#/$defs/E"},
        {"$defs": {"E": ENDLESS}, "type": "array", "items": {"$ref": "#/$defs/E"}, "minItems": 1},
        {"$defs": {"E": ENDLESS}, "type": "array", "prefixItems": [True, {"$ref": "#/$defs/E"}], "minItems": 2},
        {"$defs": {"E": ENDLESS}, "anyOf": [{"$ref": "#/$defs/E"}, False]},
        {"$defs": {"E": ENDLESS}, "$ref": "#/$defs/E", "minProperties": 0},
        {"$defs": {"E": {"type": "array", "items": {"$ref": "#/$defs/E"}, "minItems": 1}}, "$ref": "#/$defs/E"},
        {
            "$defs": {"E": {**ENDLESS, "properties": {}, "additionalProperties": {"$ref": "#/$defs/E"}}},
            "$ref": "#/$defs/E",
        },
        {
            "$defs": {"E": {**ENDLESS, "properties": {"in": {"$ref": "#/$defs/F"}}}, "F": {"anyOf": [ENDLESS]}},
            "$ref": "#/$defs/F",
        },
        {"type": "object", "properties": {}, "required": ["a"], "additionalProperties": False},
        {"type": ["object", "array"], "properties": {"a": False}, "required": ["a"], "items": False, "minItems": 1},
    ],
)
def test_what_no_document_of_finite_length_fits(schema: Any) -> None:
    assert "finite length" in refusal_of(schema).message


@pytest.mark.parametrize(
    "alternatives",
    [
        [{"type": "integer"}, {"type": "number"}],
        [
            {"type": "object", "properties": {"k": {"const": "a"}}},
            {"type": "object", "properties": {"k": {"const": "b"}}},
        ],
        [{"properties": {"k": {"const": n}}, "required": ["k"]} for n in "ab"],  # text fits both
        [{"type": "object", "properties": {"k": {"enum": v}}, "required": ["k"]} for v in (["a", "b"], ["b", "c"])],
        [{"const": 1}, {"const": 1.0}],
        [{"type": "integer"}] * 257,
        [{"$ref": "#/$defs/C"}, {"type": "string"}],
    ],
)
def test_alternatives_that_nothing_tells_apart(alternatives: list[Any]) -> None:
    schema = {
        "$defs": {"C": {"anyOf": [{"type": "integer"}, {"type": ["string"]}]}},
        "properties": {"a": {"oneOf": alternatives}},
    }
    refusal = refusal_of(schema)
    assert "'/properties/a/oneOf'" in refusal.message
    assert "anyOf" in (refusal.remedy or "")


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 1099511627776123457, 2**63 - 1, 10**400])
def test_whole_numbers_that_no_double_holds(number: int) -> None:
    for schema in ({"const": number}, {"enum": [1, {"a": [number]}]}):
        refusal = refusal_of({"properties": {"a": schema}})
        assert str(number)[:50] in refusal.message
        assert "as a string" in (refusal.remedy or "")


def test_bounds_that_leave_nothing() -> None:
    assert "too far out" in refusal_of({"type": "integer", "minimum": 2**63}).message
    assert "too far out" in refusal_of({"type": "integer", "exclusiveMaximum": -(2**64)}).message


def test_formats_that_are_not_known() -> None:
    refusal = refusal_of({"type": "object", "properties": {"a": {"type": "string", "format": "uri-template"}}})
    assert refusal.details["keywords"] == [{"keyword": "format 'uri-template'", "pointer": "/properties/a/format"}]
    assert "date-time" in (refusal.remedy or "")


def test_words_that_constrain_nothing_make_no_other_grammar() -> None:
    plain = {"type": "object", "properties": {"title": {"type": "integer"}}}
    wordy = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://example.com/a.json",
        "$comment": "c",
        "title": "T",
        "x-order": 1,
        "type": "object",
        "properties": {
            "title": {
                "type": "integer",
                "deprecated": True,
                "readOnly": False,
                "writeOnly": True,
                "example": 3,
                "uniqueItems": False,
            }
        },
        "propertyNames": {"type": "string"},
        "minProperties": 0,
        "patternProperties": {},
    }
    assert ResponseFormat(wordy, "n").text == ResponseFormat(plain, "n").text


def test_tuples_of_both_drafts_at_once() -> None:
    refusal = refusal_of({"properties": {"a": {"type": "array", "items": [{}], "prefixItems": [{}]}}})
    assert refusal.details["keywords"] == [{"keyword": "items (a list)", "pointer": "/properties/a/items"}]


def test_tuples_of_older_drafts_are_enforced_as_those_of_today() -> None:
    integer, text = {"type": "integer"}, {"type": "string"}
    old = {
        "$defs": {"A": {"type": "array", "items": [integer], "additionalItems": text}},
        "type": "object",
        "properties": {
            "pair": {"type": "array", "items": [integer, text], "minItems": 2, "maxItems": 2},
            "any": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "array", "items": [text], "additionalItems": False}]},
        },
    }
    assert ResponseFormat(old, "n").effective_schema == {
        "$defs": {"A": {"type": "array", "prefixItems": [integer], "items": text}},
        "type": "object",
        "properties": {
            "pair": {"type": "array", "prefixItems": [integer, text], "minItems": 2, "maxItems": 2},
            "any": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "array", "prefixItems": [text], "items": False}]},
        },
    }


def test_a_property_or_a_value_named_items_is_no_tuple() -> None:
    named = {"properties": {"items": {"const": {"items": [1]}}}, "required": ["items"], "additionalProperties": False}
    assert ResponseFormat(named, "n").effective_schema == named


def test_limits() -> None:
    # A158: 257 properties, 65,537 bytes, depth 33
    ResponseFormat({"properties": {f"p{i}": {} for i in range(256)}}, "n")
    assert "257 properties" in refusal_of({"properties": {f"p{i}": {} for i in range(257)}}).message
    ResponseFormat({"title": "x" * (65_536 - len('{"title":""}'))}, "n")
    assert "65537 bytes" in refusal_of({"title": "x" * (65_537 - len('{"title":""}'))}).message
    ResponseFormat(nested(32), "n")
    assert "more than 32 deep" in refusal_of(nested(33)).message
    value: Any = 1
    for _ in range(32):
        value = [value]
    ResponseFormat({"const": value}, "n")
    assert "more than 32 deep" in refusal_of({"const": [value]}).message
    for _ in range(100_000):
        value = [value]
    assert "more than 32 deep" in refusal_of({"default": value}).message


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "strng"}, "/type"),
        ({"required": "a"}, "/required"),
        ({"minimum": "3"}, "/minimum"),
        ({"properties": [1]}, "/properties"),
        ({"items": 3}, "/items"),
        ({"anyOf": {}}, "/anyOf"),
        ({"title": "\ud800"}, "surrogate"),
        ({"minimum": float("nan")}, "not JSON"),
        (False, "false"),
    ],
)
def test_schemas_that_are_none(schema: Any, word: str) -> None:
    assert word in refusal_of(schema).message


@pytest.mark.parametrize("name", ["bad name", "x" * 65, "", "é", None, "a\n"])
def test_names(name: Any) -> None:
    # A164
    with pytest.raises(InvalidParameter) as refusal:
        ResponseFormat({}, name)
    assert refusal.value.param == "response_format.json_schema.name"


def test_the_header() -> None:
    # A154
    assert ResponseFormat().header == "json_object"
    assert ResponseFormat({}, "judge_v1-x").header == 'json_schema;name="judge_v1-x"'


# --- what is accepted is enforced -------------------------------------------------------------------------------------

ENFORCED: list[tuple[Any, list[str], list[str]]] = [
    (True, ["1", '{"a":[1]}', "null"], ["1 ", ""]),
    ({"type": "object"}, ["{}", '{"a":[1,{"b":null}],"c":"x"}'], ["[]", '{"a": 1}', "{ }", "1"]),
    ({"type": "array"}, ["[]", '[1,"a"]'], ["{}", "[1, 2]"]),
    ({"type": "string"}, ['""', '"é東🙂\\n"'], ["1", '"a']),
    ({"type": "number"}, ["1.5", "-2", "1e5"], ['"1"', "01"]),
    ({"type": "integer"}, ["-7", "0"], ["1.5", "true"]),
    ({"type": "boolean"}, ["true"], ["1", "null"]),
    ({"type": "null"}, ["null"], ["0"]),
    ({"type": ["string", "null"]}, ['"x"', "null"], ["1"]),
    ({"type": "object", "required": ["a"]}, ['{"a":1}', '{"a":1,"b":2}'], ["{}", '{"b":1}']),
    (
        {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False},
        ["{}", '{"a":1}'],
        ['{"b":1}', '{"a":"x"}'],
    ),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, ['{"x":1}'], ['{"x":"a"}']),
    ({"type": "object", "properties": {"a": False}}, ["{}", '{"b":1}'], ['{"a":1}']),
    # A declared name has one spelling, and comes once.
    (
        {"type": "object", "properties": {"a": {"type": "integer"}}},
        ['{"a":1,"b":"x"}'],
        ['{"a":1,"a":"x"}', '{"a":1,"\\u0061":"x"}'],
    ),
    (
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
        ["[1]", "[1,2]"],
        ["[]", "[1,2,3]"],
    ),
    ({"type": "array", "items": False}, ["[]"], ["[1]"]),
    ({"enum": [1, "a", None, {"x": [1]}]}, ["1", '"a"', "null", '{"x":[1]}'], ["2", '"b"']),
    ({"type": "string", "enum": ["a", 1]}, ['"a"'], ["1"]),
    ({"const": {"b": 1}}, ['{"b":1}'], ["{}"]),
    ({"type": "integer", "minimum": -3, "maximum": 12}, ["-3", "12"], ["-4", "13"]),
    ({"type": "number", "minimum": 0.5, "maximum": 1.5}, ["0.5", "1.25"], ["0.4", "1.6", "2"]),
    ({"minimum": 5}, ["5", '"a"'], ["4"]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"東é🙂"'], ['"a"', '"abcd"']),
    ({"type": "string", "pattern": "^a+$"}, ['"aa"'], ['"ab"', '""']),
    ({"type": "string", "pattern": "b"}, ['"abc"'], ['"aa"']),
    ({"type": "string", "pattern": "^\\p{L}\\/\\d$"}, ['"é/7"'], ['"7/7"', '"é/a"']),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, ["1", '"a"'], ["null"]),
    ({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}, ["5", "1"], ["3"]),
    ({"$defs": {"A": {"type": "integer"}}, "$ref": "#/$defs/A", "minimum": 5}, ["5"], ["4"]),
    (
        {
            "$defs": {
                "n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "additionalProperties": False}
            },
            "$ref": "#/$defs/n",
        },
        ["{}", '{"n":{"n":{}}}'],
        ['{"n":1}', '{"m":{}}'],
    ),
    ({"title": "t", "description": "d", "default": 1, "examples": [2], "type": "integer"}, ["3"], ['"t"']),
    ({"enum": ["\u0001"]}, ['"\\u0001"'], ['"\u0001"']),
    ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3}, ["1", "2"], ["0", "3"]),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, ["0.5", "0.001"], ["0", "1", "0.0", "1.0"]),
    (
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False, "minItems": 2},
        ['[1,"a"]'],
        ["[1]", '["a",1]', '[1,"a",2]'],
    ),
    (
        {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
        ["[]", '[1,"a","b"]'],
        ['["a"]', "[1,2]"],
    ),
    (
        {
            "definitions": {"A": {"type": "integer"}},
            "type": "array",
            "items": {"$ref": "#/definitions/A"},
            "minItems": 1,
        },
        ["[1]"],
        ['["a"]'],
    ),
    ({"oneOf": [{"type": "integer"}, {"type": "array", "items": {"type": "null"}}]}, ["1", "[null]"], ['"a"', "[1]"]),
    (
        {
            "$defs": {
                "cat": {
                    "type": "object",
                    "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}},
                    "required": ["kind", "lives"],
                    "additionalProperties": False,
                },
                "dog": {
                    "type": "object",
                    "properties": {"kind": {"$ref": "#/$defs/dogs"}, "good": {"type": "boolean"}},
                    "required": ["kind", "good"],
                    "additionalProperties": False,
                },
                "dogs": {"enum": ["dog", "puppy"]},
            },
            "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
            "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/cat", "dog": "#/$defs/dog"}},
        },
        ['{"kind":"cat","lives":9}', '{"kind":"puppy","good":true}'],
        ['{"kind":"cat","good":true}', '{"kind":"cow","lives":1}'],
    ),
    # Of both, a value fits one alternative of each; a reference into what is written anew still leads there.
    (
        {
            "anyOf": [{"minimum": 3}, {"maximum": 1}],
            "oneOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/$defs/x/oneOf/1"}, "minItems": 1}],
            "$defs": {"x": {"oneOf": [{"type": "null"}, {"type": "boolean"}]}},
        },
        ["3", "[true]"],
        ["2", "[null]", "[]"],
    ),
    # Alternatives, optional properties and items that never end are not begun.
    ({"$defs": {"E": ENDLESS}, "anyOf": [{"$ref": "#/$defs/E"}, {"type": "integer"}]}, ["1"], ['{"in":1}', "{}"]),
    (
        {"$defs": {"E": ENDLESS}, "type": "object", "properties": {"a": {"$ref": "#/$defs/E"}, "b": {"type": "null"}}},
        ['{"b":null}'],
        ['{"a":{"in":{}}}'],
    ),
    ({"$defs": {"E": ENDLESS}, "type": "array", "items": {"$ref": "#/$defs/E"}}, ["[]"], ['[{"in":{}}]']),
    # Numbers at the edge of what a double holds, and fractions that are read a step aside where they are spelled short.
    ({"const": 2**53 + 2}, ["9007199254740994"], ["9007199254740992", "9007199254740993"]),
    ({"enum": [935.0499881140221, -3.16300156369155e-11]}, ["935.0499881140221"], ["935.049988114022"]),
    (
        {"type": "integer", "minimum": 2**53 + 1, "maximum": 2**53 + 3},
        ["9007199254740994"],
        ["9007199254740992", "9007199254740996"],
    ),
    ({"type": "integer", "format": "uint64", "minimum": 1}, ["1", "4294967296"], ["0", "-1", "1.5"]),
    ({"type": "integer", "format": "int8"}, ["-128", "127"], ["-129", "128"]),
    (
        {"type": "string", "format": "date"},
        ['"2024-02-29"', '"1999-12-31"', '"2000-02-29"'],
        ['"2023-02-29"', '"1900-02-29"', '"2024-04-31"', '"2024-1-1"'],
    ),
    (
        {"type": "string", "format": "time"},
        ['"23:59:59Z"', '"00:00:00.5+01:00"'],
        ['"24:00:00Z"', '"12:00Z"', '"12:00:00"'],
    ),
    (
        {"type": "string", "format": "date-time", "pattern": "Z$"},
        ['"2024-02-29T12:00:00Z"'],
        ['"2024-02-29T12:00:00+01:00"', '"2024-02-30T12:00:00Z"', '"2024-02-29"'],
    ),
    (
        {"type": "string", "format": "duration"},
        ['"P1Y2M3DT4H5M6S"', '"PT5M"', '"P2W"'],
        ['"P"', '"P1YT"', '"1Y"', '"P1W2D"'],
    ),
    ({"type": "string", "format": "email"}, ['"a.b+c@example.co.uk"'], ['"a"', '"a@"', '".a@b.c"', '"a@-b.c"']),
    ({"type": "string", "format": "hostname"}, ['"a-b.example"'], ['"-a"', '"a_b"', '""']),
    ({"type": "string", "format": "ipv4"}, ['"255.0.10.1"'], ['"256.0.0.1"', '"1.2.3"', '"01.2.3.4"']),
    (
        {"type": "string", "format": "ipv6"},
        ['"::"', '"::1"', '"fe80::1:2"', '"1:2:3:4:5:6:7:8"', '"1::8"', '"1:2:3:4:5:6:7::"', '"::ffff:1.2.3.4"'],
        ['"1:2"', '":::"', '"1:2:3:4:5:6:7:8:9"', '"g::"', '"1::2::3"'],
    ),
    (
        {"type": "string", "format": "uuid"},
        ['"123e4567-e89b-12d3-a456-426614174000"'],
        ['"123e4567e89b12d3a456426614174000"', '"g23e4567-e89b-12d3-a456-426614174000"'],
    ),
    (
        {"type": "string", "format": "uuid4"},
        ['"123e4567-e89b-42d3-a456-426614174000"'],
        ['"123e4567-e89b-12d3-a456-426614174000"'],
    ),
    (
        {"type": "string", "format": "uri"},
        ['"https://user@ex.com:8/a%20b?q=1#f"', '"urn:isbn:1"', '"http://[::1]/"'],
        ['"/a"', '"http://a b"', '"1a:b"', '"http://%zz"'],
    ),
    ({"type": "string", "format": "password", "maxLength": 2}, ['"ab"'], ['"abc"']),
]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(CheckpointTokenizer(build_tokenizer()))


def by_the_book(schema: Any) -> Draft202012Validator:
    """The validator of another hand, on the schema as it was asked for. Its patterns are Python's, which know less."""
    return Draft202012Validator({} if "p{L}" in repr(schema) else schema)


def accepts(grammar: Grammar, tokens: list[int]) -> bool:
    matcher = grammar.matcher()
    try:
        for token in tokens:
            matcher.take(token)
    except ConstrainedOutputInvalid:
        return False
    return bool(matcher.allowed()[grammar.eos_id // 8] >> grammar.eos_id % 8 & 1)


@pytest.mark.parametrize(("schema", "right", "wrong"), ENFORCED, ids=lambda each: json.dumps(each)[:60])
def test_every_accepted_keyword_is_enforced(
    vocabulary: Vocabulary, schema: Any, right: list[str], wrong: list[str]
) -> None:
    tokenizer = CheckpointTokenizer(build_tokenizer())
    asked = ResponseFormat(schema, "n")
    grammar, check = vocabulary.compile(asked.text), DocumentCheck(asked.effective_schema)
    as_written = by_the_book(schema)
    for document in right:
        assert accepts(grammar, tokenizer.encode(document, False)), document
        check.check(document)
        assert as_written.is_valid(json.loads(document))
    for document in wrong:
        assert not accepts(grammar, tokenizer.encode(document, False)), document


def written_at_random(grammar: Grammar, tokenizer: CheckpointTokenizer, draw: random.Random) -> str | None:
    """A document of tokens drawn evenly from those allowed; None where it does not end within 200."""
    matcher, written = grammar.matcher(), b""
    for _ in range(200):
        bits = np.unpackbits(np.frombuffer(matcher.allowed(), dtype=np.uint8), bitorder="little")
        ids = [int(i) for i in bits.nonzero()[0]]
        assert ids, "a document that can neither go on nor end"
        token = grammar.eos_id if grammar.eos_id in ids and draw.random() < 0.3 else draw.choice(ids)
        if token == grammar.eos_id:
            return written.decode()
        matcher.take(token)
        written += tokenizer.token_bytes(token)
    return None


@pytest.mark.parametrize("schema", [schema for schema, _, _ in ENFORCED], ids=lambda each: json.dumps(each)[:60])
def test_whatever_is_written_under_a_constraint_validates(vocabulary: Vocabulary, schema: Any) -> None:
    tokenizer, draw = CheckpointTokenizer(build_tokenizer()), random.Random(5)
    asked = ResponseFormat(schema, "n")
    grammar, check = vocabulary.compile(asked.text), DocumentCheck(asked.effective_schema)
    as_written = by_the_book(schema)
    documents = [written_at_random(grammar, tokenizer, draw) for _ in range(40)]
    for document in documents:
        if document is not None:
            check.check(document)
            assert as_written.is_valid(json.loads(document))
    assert any(documents)


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({"type": "object", "required": ["a"]}, "{}"),
        ({"type": "string", "pattern": "^a+$"}, '"ab"'),
        ({"type": "integer"}, "1.5"),
        ({"type": "integer"}, "1}"),
        ({}, "[" * 100_000),
        ({}, ""),
    ],
)
def test_a_finished_document_is_checked_again(schema: Any, document: str) -> None:
    with pytest.raises(ConstrainedOutputInvalid):
        DocumentCheck(schema).check(document)


def test_a_pattern_that_would_take_python_for_ever() -> None:
    with pytest.raises(ConstrainedOutputInvalid):
        DocumentCheck({"type": "string", "pattern": "^(a+)+$"}).check(json.dumps("a" * 5000 + "b"))


def test_alternatives_that_would_take_ages_to_check() -> None:
    steps = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(40)}
    schema = {"$defs": {**steps, "a40": {"type": "integer"}}, "$ref": "#/$defs/a0"}
    check = DocumentCheck(schema)
    check.check("1")
    with pytest.raises(ConstrainedOutputInvalid, match="steps"):
        check.check('"a"')
    check.check("1")  # the budget is each document's own


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum"),
        ({"type": "integer", "minimum": 2**53 + 1, "maximum": 2**53 + 1}, "minimum"),
    ],
)
def test_what_nothing_can_fit(vocabulary: Vocabulary, schema: Any, words: str) -> None:
    with pytest.raises(ResponseFormatUnsupported, match=words):
        vocabulary.compile(ResponseFormat(schema, "n").text)


def test_bounds_beyond_every_double_rule_out_nothing(vocabulary: Vocabulary) -> None:
    schema = {"type": "integer", "minimum": -(10**400), "maximum": 10**400}
    assert json.loads(as_told(schema, {})) == {"type": "integer", "minimum": 1024 - 2**63, "maximum": 2**63 - 1024}
    tokenizer = CheckpointTokenizer(build_tokenizer())
    grammar = vocabulary.compile(ResponseFormat(schema, "n").text)
    for number in ("-123456789", "0", "987654321"):
        assert accepts(grammar, tokenizer.encode(number, add_special_tokens=False))
    for schema in ({"type": "integer", "minimum": 10**400}, {"type": "integer", "maximum": -(10**400)}):
        with pytest.raises(ResponseFormatUnsupported):
            vocabulary.compile(ResponseFormat(schema, "n").text)


@pytest.mark.parametrize("pattern", ["^(?=a)b", "(a)\\1", "("])
def test_patterns_that_cannot_be_used(pattern: str) -> None:
    refusal = refusal_of({"properties": {"a": {"type": "string", "pattern": pattern}}})
    assert "pattern at '/properties/a/pattern'" in refusal.message


def test_fractions_of_any_length(vocabulary: Vocabulary) -> None:
    tokenizer, draw = CheckpointTokenizer(build_tokenizer()), random.Random(11)
    for _ in range(60):
        number = float(f"%.{draw.randint(13, 17)}g" % (draw.gauss(0, 1) * 10.0 ** draw.randint(-12, 13)))
        for schema in (
            {"enum": [[number]]},
            {"items": {"type": "number", "minimum": number, "maximum": number}, "type": "array", "minItems": 1},
        ):
            grammar = vocabulary.compile(ResponseFormat(schema, "n").text)
            document = written_at_random(grammar, tokenizer, draw)
            assert document is None or set(json.loads(document)) == {number}, (schema, document)


def test_other_kinds_of_tokenizer() -> None:
    tokenizer = made_tokenizers.sentencepiece()
    grammar = Vocabulary(tokenizer).compile(ResponseFormat({"type": "array", "items": {"type": "string"}}, "n").text)
    by_bytes = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size)}
    assert accepts(grammar, [by_bytes[bytes([byte])] for byte in '["é 東"]'.encode()])
    assert not accepts(grammar, [by_bytes[bytes([byte])] for byte in b"[1]"])


def test_a_tokenizer_without_an_end_token() -> None:
    inner = build_tokenizer()
    inner.eos_token = None
    with pytest.raises(ResponseFormatUnsupported, match="end token"):
        Vocabulary(CheckpointTokenizer(inner))
    assert Vocabulary(CheckpointTokenizer(inner, extra_eos=[3])).eos_id == 3
    assert inner.eos_token is None  # the model's own tokenizer stays as it is

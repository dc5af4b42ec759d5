"""What a tool's arguments are held to: all of a strict schema, and of any other what can be enforced."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import InvalidParameter
from engine.generation.errors import ToolSchemaUnsupported
from engine.generation.tools.json_wires import Hermes
from engine.generation.tools.raw_wires import Pythonic, QwenXml
from engine.generation.tools.schemas import ANY_OBJECT, NO_ARGUMENTS, enforced_arguments
from engine.generation.tools.values import MAX_SCHEMA_BYTES, Tool, ToolKind, Tools


def enforced(schema: Any, *, strict: bool = False) -> Any:
    return enforced_arguments(Tool("f", parameters=schema, strict=strict)).schema


def objects(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_no_arguments() -> None:
    assert enforced(None) == enforced({}) == NO_ARGUMENTS
    assert enforced_arguments(Tool("f", kind=ToolKind.CUSTOM)).schema["required"] == ["input"]


def test_objects_that_list_their_properties_have_no_others() -> None:
    made = enforced(objects(a=objects(b={"type": "string"}), c={"type": "object"}))
    assert made["additionalProperties"] is False
    assert made["properties"]["a"]["additionalProperties"] is False
    assert "additionalProperties" not in made["properties"]["c"]
    assert enforced({**objects(a=True), "additionalProperties": True})["additionalProperties"] is True


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"type": "string", "not": {"const": "a"}}, {"type": "string"}),
        (
            {"type": "array", "uniqueItems": True, "items": {"type": "integer"}},
            {"type": "array", "items": {"type": "integer"}},
        ),
        ({"type": "integer", "multipleOf": 3, "minimum": 1}, {"type": "integer", "minimum": 1}),
        ({"type": "string", "pattern": "(?=a)b"}, {"type": "string"}),
        ({"type": "string", "format": "hostname-of-mine"}, {"type": "string"}),
        ({"$ref": "https://example.org/x.json"}, {}),
        ({"$ref": "#/properties/other"}, {}),
        ({"type": "string", "minLength": "two"}, {"type": "string"}),
        ({"type": "text"}, {}),
        (
            {"oneOf": [{"type": "string"}, {"minLength": 2, "type": "string"}]},
            {"anyOf": [{"type": "string"}, {"minLength": 2, "type": "string"}]},
        ),
    ],
)
def test_what_cannot_be_enforced_is_left_out_of_a_loose_schema(given: Any, kept: Any) -> None:
    tool = Tool("f", parameters=objects(a=given, b={"type": "boolean"}))
    made = enforced_arguments(tool)
    assert made.schema["properties"] == {"a": kept, "b": {"type": "boolean"}}
    assert not made.whole
    with pytest.raises(ToolSchemaUnsupported) as caught:
        enforced(tool.parameters, strict=True)
    assert caught.value.param == "parameters"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "anyOf": [objects(a=True)]},
        {**objects(a=True), "required": ["b"]},
        {"type": "object", "additionalProperties": {"type": "integer"}},
    ],
)
def test_what_is_written_one_by_one_cannot_be_held_to_everything(schema: Any) -> None:
    for wire in (QwenXml(), Pythonic()):
        assert wire.cannot_hold(schema)
        assert wire.cannot_hold({**objects(a={"type": "integer"}), "required": ["a"]}) is None
    assert QwenXml().cannot_hold(objects(a={"type": "string", "pattern": "^a"}))
    assert Hermes().cannot_hold(schema) is None


def test_what_a_finite_call_cannot_fit_is_any_object() -> None:
    endless = {**objects(a={"$ref": "#/$defs/a"}), "required": ["a"]}
    endless["$defs"] = {"a": {**objects(a={"$ref": "#/$defs/a"}), "required": ["a"]}}
    assert enforced(endless) == ANY_OBJECT


def test_a_property_may_be_called_like_a_keyword() -> None:
    assert "if" in enforced(objects(**{"if": {"type": "string"}}), strict=True)["properties"]  # T023


def test_a_refusal_names_keyword_and_place() -> None:
    schema = objects(a={"type": "string", "if": {"minLength": 1}})
    with pytest.raises(ToolSchemaUnsupported) as caught:
        enforced(schema, strict=True)
    assert "if at /properties/a/if" in caught.value.message


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "a" * 129}, "name"),
        ({"parameters": {"type": "string"}}, "parameters"),
        ({"parameters": objects(a={"description": "x" * MAX_SCHEMA_BYTES})}, "parameters"),
        ({"parameters": objects(a={"const": "\ud800"})}, "parameters"),
    ],
)
def test_a_tool_out_of_bounds(changes: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        Tool(**{"name": "f", **changes})
    assert caught.value.param == param


def test_depth() -> None:
    def nested(levels: int) -> dict[str, Any]:
        return objects(a=nested(levels - 1)) if levels > 1 else {"type": "object"}

    Tool("f", parameters=nested(32))
    with pytest.raises(InvalidParameter):
        Tool("f", parameters=nested(33))
    deep: Any = {"type": "object"}
    for _ in range(5000):
        deep = {"type": "object", "properties": {"a": deep}}
    with pytest.raises(InvalidParameter):
        Tool("f", parameters=deep)


def test_how_many() -> None:
    many = tuple(Tool(f"f{number}") for number in range(129))
    Tools(many[:128])
    with pytest.raises(InvalidParameter):
        Tools(many)

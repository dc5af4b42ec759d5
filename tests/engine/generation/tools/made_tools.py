"""Tools of the shapes that servers of tools send."""

from __future__ import annotations

from typing import Any

from engine.generation.tools.values import Tool, Tools, ToolUse

WEATHER = Tool(
    "get_weather",
    "The weather of a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["c", "f"]}},
        "required": ["city"],
    },
)
TIME = Tool("get_time", "The time.")
PLAIN = Tools((WEATHER, TIME))


def schemas_of_servers() -> list[dict[str, Any]]:
    """Nested objects, alternatives, references, formats, and words that nobody enforces."""
    page = {"type": "object", "properties": {"offset": {"type": "integer", "minimum": 0}, "limit": {"type": "integer"}}}
    return [
        {"type": "object", "properties": {}, "$schema": "http://json-schema.org/draft-07/schema#"},
        {"type": "object", "properties": {"path": {"type": "string"}, "page": page}, "required": ["path"]},
        {
            "type": "object",
            "properties": {
                "query": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Query"},
                "when": {"type": "string", "format": "date-time"},
                "where": {"$ref": "#/$defs/Place"},
            },
            "$defs": {
                "Place": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}}
            },
        },
        {
            "type": "object",
            "properties": {
                "labels": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
                "extra": {"type": "object", "additionalProperties": {"type": "string"}},
                "mode": {"oneOf": [{"const": "fast"}, {"const": "slow"}, {"type": "string", "pattern": "^x"}]},
            },
            "required": ["labels"],
            "if": {"properties": {"mode": {"const": "fast"}}},
            "then": {"required": ["extra"]},
        },
        {
            "type": "object",
            "properties": {
                "url": {"type": "string", "format": "uri"},
                "not_this": {"not": {"type": "null"}},
                "tree": {"$ref": "#/definitions/node"},
            },
            "definitions": {
                "node": {
                    "type": "object",
                    "properties": {"left": {"$ref": "#/definitions/node"}, "v": {"type": "integer"}},
                }
            },
            "additionalProperties": False,
        },
        {"type": "object", "properties": {"far": {"$ref": "https://example.org/schema.json"}, "n": {"multipleOf": 3}}},
        {"type": "object", "description": "Anything at all."},
        {"properties": {"no_type": {"type": ["string", "integer", "null"]}}},
    ]


def of_servers(count: int = 64, use: ToolUse = ToolUse.AUTO) -> Tools:
    """``count`` tools, some 60 KB of schemas in all."""
    shapes = schemas_of_servers()
    tools = []
    for number in range(count):
        schema = {**shapes[number % len(shapes)], "description": f"Tool number {number}. " + "It does a lot. " * 50}
        tools.append(Tool(f"server-{number // 8}.tool_{number}", f"Does thing {number}.", schema))
    return Tools(tuple(tools), use)

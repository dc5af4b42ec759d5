"""Writes ``docs/api.md`` from the OpenAPI document: ``python -m server.api_reference``; ``--check`` only compares.

Nothing in it is typed by hand but the opening; a test holds the page to the code.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.config import EngineSettings
from engine.engine import Engine
from engine.public.library import Library
from server.app import context_of, create_app
from server.config import ServerSettings
from server.openapi.document import EVERYWHERE, WITH_BODY, build_document

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"
SHAPES = "Shapes"

_OPENING = f"""# API reference

Made from the program's own description of its API (`GET /openapi.json`, OpenAPI 3.1) by
`python -m server.api_reference`; do not edit it by hand. [api-fields.md](api-fields.md) says what becomes of each field
of a request under `/v1`, [errors.md](errors.md) what each error means, [events.md](events.md) what comes over the
WebSocket `/api/events`, [metrics.md](metrics.md) what `/metrics` counts.

`/v1` speaks OpenAI's API; its refusals have the shape [`OpenAIError`](#openaierror). Under `/api` answers come as
`{{"success": true, "data": …, "error": null}}` and refusals as [`ApiError`](#apierror); *bare* stands where an answer
has no such envelope. Some refusals under `/api` are well-formed answers: status 200 with `success` false.

Any route may answer {", ".join(map(str, EVERYWHERE))}, and one that takes a body
{", ".join(map(str, WITH_BODY))} too; they are not repeated below. A 503 always has `Retry-After`.
"""


def document() -> dict[str, Any]:
    """The OpenAPI document of an app over an engine that never starts."""
    with tempfile.TemporaryDirectory() as folder:
        library = Library.open(Path(folder) / "millm.db")
        try:
            app = create_app(Engine(EngineSettings(), library), ServerSettings())
            try:
                return build_document(app, "")
            finally:
                context_of(app).close()
        finally:
            library.close()


def page() -> str:
    """The whole page."""
    return render(document())


def render(described: dict[str, Any]) -> str:
    """``described`` as Markdown: routes by chapter, then the shapes they refer to."""
    parts = [_OPENING]
    for chapter in (tag["name"] for tag in described["tags"]):
        routes = [
            "\n".join(_route(method, path, operation))
            for path, item in described["paths"].items()
            for method, operation in item.items()
            if chapter in operation["tags"]
        ]
        if routes:
            parts.extend([f"## {chapter}\n", *routes])
    parts.append(f"## {SHAPES}\n")
    parts.extend("\n".join(_shape(name, schema)) for name, schema in described["components"]["schemas"].items())
    return "\n".join(parts)


def _route(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`\n"
    yield f"{operation['summary']}\n"
    for parameter in operation.get("parameters", ()):
        if parameter["in"] != "path":
            yield f"- {parameter['in']} `{parameter['name']}`: {_field(parameter['schema'], parameter['required'])}"
    if "requestBody" in operation:
        asked = operation["requestBody"]
        # A file has words instead of a shape.
        told = asked.get("description") or _only_schema(asked)
        yield f"- body{'' if asked['required'] else ' (may be left out)'}: {told}"
    unnamed: list[str] = []
    hidden = {str(status) for status in (*EVERYWHERE, *WITH_BODY)}
    for status, response in operation["responses"].items():
        if status.startswith("2") or ("ApiError" not in (text := _only_schema(response)) and "OpenAIError" not in text):
            yield f"- {status}: {_answer(response, path)}"
        elif status not in hidden:
            unnamed.append(status)
    if unnamed:
        yield f"- refusals: {', '.join(unnamed)}"
    yield ""


def _answer(response: dict[str, Any], path: str) -> str:
    kinds = []
    for content_type, content in response["content"].items():
        schema = content["schema"]
        data = _data_of(schema)
        if content_type == "text/event-stream":
            kinds.append(f"events of {_type(schema['contentSchema'])}")
        elif content_type != "application/json":
            kinds.append(f"`{content_type}`")
        elif data is not None:
            kinds.append(_type(data))
        else:
            kinds.append(_type(schema) if path.startswith("/v1") else f"{_type(schema)}, bare")
    return " or ".join(kinds)


def _data_of(schema: dict[str, Any]) -> dict[str, Any] | None:
    """What is inside the envelope, where ``schema`` is one."""
    for each in (schema, *schema.get("anyOf", ())):
        if "success" in each.get("properties", {}):
            found: dict[str, Any] = each["properties"]["data"]
            return found
    return None


def _only_schema(holder: dict[str, Any]) -> str:
    content = holder["content"]
    return _type(next(iter(content.values()))["schema"])


def _shape(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}\n"
    if text := schema.get("description"):
        yield f"{text}\n"
    properties = schema.get("properties")
    if properties is None:
        yield f"{_type(schema)}\n"
        return
    for field, found in properties.items():
        yield f"- `{field}`: {_field(found, field in schema.get('required', ()))}"
    yield ""


def _field(schema: dict[str, Any], required: bool) -> str:
    parts = [_type(schema)]
    if not required:
        default = schema.get("default")
        parts.append("may be left out" if default in (None, [], {}) else f"default `{json.dumps(default)}`")
    return "; ".join(parts)


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[`{name}`](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        if "prefixItems" in schema:
            return f"list of {', '.join(_type(each) for each in schema['prefixItems'])}"
        return f"list of {_type(schema.get('items', {}))}{_bounds(schema, 'minItems', 'maxItems')}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        values = [inner] if isinstance(inner, dict) and inner else list(schema.get("patternProperties", {}).values())
        return f"object of {_type(values[0])}" if values else schema.get("description") or "object"
    if kind == "string":
        return f"string{_bounds(schema, 'minLength', 'maxLength')}"
    if kind in ("integer", "number"):
        return f"{kind}{_bounds(schema, 'minimum', 'maximum')}"
    return kind or "anything"


def _bounds(schema: dict[str, Any], low: str, high: str) -> str:
    least, most = schema.get(low), schema.get(high)
    above = schema.get("exclusiveMinimum")
    if above is not None:
        return f" (above {above:g}, at most {most:g})" if most is not None else f" (above {above:g})"
    if least is None and most is None:
        return ""
    if most is None:
        return f" (at least {least:g})"
    return f" (at most {most:.0f})" if least is None else f" ({least:g} to {_plain(most)})"


def _plain(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:g}"


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or with ``--check`` say whether it is current."""
    parser = argparse.ArgumentParser(prog="python -m server.api_reference", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is not current")
    wanted = parser.parse_args(arguments)
    text = page()
    if wanted.check:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        if not current:
            sys.stderr.write(f"{PAGE} is not current: run python -m server.api_reference\n")
        return 0 if current else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

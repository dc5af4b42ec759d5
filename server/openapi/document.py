"""The OpenAPI 3.1 document, made from an app's map of routes and from what the routes say about themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from quart import Quart
from werkzeug.routing import Rule

from server import headers
from server.dialects import DIALECTS, OTHERS, owner_of
from server.openapi.describe import (
    EVENT_STREAM,
    Description,
    Document,
    Text,
    Upload,
    description_of,
    path_parameters,
    path_template,
)
from server.openapi.shapes import REF, Schema, Shapes

JSON = "application/json"
HIDDEN_METHODS = frozenset({"HEAD", "OPTIONS"})
"""What Quart answers by itself on every route."""

_TAGS = (
    *((root, dialect.tag) for dialect in DIALECTS if dialect.tag is not None for root in dialect.roots),
    ("/api/models", "Model library"),
    ("/api/saes", "SAEs and hand-set steering"),
    ("/api/profiles", "Profiles"),
    ("/api/clusters", "Clusters"),
    ("/api/circuits", "Circuits"),
    ("/api/monitoring", "Monitoring"),
    ("/api/sweeps", "Sweeps"),
    ("/api/experiments", "Saved comparisons"),
    ("/api/health", "Health"),
    ("/metrics", "Health"),
    ("/health", "Health"),
    ("/readyz", "Health"),
    ("/api", "Program"),
    ("/", "Program"),
)

_PATH_SCHEMAS: Mapping[str, Schema] = {
    "string": {"type": "string", "minLength": 1},
    "path": {"type": "string", "minLength": 1},
    "int": {"type": "integer", "minimum": 0},
}

_FILE_SCHEMAS: Mapping[str, Schema] = {
    "application/octet-stream": {"type": "string", "format": "binary"},
    JSON: {"type": ["object", "array"]},
    "text/csv": {"type": "string"},
}
"""How a file may be sent; the type it is sent as is not looked at."""

_STATUS_WORDS = {
    200: "Success.",
    201: "Made.",
    202: "Begun; events tell how it goes on.",
    204: "Done.",
    400: "The request cannot be honoured.",
    401: "An API key is set, and the request shows none or another.",
    403: "The request's Host or Origin is not on the list.",
    404: "There is no such thing.",
    405: "The route does not take this method.",
    408: "The body did not arrive in time.",
    409: "Something else is in the way.",
    413: "The body is too long.",
    422: "A field or parameter is wrong; the details list each.",
    429: "Too often; Retry-After says when.",
    500: "The server failed.",
    501: "This program does not do it.",
    502: "A remote service failed.",
    503: "Not now; Retry-After says when.",
    507: "There is not enough memory or disk.",
}
EVERYWHERE = (401, 403, 500, 503)
"""Statuses of refusals that every route may give."""

WITH_BODY = (400, 408, 413)
"""Those of routes that read a body."""

_INTRODUCTION = (
    "One program, two surfaces. /v1 speaks OpenAI's API with steering fields added; errors have OpenAI's envelope. "
    "/api manages models, SAEs, profiles, clusters and circuits; answers and errors have the envelope "
    "{success, data, error}, except documents that are exported and the health routes. Some refusals under /api are "
    "well-formed answers: status 200 with success false. Changes are announced on the WebSocket /api/events."
)


def build_document(app: Quart, version: str) -> dict[str, Any]:
    """The document for every route of ``app``. Raises ``TypeError`` for an answer without a JSON form."""
    shapes = Shapes()
    shapes.named.update(_ERRORS)
    paths: dict[str, dict[str, Any]] = {}
    for rule in sorted(http_rules(app), key=lambda rule: rule.rule):
        said = description_of(app.view_functions[rule.endpoint]) or _nothing_said(rule)
        item = paths.setdefault(path_template(rule.rule), {})
        methods = sorted(methods_of(rule))
        for method in methods:
            name = rule.endpoint if len(methods) == 1 else f"{rule.endpoint}_{method.lower()}"
            item[method.lower()] = _operation(rule, said, shapes, name)
    return {
        "openapi": "3.1.0",
        "info": {"title": "miLLM Desktop", "version": version, "description": _INTRODUCTION},
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"apiKey": []}, {}],
        "tags": [{"name": name} for name in dict.fromkeys(name for _, name in _TAGS)],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(shapes.named.items())),
            "headers": {name: _header(text) for name, text in sorted(_RESPONSE_HEADERS.items())},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
    }


def http_rules(app: Quart) -> Iterator[Rule]:
    """The routes of ``app`` that speak HTTP."""
    return (rule for rule in app.url_map.iter_rules() if not rule.websocket)


def undescribed(app: Quart) -> list[str]:
    """Routes that say nothing about themselves; the program has none."""
    return [rule.rule for rule in http_rules(app) if description_of(app.view_functions[rule.endpoint]) is None]


def methods_of(rule: Rule) -> set[str]:
    """The methods a route takes by its own word."""
    return set(rule.methods or ()) - HIDDEN_METHODS


def tag_of(path: str) -> str:
    """The chapter a path belongs to."""
    return next(name for prefix, name in _TAGS if path.startswith(prefix))


def _operation(rule: Rule, said: Description, shapes: Shapes, name: str) -> dict[str, Any]:
    out: dict[str, Any] = {"operationId": name, "summary": said.summary, "tags": [tag_of(rule.rule)]}
    if said.open_to_all:
        out["security"] = []
    parameters = [*_path_parameters(rule), *_query_parameters(said.query), *_request_headers(said)]
    if parameters:
        out["parameters"] = parameters
    if isinstance(said.body, Upload):
        content = {kind: {"schema": schema} for kind, schema in _FILE_SCHEMAS.items()}
        out["requestBody"] = {"required": True, "description": said.body.description, "content": content}
    elif said.body is not None:
        content = {JSON: {"schema": _body_schema(said.body, shapes)}}
        out["requestBody"] = {"required": not said.body_optional, "content": content}
    out["responses"] = dict(_responses(rule, said, shapes))
    return out


def _nothing_said(rule: Rule) -> Description:
    return Description(rule.endpoint.replace("_", " ").capitalize() + ".", answer=Any, in_envelope=False)


def _path_parameters(rule: Rule) -> Iterator[Schema]:
    for name, converter in path_parameters(rule.rule).items():
        yield {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS[converter.partition("(")[0]]}


def _query_parameters(query: type[BaseModel] | None) -> Iterator[Schema]:
    if query is None:
        return
    shapes = Shapes()
    shapes.model(query)
    schema = shapes.named[query.__name__.lstrip("_")]
    inner = {name: found for name, found in shapes.named.items() if found is not schema}
    for name, found in schema.get("properties", {}).items():
        parameter: Schema = {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "schema": _not_null(_inlined(found, inner)),
        }
        yield parameter


def _inlined(schema: Schema, named: Mapping[str, Schema]) -> Schema:
    """``schema`` with what it refers to in its place: a query's few enums need no name."""
    if "$ref" in schema:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return {**named[schema["$ref"].rpartition("/")[2]], **rest}
    if "anyOf" in schema:
        return {**schema, "anyOf": [_inlined(each, named) for each in schema["anyOf"]]}
    return schema


def _not_null(schema: Schema) -> Schema:
    """A query parameter that is left out is null; one that is there never is."""
    if "anyOf" not in schema:
        return schema
    kinds = [each for each in schema["anyOf"] if each != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default") or value is not None}
    rest.pop("anyOf", None)
    return {**rest, **kinds[0]} if len(kinds) == 1 else {**rest, "anyOf": kinds}


def _request_headers(said: Description) -> Iterator[Schema]:
    for name in said.request_headers:
        yield {"name": name, "in": "header", "required": False, **_REQUEST_HEADERS[name]}


def _body_schema(body: type[BaseModel] | Document, shapes: Shapes) -> Schema:
    if isinstance(body, Document):
        return {"type": "object", "description": body.description}
    return shapes.model(body)


def _responses(rule: Rule, said: Description, shapes: Shapes) -> Iterator[tuple[str, Schema]]:
    dialect = owner_of(rule.rule) or OTHERS
    answers = {} if said.only_refuses else {said.status: said.answer, **said.also}
    documented = set(answers)
    for status, answer in sorted(answers.items()):
        yield str(status), _success(status, answer, said, shapes)
    codes = {*said.errors, *EVERYWHERE}
    if said.open_to_all:
        codes.discard(401)
    if said.body is not None or (methods_of(rule) & {"POST", "PUT", "PATCH"}):
        codes |= set(WITH_BODY)
    if dialect.unreadable_is_422 and (said.query is not None or said.body is not None):
        codes.add(422)
    for status in sorted(codes - documented):
        response: Schema = {
            "description": _STATUS_WORDS[status],
            "content": {JSON: {"schema": {"$ref": REF.format(model=dialect.error_schema)}}},
        }
        names = [headers.ERROR_CODE, *(["Retry-After"] if status in (429, 503) else [])]
        response["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
        yield str(status), response


def _success(status: int, answer: Any, said: Description, shapes: Shapes) -> Schema:
    response: Schema = {"description": _STATUS_WORDS[status]}
    if isinstance(answer, Text):
        response["content"] = {answer.content_type: {"schema": {"type": "string"}}}
    else:
        schema = shapes.of(answer)
        if said.in_envelope:
            schema = _envelope(schema, may_refuse=status == 200)
        response["content"] = {JSON: {"schema": schema}}
        if said.streams is not None:
            response["content"][EVENT_STREAM.content_type] = {
                "schema": {
                    "type": "string",
                    "description": "Each event's data is one chunk as JSON; the last is [DONE].",
                    "contentMediaType": JSON,
                    "contentSchema": shapes.of(said.streams),
                }
            }
    response["content"].update({kind: {"schema": {"type": "string"}} for kind in said.also_as})
    names = [*said.headers, *(["Retry-After"] if status == 503 else [])]
    if names:
        response["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    return response


def _envelope(data: Schema, *, may_refuse: bool) -> Schema:
    success = {
        "type": "object",
        "properties": {"success": {"const": True}, "data": data, "error": {"type": "null"}},
        "required": ["success", "data", "error"],
        "additionalProperties": False,
    }
    return {"anyOf": [success, {"$ref": REF.format(model="ApiError")}]} if may_refuse else success


def _header(description: str) -> Schema:
    integer = description == _RESPONSE_HEADERS["Retry-After"]
    schema = {"type": "integer", "minimum": 1} if integer else {"type": "string"}
    return {"description": description, "schema": schema}


_RESPONSE_HEADERS: Mapping[str, str] = {
    headers.BACKEND: "How it was written: cbm, serial or llamacpp.",
    headers.BATCH: "Conversations answered.",
    headers.CIRCUIT_RUNG: "Evidence rung of the circuits that steered.",
    headers.CONSTRAINED: "The form the answer was held to.",
    headers.ERROR_CODE: "The code of a refusal, in lower case.",
    headers.IGNORED_FIELDS: "Fields of the request that nobody used.",
    headers.MODE: "generation or scoring.",
    headers.NOTES: "What was changed to make the prompt work.",
    headers.SEED: "The seed that was applied and how far its promise reaches.",
    headers.STEERING: "What was really added.",
    headers.STEERING_INTENSITY: "The dial, where it changed the plan.",
    headers.WARM: "Prompt tokens that were not read anew.",
    "Retry-After": "Seconds after which to try again.",
}

_REQUEST_HEADERS: Mapping[str, Schema] = {
    headers.STRICT: {
        "description": "Refuse a request that has fields nobody uses.",
        "schema": {"enum": ["true", "false", "1", "0"]},
    },
    headers.PROFILE: {
        "description": "As the field profile; percent-encoded.",
        "schema": {"type": "string"},
    },
    headers.STEERING_INTENSITY: {
        "description": "As the field steering_intensity.",
        "schema": {"type": "string", "pattern": "^ *([0-9.]+|off|min|max) *$"},
    },
    headers.LOAD_POLICY: {
        "description": "auto loads the model that is named; it is the only one possible.",
        "schema": {"enum": ["auto"]},
    },
}

_ERRORS: Mapping[str, Schema] = {
    "OpenAIError": {
        "type": "object",
        "description": "A refusal under /v1.",
        "properties": {
            "error": {
                "type": "object",
                "properties": {
                    "message": {"type": "string"},
                    "type": {"enum": ["invalid_request_error", "rate_limit_error", "server_error"]},
                    "param": {"type": ["string", "null"]},
                    "code": {"type": "string", "pattern": "^[a-z_]+$"},
                },
                "required": ["message", "type", "param", "code"],
                "additionalProperties": False,
            }
        },
        "required": ["error"],
        "additionalProperties": False,
    },
    "ApiError": {
        "type": "object",
        "description": "A refusal under /api.",
        "properties": {
            "success": {"const": False},
            "data": {"type": "null"},
            "error": {
                "type": "object",
                "properties": {
                    "code": {"type": "string", "pattern": "^[A-Z_]+$"},
                    "message": {"type": "string"},
                    "details": {"type": "object"},
                },
                "required": ["code", "message", "details"],
                "additionalProperties": False,
            },
        },
        "required": ["success", "data", "error"],
        "additionalProperties": False,
    },
}

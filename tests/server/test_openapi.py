"""The API's description: every route is in it, says what the code does, and its page is current."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import pytest
from jsonschema import Draft202012Validator
from quart import Quart

from engine.config import EngineSettings
from engine.engine import Engine
from engine.library.database import Library
from server import api_reference, headers, management
from server.api_reference import PAGE, main, page
from server.app import context_of, create_app
from server.config import ServerSettings
from server.openapi.describe import describe, description_of, path_template
from server.openapi.document import build_document, http_rules, methods_of, undescribed
from server.openapi.shapes import Shapes

Document = dict[str, Any]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quart]:
    library = Library.open(tmp_path_factory.mktemp("openapi") / "millm.db")
    made = create_app(Engine(EngineSettings(), library), ServerSettings())
    yield made
    context_of(made).close()
    library.close()


@pytest.fixture(scope="module")
def document(app: Quart) -> Document:
    return build_document(app, "1.2.3")


def test_every_route_is_described(app: Quart, document: Document) -> None:
    assert undescribed(app) == []
    routes = {(path_template(rule.rule), method) for rule in http_rules(app) for method in methods_of(rule)}
    assert len(routes) > 70
    documented = {(path, method.upper()) for path, item in document["paths"].items() for method in item}
    assert documented == routes


def test_the_head(document: Document) -> None:
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == "1.2.3"
    assert document["security"] == [{"bearer": []}, {"apiKey": []}, {}]
    assert document["paths"]["/api/health"]["get"]["security"] == []


def test_operations_have_names_summaries_and_chapters(document: Document) -> None:
    operations = [each for item in document["paths"].values() for each in item.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    tags = {each["name"] for each in document["tags"]}
    for each in operations:
        assert 5 < len(each["summary"]) < 100, each["operationId"]
        assert each["summary"].endswith("."), each["operationId"]
        assert set(each["tags"]) <= tags


def test_schemas_are_schemas_and_references_lead_somewhere(document: Document) -> None:
    known = {f"#/components/{kind}/{name}" for kind, named in document["components"].items() for name in named}
    references = set(_references(document))
    assert references <= known
    assert {f"#/components/schemas/{name}" for name in document["components"]["schemas"]} <= references
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def test_every_refusal_has_an_envelope_and_every_503_says_when(document: Document) -> None:
    for path, item in document["paths"].items():
        for operation in item.values():
            for status, response in operation["responses"].items():
                if status == "503":
                    assert "Retry-After" in response["headers"], path
                if status.startswith(("4", "5")) and path not in ("/api/health/ready", "/readyz"):
                    openai = path.startswith(("/v1", "/props", "/slots"))
                    name = "OpenAIError" if openai else "ApiError"
                    (content,) = response["content"].values()
                    assert content["schema"] == {"$ref": f"#/components/schemas/{name}"}


def test_our_headers_are_named(document: Document) -> None:
    assert set(document["components"]["headers"]) == {*headers.RESPONSE_HEADERS, "Retry-After"}
    chat = document["paths"]["/v1/chat/completions"]["post"]
    assert headers.STEERING in chat["responses"]["200"]["headers"]
    assert [each["name"] for each in chat["parameters"]] == [
        headers.STRICT,
        headers.LOAD_POLICY,
        headers.PROFILE,
        headers.STEERING_INTENSITY,
    ]


def test_what_fields_take_is_said_as_it_is_read(document: Document) -> None:
    chat = document["components"]["schemas"]["ChatBody"]
    assert chat["required"] == ["model", "messages"]
    number = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 2}, {"type": "null"}], "default": None}
    assert chat["properties"]["temperature"] == number
    stop = chat["properties"]["stop"]["anyOf"]
    assert {"type": "string", "minLength": 1} in stop
    assert {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 16} in stop
    text = document["components"]["schemas"]["CompletionBody"]
    assert {"type": "string"} in text["properties"]["prompt"]["anyOf"]
    listing = document["paths"]["/api/circuits"]["get"]["parameters"]
    limit = next(each for each in listing if each["name"] == "limit")
    assert (limit["in"], limit["required"]) == ("query", False)
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}


# --- what routes say is what they do ----------------------------------------------------------------------------------

DELEGATED = {
    "disable_steering": "BodyPlace",
    "enable_steering": "BodyPlace",
    "monitoring_configure": "MonitorChoice",
    "saes_monitoring": "MonitorChoice",
}
"""Routes that have another function read their body."""


def _management_routes() -> list[tuple[str, ast.AsyncFunctionDef, ast.Call]]:
    folder = Path(inspect.getfile(management)).parent
    found = []
    for file in [*sorted(folder.glob("*.py")), folder.parent / "health" / "routes.py"]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AsyncFunctionDef):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "describe":
                        found.append((f"{file.stem}.{node.name}", node, decorator))
    return found


@pytest.mark.parametrize(
    ("name", "view", "said"), _management_routes(), ids=lambda each: each if isinstance(each, str) else ""
)
def test_a_route_reads_what_it_says(name: str, view: ast.AsyncFunctionDef, said: ast.Call) -> None:
    told = {each.arg: ast.unparse(each.value) for each in said.keywords}
    read: dict[str, str] = {}
    for node in ast.walk(view):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "read_query":
                read["query"] = ast.unparse(node.args[0])
            elif node.func.id == "read_json":
                read["body"] = ast.unparse(node.args[1])
                read["optional"] = str(any(each.arg == "optional" for each in node.keywords))
            elif node.func.id in ("read_document", "read_upload"):
                read["body"] = "document"
    if view.name in DELEGATED:
        assert told["body"].rpartition(".")[2] == DELEGATED[view.name]
        assert told["body_optional"] == "True"
        return
    assert told.get("query") == read.get("query"), name
    if read.get("body") == "document":
        assert told["body"].isupper()
    else:
        assert told.get("body") == read.get("body"), name
        assert told.get("body_optional", "False") == read.get("optional", "False"), name


# --- shapes -----------------------------------------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(TypedDict):
    """An inner thing. ``a`` is a letter.

    More words.
    """

    a: str
    b: NotRequired[int]


class Outer(TypedDict):
    """An outer thing."""

    inner: Inner
    colour: Colour | None
    when: datetime
    pairs: list[tuple[int, float]]
    word: Literal["x", "y"]
    map: dict[str, bool]


def test_shapes_follow_the_envelope() -> None:
    shapes = Shapes()
    assert shapes.of(Outer) == {"$ref": "#/components/schemas/Outer"}
    assert shapes.named["Inner"] == {
        "type": "object",
        "description": "An inner thing. `a` is a letter.",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    properties = shapes.named["Outer"]["properties"]
    assert properties["colour"] == {"anyOf": [{"enum": ["red", "blue"]}, {"type": "null"}]}
    assert properties["when"] == {"type": "string", "format": "date-time"}
    assert properties["pairs"]["items"] == {
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"type": ["number", "null"]}],
        "minItems": 2,
        "maxItems": 2,
    }
    assert properties["map"] == {"type": "object", "additionalProperties": {"type": "boolean"}}
    assert shapes.of(int | str | None) == {"type": ["integer", "string", "null"]}


@pytest.mark.parametrize("kind", [object, complex, list[object], dataclass(type("Inner", (), {}))])
def test_shapes_refuse_what_has_no_json_form(kind: Any) -> None:
    shapes = Shapes()
    shapes.of(Inner)
    with pytest.raises(TypeError):
        shapes.of(kind)


def test_a_function_keeps_what_it_says() -> None:
    @describe("Do it.", data=int, errors=(404,))
    async def view() -> None:
        """A route."""

    said = description_of(view)
    assert said is not None
    assert (said.summary, said.answer, said.in_envelope, said.errors) == ("Do it.", int, True, (404,))
    assert description_of(test_a_function_keeps_what_it_says) is None


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m server.api_reference"


def test_a_page_that_is_not_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api_reference, "PAGE", tmp_path / "api.md")
    assert main(["--check"]) == 1
    assert "api.md is not current" in capsys.readouterr().err
    assert main([]) == 0
    assert main(["--check"]) == 0


def test_the_page_leads_to_what_it_names() -> None:
    text = PAGE.read_text(encoding="utf-8")
    anchors = {line.removeprefix("### ").lower() for line in text.splitlines() if line.startswith("### ")}
    for link in set(_links(text)):
        if link.startswith("#"):
            assert link[1:] in anchors, link
        else:
            assert (PAGE.parent / link).is_file(), link


def _links(text: str) -> list[str]:
    return [piece.partition(")")[0] for piece in text.split("](")[1:]]

"""Tools on chat: what is asked for is called, in its form, in every shape of answer; what cannot be is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import pytest

from server.config import ServerSettings
from server.thread import ServerThread
from tests.conftest import CheckpointMaker
from tests.contract.conftest import MODEL, READY_S, Live, chat_body, start_engine, stop_engine
from tests.contract.stage import STEERING, Stage, inline
from tests.engine.generation.tools import made_templates
from tests.engine.generation.tools.made_tools import schemas_of_servers

IGNORED, NOTES = "X-miLLM-Ignored-Fields", "X-miLLM-Notes"
CALL_ID = re.compile(r"call_[0-9a-f]{24}")


def function(name: str, parameters: Any = None, **more: Any) -> dict[str, Any]:
    spec = {"name": name, "description": f"It does {name}.", **more}
    return {"type": "function", "function": spec if parameters is None else {**spec, "parameters": parameters}}


CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 16}},
    "required": ["city"],
}
WEATHER = function("get_weather", CITY)
TIME = function("get_time")
SEARCH = {"type": "web_search"}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.fixture(scope="module")
def tooled(tmp_path_factory: pytest.TempPathFactory, checkpoint: CheckpointMaker) -> Iterator[Live]:
    """A wide window, in which tools can be described to the tiny model letter by letter."""
    folder = checkpoint("llama", max_positions=32768)
    engine = start_engine(
        folder, tmp_path_factory.mktemp("tooled") / "millm.db", MAX_LANES=10, DESCRIBE_TOOLS_MAX_TOKENS=4096
    )
    thread = ServerThread(engine, ServerSettings(PORT=0))
    thread.start()
    yield Live(engine, thread, thread.wait_ready(READY_S))
    thread.stop(5)
    stop_engine(engine)


def ask(live: Live, *tools: Any, **body: Any) -> httpx.Response:
    return live.chat(**{"tools": list(tools), "max_tokens": 200, **body})


def choice_of(response: httpx.Response, index: int = 0) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    return dict(response.json()["choices"][index])


def calls_of(response: httpx.Response, index: int = 0) -> list[tuple[str, Any]]:
    """Names and arguments of an answer's calls, each shape looked at."""
    calls = choice_of(response, index)["message"]["tool_calls"]
    for place, call in enumerate(calls):
        assert call["index"] == place
        assert CALL_ID.fullmatch(call["id"])
        assert call["type"] == "function"
        assert isinstance(call["function"]["arguments"], str)
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


def refusal(response: httpx.Response) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


def chunks(live: Live, **body: Any) -> list[dict[str, Any]]:
    with live.http() as client, client.stream("POST", "/v1/chat/completions", json=chat_body(stream=True, **body)) as r:
        assert r.status_code == 200, r.read()
        events = [line.removeprefix("data: ") for line in r.iter_lines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


def joined(found: list[dict[str, Any]], index: int = 0) -> dict[str, Any]:
    """A stream's choice as it would have been whole."""
    content, calls, finish = "", {}, None
    for chunk in found:
        for choice in chunk["choices"]:
            if choice["index"] != index:
                continue
            assert finish is None, "something came behind the end"
            finish = choice["finish_reason"]
            content += choice["delta"].get("content", "")
            for call in choice["delta"].get("tool_calls", []):
                if "id" in call:
                    assert call["index"] == len(calls)
                    assert call["function"]["arguments"] == ""
                    calls[call["index"]] = {"name": call["function"]["name"], "arguments": ""}
                else:
                    assert set(call) == {"index", "function"}
                    assert set(call["function"]) == {"arguments"}
                    calls[call["index"]]["arguments"] += call["function"]["arguments"]
    return {"content": content, "calls": list(calls.values()), "finish": finish}


# --- forced -----------------------------------------------------------------------------------------------------------


def test_a_named_tool_is_called(tooled: Live) -> None:
    # T001
    response = ask(tooled, WEATHER, tool_choice=named("get_weather"))
    ((name, arguments),) = calls_of(response)
    assert name == "get_weather"
    jsonschema.validate(arguments, CITY)
    choice = choice_of(response)
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None


def test_a_stream_joins_to_the_whole(tooled: Live) -> None:
    # T002, T004
    body = {"tools": [WEATHER], "tool_choice": named("get_weather"), "max_tokens": 200}
    found = chunks(tooled, **body)
    assert found[0]["choices"][0]["delta"] == {"role": "assistant"}
    assert "millm_steering" in found[-1]
    streamed = joined(found)
    whole = choice_of(tooled.chat(**body))
    assert streamed["finish"] == whole["finish_reason"] == "tool_calls"
    assert streamed["content"] == ""
    (call,) = whole["message"]["tool_calls"]
    assert streamed["calls"] == [{"name": "get_weather", "arguments": call["function"]["arguments"]}]


def test_required(tooled: Live) -> None:
    # T005
    for seed in range(3):
        response = ask(tooled, WEATHER, TIME, tool_choice="required", temperature=1, seed=seed)
        if choice_of(response)["finish_reason"] == "length":
            continue
        calls = calls_of(response)
        assert calls
        assert {name for name, _ in calls} <= {"get_weather", "get_time"}


def test_allowed_tools(tooled: Live) -> None:
    allowed = {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [{"type": "function", "name": "get_time"}]},
    }
    response = ask(tooled, WEATHER, TIME, tool_choice=allowed, parallel_tool_calls=False)
    assert calls_of(response) == [("get_time", {})]
    nested = {"mode": "required", "tools": [named("get_time")]}
    again = ask(tooled, WEATHER, TIME, tool_choice={**allowed, "allowed_tools": nested}, parallel_tool_calls=False)
    assert calls_of(again) == [("get_time", {})]


def test_without_parallel_calls_the_answer_ends_with_its_first(tooled: Live) -> None:
    response = ask(tooled, TIME, tool_choice="required", parallel_tool_calls=False)
    assert len(calls_of(response)) == 1
    assert choice_of(response)["finish_reason"] == "tool_calls"


def test_a_choice_without_tools(live: Live) -> None:
    # T007, T008, T010
    for tools in (..., [], None):
        for choice in ("required", named("get_weather")):
            assert refusal(live.chat(tools=tools, tool_choice=choice)) == (400, "invalid_parameter", "tool_choice")
    assert refusal(ask(live, WEATHER, tool_choice=named("nope"))) == (400, "invalid_parameter", "tool_choice")
    for choice in ("auto", "none", None):
        assert live.chat(tool_choice=choice).status_code == 200


@pytest.mark.parametrize(
    "choice",
    [
        "any",
        1,
        {"type": "function"},
        {"type": "function", "function": {}},
        {"name": "get_weather"},
        [],
        {"type": 3},
        {"type": "allowed_tools", "allowed_tools": {"mode": "must", "tools": [named("get_weather")]}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{}]}},
    ],
)
def test_a_choice_that_is_none(live: Live, choice: Any) -> None:
    assert refusal(ask(live, WEATHER, tool_choice=choice)) == (400, "invalid_parameter", "tool_choice")


def test_how_many_tools(tooled: Live) -> None:
    # T011
    many = [function(f"f{number}") for number in range(129)]
    assert tooled.chat(tools=[]).status_code == 200
    assert tooled.chat(tools=many[:128]).status_code == 200
    assert refusal(tooled.chat(tools=many)) == (400, "invalid_parameter", "tools")


# --- offered ----------------------------------------------------------------------------------------------------------


def test_none_shows_no_tools(tooled: Live) -> None:
    # T013, T014
    plain = tooled.chat()
    none = ask(tooled, WEATHER, tool_choice="none", max_tokens=8)
    assert choice_of(none) == choice_of(plain)
    assert none.json()["usage"]["prompt_tokens"] == plain.json()["usage"]["prompt_tokens"]
    auto = ask(tooled, WEATHER, max_tokens=8)
    assert auto.json()["usage"]["prompt_tokens"] > plain.json()["usage"]["prompt_tokens"]
    assert "described in the system text" in auto.headers[NOTES]
    assert "tool_calls" not in choice_of(auto)["message"]


def test_offered_tools_that_would_fill_the_window_are_left_out(live: Live) -> None:
    # T014
    long = [function(f"tool_{number}", {**CITY, "description": "word " * 60}) for number in range(40)]
    response = ask(live, *long, max_tokens=8)
    assert response.status_code == 200
    assert response.headers[IGNORED] == '"tools"'
    assert "40 offered tools were left out" in response.headers[NOTES]
    strict = ask(live, *long, max_tokens=8, headers={"X-miLLM-Strict": "true"})
    assert refusal(strict) == (400, "unused_fields_refused", "tools")
    insisted = ask(live, *long, max_tokens=8, tool_choice="required")
    assert refusal(insisted)[:2] == (400, "context_length_exceeded")
    assert "2048" in insisted.json()["error"]["message"]


def test_strict_tools_are_always_described(tooled: Live) -> None:
    strict = function("exact", {**CITY, "additionalProperties": False}, strict=True)
    long = [function(f"tool_{number}", {**CITY, "description": "word " * 400}) for number in range(9)]
    response = ask(tooled, long[0], strict, *long[1:], max_tokens=8)
    assert response.headers[IGNORED] == ", ".join(f'"tools[{place}]"' for place in (0, *range(2, 10)))
    assert "described in the system text" in response.headers[NOTES]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_call_that_was_begun_is_finished(tooled: Live, streamed: bool) -> None:
    # T016, T017
    begun = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Os'
    messages = [{"role": "user", "content": "the weather"}, {"role": "assistant", "content": begun}]
    body = {"tools": [WEATHER], "messages": messages, "max_tokens": 200, "parallel_tool_calls": False}
    whole = tooled.chat(**body)
    ((name, arguments),) = calls_of(whole)
    assert name == "get_weather"
    assert arguments["city"].startswith("Os")
    if streamed:
        found = joined(chunks(tooled, **body))
        (call,) = choice_of(whole)["message"]["tool_calls"]
        assert found["calls"] == [{"name": name, "arguments": call["function"]["arguments"]}]
        assert found["content"] == ""


def test_calls_that_are_whole_in_what_was_begun_are_given_back(tooled: Live) -> None:
    begun = 'Well. <tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>\nSo'
    messages = [{"role": "user", "content": "the time"}, {"role": "assistant", "content": begun}]
    response = tooled.chat(tools=[TIME], messages=messages, max_tokens=4)
    assert calls_of(response) == [("get_time", {})]
    assert "Well" not in (choice_of(response)["message"]["content"] or "")
    found = joined(chunks(tooled, tools=[TIME], messages=messages, max_tokens=4))
    assert found["calls"] == [{"name": "get_time", "arguments": "{}"}]


def test_a_plain_answer(tooled: Live) -> None:
    # T019
    response = ask(tooled, WEATHER, max_tokens=16)
    assert "tool_calls" not in choice_of(response)["message"]
    assert choice_of(response)["message"]["content"]


# --- schemas ----------------------------------------------------------------------------------------------------------


def test_a_strict_schema_that_cannot_be_enforced(live: Live) -> None:
    # T020, T023
    schema = {"type": "object", "properties": {"a": {"type": "string", "if": {"const": "x"}}}}
    refused = ask(live, TIME, function("f", schema, strict=True))
    assert refusal(refused) == (400, "tool_schema_unsupported", "tools.1.function.parameters")
    assert "if at /properties/a/if" in refused.json()["error"]["message"]
    assert ask(live, function("f", schema), max_tokens=8).status_code == 200
    called_if = {"type": "object", "properties": {"if": {"type": "string"}}, "additionalProperties": False}
    assert ask(live, function("f", called_if, strict=True), max_tokens=8).status_code == 200


def test_a_strict_schema_is_kept(tooled: Live) -> None:
    # T022
    schema = {
        "type": "object",
        "properties": {"unit": {"enum": ["celsius", "kelvin"]}},
        "required": ["unit"],
        "additionalProperties": False,
    }
    for seed in range(5):
        response = ask(tooled, function("f", schema, strict=True), tool_choice=named("f"), temperature=2, seed=seed)
        ((_, arguments),) = calls_of(response)
        assert arguments["unit"] in ("celsius", "kelvin")


def test_no_arguments(tooled: Live) -> None:
    # T025
    for tool in (function("f"), function("f", {})):
        response = ask(tooled, tool, tool_choice=named("f"))
        assert choice_of(response)["message"]["tool_calls"][0]["function"]["arguments"] == "{}"
        streamed = joined(chunks(tooled, tools=[tool], tool_choice=named("f"), max_tokens=200))
        assert streamed["calls"] == [{"name": "f", "arguments": "{}"}]


def test_a_schema_out_of_bounds(live: Live) -> None:
    # T026
    param = "tools.0.function.parameters"
    assert refusal(ask(live, function("f", {"type": "string"}))) == (400, "invalid_parameter", param)
    big = {"type": "object", "description": "x" * 65_537}
    assert refusal(ask(live, function("f", big))) == (400, "invalid_parameter", param)
    assert refusal(ask(live, function("f", "text")))[1:] == ("invalid_parameter", param)


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({}, "tools.0"),
        ({"type": "function"}, "tools.0"),
        ({"type": "function", "function": {}}, "tools.0.function.name"),
        ({"type": "function", "function": {"name": ""}}, "tools.0.function.name"),
        ({"type": "function", "function": {"name": "a b"}}, "tools.0.function.name"),
        ({"type": "function", "function": {"name": "f", "strict": "yes"}}, "tools.0.function.strict"),
        ({"type": "function", "function": {"name": "f", "description": 3}}, "tools.0.function.description"),
        ({"type": "custom", "function": {"name": "f"}}, "tools.0"),
        ({"type": 7}, "tools.0.type"),
        ("get_weather", "tools.0"),
    ],
)
def test_a_tool_that_is_none(live: Live, tool: Any, param: str) -> None:
    assert refusal(ask(live, tool)) == (400, "invalid_parameter", param)


def test_two_tools_of_a_name(live: Live) -> None:
    assert refusal(ask(live, TIME, WEATHER, TIME)) == (400, "invalid_parameter", "tools.2.function.name")


def test_every_shape_that_servers_of_tools_send(tooled: Live) -> None:
    for number, schema in enumerate(schemas_of_servers()):
        name = f"server.tool:{number}"
        response = ask(tooled, function(name, schema), tool_choice=named(name), max_tokens=400, temperature=0.7, seed=1)
        choice = choice_of(response)
        if choice["finish_reason"] == "tool_calls":
            ((called, arguments),) = calls_of(response)
            assert called == name
            assert isinstance(arguments, dict)


# --- beside other fields ----------------------------------------------------------------------------------------------

FORM = {
    "type": "json_schema",
    "json_schema": {
        "name": "answer",
        "schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
    },
}


def test_a_call_and_a_document(tooled: Live) -> None:
    # T028, T029
    for choice in (named("get_weather"), "required"):
        refused = ask(tooled, WEATHER, tool_choice=choice, response_format=FORM)
        assert refusal(refused) == (400, "invalid_parameter", "tool_choice")
        assert "response_format" in refused.json()["error"]["message"]
    for seed in range(4):
        response = ask(tooled, WEATHER, response_format=FORM, temperature=1, seed=seed, max_tokens=300)
        choice = choice_of(response)
        if choice["finish_reason"] == "stop":
            jsonschema.validate(json.loads(choice["message"]["content"]), FORM["json_schema"]["schema"])
        elif choice["finish_reason"] == "tool_calls":
            assert calls_of(response)


@pytest.mark.parametrize(
    ("form", "fits"),
    [
        ({"type": "regex", "regex": "(yes|no)/[0-9]{2}"}, re.compile("(yes|no)/[0-9]{2}")),
        (
            {"type": "grammar", "grammar": 'start: "a" tail\ntail: /[xyz]{3}/', "syntax": "lark"},
            re.compile("a[xyz]{3}"),
        ),
    ],
)
def test_a_call_or_a_text_of_another_form(tooled: Live, form: Any, fits: re.Pattern[str]) -> None:
    for seed in range(4):
        response = ask(tooled, TIME, response_format=form, temperature=1.5, seed=seed)
        choice = choice_of(response)
        if choice["finish_reason"] == "stop":
            assert fits.fullmatch(choice["message"]["content"])
        else:
            assert calls_of(response)


def test_several_choices(tooled: Live) -> None:
    # T031
    body = {"tools": [WEATHER], "tool_choice": named("get_weather"), "n": 2, "temperature": 1, "max_tokens": 300}
    response = tooled.chat(**body)
    calls = [choice_of(response, index)["message"]["tool_calls"] for index in (0, 1)]
    assert [len(each) for each in calls] == [1, 1]
    assert calls[0][0]["id"] != calls[1][0]["id"]
    found = chunks(tooled, **body)
    for index in (0, 1):
        assert joined(found, index)["finish"] in ("tool_calls", "length")
        assert joined(found, index)["calls"][0]["name"] == "get_weather"


def test_best_of(tooled: Live) -> None:
    response = ask(tooled, WEATHER, tool_choice=named("get_weather"), best_of=3, temperature=1, max_tokens=300)
    assert len(calls_of(response)) == 1


def test_a_seed(tooled: Live) -> None:
    # T043
    first, second = (ask(tooled, WEATHER, tool_choice=named("get_weather"), temperature=1, seed=7) for _ in range(2))
    assert calls_of(first) == calls_of(second)
    assert first.headers["X-miLLM-Seed"].startswith("7;")


def test_eight_at_once(tooled: Live) -> None:
    # T044
    tools = [function(f"tool_{number}") for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda tool: ask(tooled, *tools, tool_choice=named(tool["function"]["name"])), tools))
    assert [calls_of(answer)[0][0] for answer in answers] == [tool["function"]["name"] for tool in tools]


def test_a_stop_cuts_no_call(tooled: Live) -> None:
    # T046
    for stop in ("}", '"', "get", ["{", "city"]):
        ((_, arguments),) = calls_of(ask(tooled, WEATHER, tool_choice=named("get_weather"), stop=stop))
        assert "city" in arguments


def test_scoring_calls_nothing(live: Live) -> None:
    # T047
    refused = ask(live, WEATHER, logprobs=True, max_tokens=1)
    assert refusal(refused) == (400, "field_not_honoured", "tools")


def test_logprobs_are_those_of_every_token(tooled: Live) -> None:
    body = {"tools": [WEATHER], "tool_choice": named("get_weather"), "logprobs": True, "top_logprobs": 2}
    response = tooled.chat(**body, max_tokens=200)
    content = choice_of(response)["logprobs"]["content"]
    assert len(content) == response.json()["usage"]["completion_tokens"]
    streamed = [
        entry
        for chunk in chunks(tooled, **body, max_tokens=200)
        for choice in chunk["choices"]
        for entry in (choice.get("logprobs") or {}).get("content", [])
    ]
    assert [entry["token"] for entry in streamed] == [entry["token"] for entry in content]


def test_a_call_that_the_cap_cuts(tooled: Live) -> None:
    whole = choice_of(ask(tooled, WEATHER, tool_choice=named("get_weather")))
    full = whole["message"]["tool_calls"][0]["function"]["arguments"]
    for cap in (3, 30, 52, 60, 70):
        body = {"tools": [WEATHER], "tool_choice": named("get_weather"), "max_tokens": cap}
        choice = choice_of(tooled.chat(**body))
        if choice["finish_reason"] == "tool_calls":
            continue
        assert choice["finish_reason"] == "length"
        streamed = joined(chunks(tooled, **body))
        assert streamed["finish"] == "length"
        if "tool_calls" in choice["message"]:
            (call,) = choice["message"]["tool_calls"]
            assert full.startswith(call["function"]["arguments"])
            assert streamed["calls"] == [{"name": "get_weather", "arguments": call["function"]["arguments"]}]
        else:
            assert choice["message"]["content"].lstrip().startswith("<")
            assert streamed["content"] == choice["message"]["content"]


def test_an_endless_answer_cannot_be_a_call(live: Live) -> None:
    refused = ask(live, WEATHER, tool_choice="required", ignore_eos=True)
    assert refusal(refused) == (400, "field_not_honoured", "ignore_eos")


# --- conversations ----------------------------------------------------------------------------------------------------


def round_of(*answers: dict[str, Any], calls: tuple[str, ...] = ("call_1",)) -> list[dict[str, Any]]:
    made = [
        {"id": call, "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
        for call in calls
    ]
    return [
        {"role": "user", "content": "the weather"},
        {"role": "assistant", "content": None, "tool_calls": made},
        *answers,
    ]


ANSWER = {"role": "tool", "tool_call_id": "call_1", "content": "twelve degrees"}


def test_a_full_round(tooled: Live) -> None:
    # T032
    response = ask(tooled, WEATHER, messages=round_of(ANSWER), max_tokens=8)
    assert response.status_code == 200
    assert IGNORED not in response.headers
    without = ask(tooled, WEATHER, messages=round_of({**ANSWER, "content": ""}), max_tokens=8)
    assert response.json()["usage"]["prompt_tokens"] > without.json()["usage"]["prompt_tokens"]
    parts = {**ANSWER, "content": [{"type": "text", "text": "twelve "}, {"type": "text", "text": "degrees"}]}
    again = ask(tooled, WEATHER, messages=round_of(parts), max_tokens=8)
    assert choice_of(again) == choice_of(response)


def test_an_answer_without_an_id(tooled: Live) -> None:
    # T034
    bare = {"role": "tool", "content": "twelve degrees"}
    assert ask(tooled, WEATHER, messages=round_of(bare), max_tokens=8).status_code == 200
    two = ask(tooled, WEATHER, messages=round_of(bare, calls=("call_1", "call_2")), max_tokens=8)
    assert refusal(two) == (400, "invalid_parameter", "messages.2.tool_call_id")
    unknown = ask(tooled, WEATHER, messages=round_of({**ANSWER, "tool_call_id": "call_9"}), max_tokens=8)
    assert refusal(unknown) == (400, "invalid_parameter", "messages.2.tool_call_id")
    legacy = {"role": "function", "name": "get_weather", "content": "twelve degrees"}
    assert ask(tooled, WEATHER, messages=round_of(legacy), max_tokens=8).status_code == 200


def test_calls_and_ids_on_other_roles(live: Live) -> None:
    # T035
    call = round_of()[1]["tool_calls"]
    assert refusal(live.chat(messages=[{"role": "user", "content": "a", "tool_call_id": "x"}]))[:2] == (
        400,
        "invalid_parameter",
    )
    assert refusal(live.chat(messages=[{"role": "user", "content": "a", "tool_calls": call}]))[0] == 400


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"id": ...}, "messages.1.tool_calls.0.id"),
        ({"id": ""}, "messages.1.tool_calls.0.id"),
        ({"type": "x"}, "messages.1.tool_calls.0.type"),
        ({"function": {"name": "", "arguments": "{}"}}, "messages.1.tool_calls.0.function.name"),
        ({"function": {"name": "f", "arguments": 3}}, "messages.1.tool_calls.0.function.arguments"),
        ({"function": ...}, "messages.1.tool_calls.0"),
    ],
)
def test_a_call_that_is_none(live: Live, changes: dict[str, Any], param: str) -> None:
    # T037
    call = {key: value for key, value in {**round_of()[1]["tool_calls"][0], **changes}.items() if value is not ...}
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}]
    status, code, found = refusal(live.chat(messages=messages))
    assert (status, code) == (400, "invalid_parameter")
    assert (found or "").startswith(param)


def test_a_call_that_nobody_answered(tooled: Live) -> None:
    # T038
    messages = [*round_of(), {"role": "user", "content": "never mind"}]
    assert ask(tooled, WEATHER, messages=messages, max_tokens=8).status_code == 200


def test_keys_of_messages(live: Live) -> None:
    # T040
    response = live.chat(messages=[{"role": "user", "content": "a", "name": "Ann"}])
    assert response.headers[IGNORED] == '"messages[0].name"'
    thinking = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "c"},
        {"role": "user", "content": "d", "reasoning": "e"},
    ]
    assert live.chat(messages=thinking).headers[IGNORED] == '"messages[2].reasoning"'


# --- other kinds of tools ---------------------------------------------------------------------------------------------


def test_tools_that_a_server_runs(tooled: Live) -> None:
    # T050
    beside = ask(tooled, WEATHER, SEARCH, max_tokens=8)
    assert beside.status_code == 200
    assert beside.headers[IGNORED] == '"tools[1]"'
    strict = ask(tooled, WEATHER, SEARCH, max_tokens=8, headers={"X-miLLM-Strict": "true"})
    assert refusal(strict)[:2] == (400, "unused_fields_refused")
    assert refusal(ask(tooled, SEARCH)) == (400, "unsupported_tool", "tools.0")
    asked = ask(tooled, WEATHER, SEARCH, tool_choice={"type": "web_search"})
    assert refusal(asked) == (400, "unsupported_tool", "tools.1")


def test_a_custom_tool(tooled: Live) -> None:
    # T052
    tool = {
        "type": "custom",
        "custom": {"name": "run", "description": "Runs it.", "format": {"type": "grammar", "syntax": "lark"}},
    }
    choice = {"type": "custom", "custom": {"name": "run"}}
    response = ask(tooled, tool, tool_choice=choice, max_tokens=600, temperature=1, seed=2)
    assert response.headers[IGNORED] == '"tools[0].format"'
    (call,) = choice_of(response)["message"]["tool_calls"]
    assert call["type"] == "custom"
    assert set(call["custom"]) == {"name", "input"}
    text = {"type": "custom", "custom": {"name": "run", "format": {"type": "text"}}}
    assert IGNORED not in ask(tooled, text, max_tokens=8).headers
    found = chunks(tooled, tools=[text], tool_choice=choice, max_tokens=120, temperature=1, seed=2)
    deltas = [call for chunk in found for c in chunk["choices"] for call in c["delta"].get("tool_calls", [])]
    assert deltas[0]["custom"] == {"name": "run", "input": ""}
    assert all(set(delta["custom"]) == {"input"} for delta in deltas[1:])


def test_parallel_tool_calls(live: Live) -> None:
    # T053
    assert refusal(live.chat(parallel_tool_calls="no"))[:2] == (400, "invalid_parameter")
    assert live.chat(parallel_tool_calls=True).headers[IGNORED] == '"parallel_tool_calls"'


def test_keys_of_tools_that_nobody_reads(tooled: Live) -> None:
    tool = {**WEATHER, "colour": "red"}
    tool["function"] = {**tool["function"], "tone": "warm"}
    assert ask(tooled, tool, max_tokens=8).headers[IGNORED] == '"tools[0].colour", "tools[0].tone"'


def test_functions_of_old(live: Live) -> None:
    refused = live.chat(functions=[WEATHER["function"]])
    assert refusal(refused) == (400, "field_not_honoured", "functions")
    assert "tools" in refused.json()["error"]["message"] + str(refused.json())


def test_refusals_load_nothing(tooled: Live, checkpoint: CheckpointMaker) -> None:
    # T055
    from engine.actions.models.importing import import_local_model

    other = import_local_model(tooled.engine.library, tooled.engine.events, checkpoint("qwen2"))
    schema = {"type": "object", "properties": {"a": {"not": {}}}}
    for body in (
        {"tools": [WEATHER], "tool_choice": "any"},
        {"tools": [function("f", {"type": "string"})]},
        {"tools": [function("f", schema, strict=True)]},
        {"tools": [SEARCH]},
        {"tools": [WEATHER], "tool_choice": "required", "response_format": FORM},
        {"tools": [WEATHER], "logprobs": True, "max_tokens": 1},
        {"messages": round_of({**ANSWER, "tool_call_id": "x"})},
    ):
        assert tooled.chat(model=other.name, **body).status_code == 400
        resident = tooled.engine.shelf.resident
        assert resident is not None
        assert resident.record.name == MODEL


# --- steering ---------------------------------------------------------------------------------------------------------


def test_a_call_under_steering(stage: Stage) -> None:
    # T041
    stage.attach()
    body = {"tools": [WEATHER], "tool_choice": named("get_weather"), "max_tokens": 300, "temperature": 0}
    steering = inline((3, 60.0), (5, -60.0))
    plain, steered, again = (stage.live.chat(**body, **more) for more in ({}, {"steering": steering}, {}))
    assert steered.headers[STEERING].startswith("inline")
    for response in (plain, steered):
        ((_, arguments),) = calls_of(response)
        jsonschema.validate(arguments, CITY)
    # What one steers stays with it, also where all are held to a form.
    assert calls_of(again) == calls_of(plain)
    assert calls_of(steered) != calls_of(plain)
    read = {"top_k": 4, "positions": "completion"}
    told = stage.live.chat(**body, steering=steering, return_sae_activations=read)
    assert calls_of(told) == calls_of(steered)
    assert told.json()["millm"]["sae_activations"]


# --- the other engine -------------------------------------------------------------------------------------------------


def test_calls_on_gguf(gguf: Live) -> None:
    # T056
    body = {"tools": [WEATHER], "tool_choice": named("get_weather"), "max_tokens": 300}
    response = gguf.chat(**body)
    ((name, arguments),) = calls_of(response)
    assert name == "get_weather"
    jsonschema.validate(arguments, CITY)
    (call,) = choice_of(response)["message"]["tool_calls"]
    streamed = joined(chunks(gguf, **{"model": response.json()["model"], **body}))
    assert streamed["calls"] == [{"name": name, "arguments": call["function"]["arguments"]}]
    begun = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Os'
    messages = [{"role": "user", "content": "the weather"}, {"role": "assistant", "content": begun}]
    gone_on = gguf.chat(tools=[WEATHER], messages=messages, max_tokens=200, parallel_tool_calls=False)
    assert calls_of(gone_on)[0][1]["city"].startswith("Os")


# --- templates that have tools ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "template",
    [
        made_templates.HERMES,
        made_templates.LLAMA3,
        made_templates.MISTRAL,
        made_templates.MISTRAL_ARGS,
        made_templates.QWEN_XML,
        made_templates.PYTHONIC,
        made_templates.PYTHONIC_BARE,
    ],
    ids=["hermes", "llama3", "mistral", "mistral-args", "qwen-xml", "pythonic", "pythonic-bare"],
)
def test_a_template_with_tools(
    tmp_path_factory: pytest.TempPathFactory, checkpoint: CheckpointMaker, template: str
) -> None:
    folder = checkpoint("llama", chat_template=template, max_positions=32768)
    engine = start_engine(folder, tmp_path_factory.mktemp("native") / "millm.db")
    thread = ServerThread(engine, ServerSettings(PORT=0))
    thread.start()
    live = Live(engine, thread, thread.wait_ready(READY_S))
    try:
        unit = {"type": "object", "properties": {"unit": {"enum": ["c", "k"]}}, "required": ["unit"]}
        body = {"tools": [function("measure", unit), TIME], "max_tokens": 400}
        response = live.chat(**body, tool_choice=named("measure"))
        ((name, arguments),) = calls_of(response)
        assert name == "measure"
        assert arguments["unit"] in ("c", "k")
        assert NOTES not in response.headers
        streamed = joined(chunks(live, **body, tool_choice=named("measure")))
        (call,) = choice_of(response)["message"]["tool_calls"]
        assert streamed["calls"] == [{"name": "measure", "arguments": call["function"]["arguments"]}]
        several = live.chat(**body, tool_choice="required", temperature=1, seed=3)
        assert several.status_code == 200
        told = live.chat(**body, messages=round_of(ANSWER))
        assert told.status_code == 200, told.text
    finally:
        thread.stop(5)
        stop_engine(engine)

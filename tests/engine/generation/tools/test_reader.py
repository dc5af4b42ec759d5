"""Calls found in an answer as it is written: on every cut, in every wire, and never where there is none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from engine.generation.text.parts import Kind, Part
from engine.generation.tools.json_wires import Generic, Hermes, Llama3, MistralArgs, MistralList
from engine.generation.tools.raw_wires import Pythonic, QwenXml
from engine.generation.tools.reader import CallReader
from engine.generation.tools.values import Tool, ToolKind, Tools
from engine.generation.tools.wire import Wire
from tests.engine.generation.tools.made_tools import PLAIN, TIME, WEATHER

Found = tuple[str, list[tuple[str, str]]]

_W = '{"city": "Oslo \\"}"}'
TEXTS: list[tuple[Callable[[], Wire], str, Found]] = [
    (
        Hermes,
        f'Sure. <tool_call>\n{{"name": "get_weather", "arguments": {_W}}}\n</tool_call>\n'
        '<tool_call>{"name": "get_time", "arguments": {}}</tool_call> done',
        ("Sure. done", [("get_weather", _W), ("get_time", "{}")]),
    ),
    (
        Generic,
        f'<tool_call>\n{{"name": "get_weather", "arguments": {_W}}}\n</tool_call>\n',
        ("", [("get_weather", _W)]),
    ),
    (
        Llama3,
        f'{{"name": "get_weather", "parameters": {_W}}}; {{"name": "get_time", "parameters": {{}}}}',
        ("", [("get_weather", _W), ("get_time", "{}")]),
    ),
    (
        Llama3,
        f'<|python_tag|>{{"type": "function", "name": "get_weather", "parameters": {_W}}}',
        ("", [("get_weather", _W)]),
    ),
    (
        MistralList,
        f'hi [TOOL_CALLS] [{{"name": "get_weather", "arguments": {_W}}}, '
        '{"name": "get_time", "arguments": {}, "id": "abc"}]',
        ("hi", [("get_weather", _W), ("get_time", "{}")]),
    ),
    (
        MistralArgs,
        f"hi [TOOL_CALLS]get_weather[ARGS]{_W}[TOOL_CALLS]get_time[CALL_ID]a1[ARGS]{{}}",
        ("hi", [("get_weather", _W), ("get_time", "{}")]),
    ),
    (
        QwenXml,
        'Sure. <tool_call>\n<function=get_weather>\n<parameter=city>\nOs "lo"\n</x\n</parameter>\n'
        "<parameter=n>\n3\n</parameter>\n<parameter=ok>\nTrue\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=get_time>\n</function>\n</tool_call>",
        ("Sure.", [("get_weather", '{"city": "Os \\"lo\\"\\n</x", "n": 3, "ok": true}'), ("get_time", "{}")]),
    ),
    (
        QwenXml,
        "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>",
        ("", [("get_weather", '{"city": "Oslo"}')]),
    ),
    (
        Pythonic,
        'hi <|tool_call_start|>[get_weather(city="Os\\"lo, )", n=[1, {"a": None}], ok=True), get_time()]'
        "<|tool_call_end|>",
        ("hi", [("get_weather", '{"city": "Os\\"lo, )", "n": [1, {"a": null}], "ok": true}'), ("get_time", "{}")]),
    ),
    (
        lambda: Pythonic(bare=True),
        "[get_weather(city='Oslo'), get_time()]",
        ("", [("get_weather", '{"city": "Oslo"}'), ("get_time", "{}")]),
    ),
]


def parts_of(wire: Wire, pieces: Sequence[str], tools: Tools = PLAIN) -> list[Part]:
    reader = CallReader(wire, tools, lambda text: True)
    parts = [part for piece in pieces for part in reader.feed(piece)]
    parts += reader.finish()
    assert "".join(part.text for part in parts) == "".join(pieces)
    return parts


def found(wire: Wire, pieces: Sequence[str], tools: Tools = PLAIN) -> Found:
    parts = parts_of(wire, pieces, tools)
    calls: dict[int, tuple[str, str]] = {}
    for part in parts:
        if part.call is not None:
            said = calls.get(part.call.number, (part.call.name, ""))[1]
            assert part.opens == (part.call.number not in calls)
            calls[part.call.number] = (part.call.name, said + part.told)
    content = "".join(part.text for part in parts if part.kind is Kind.CONTENT)
    return content, [calls[number] for number in sorted(calls)]


@pytest.mark.parametrize(("make", "text", "expected"), TEXTS)
def test_calls_are_found_on_every_cut(make: Callable[[], Wire], text: str, expected: Found) -> None:
    wire = make()
    assert found(wire, [text]) == expected
    assert found(wire, list(text)) == expected
    for place in range(len(text)):
        assert found(wire, [text[:place], text[place:]]) == expected
        for other in range(place, len(text), 7):
            assert found(wire, [text[:place], text[place:other], text[other:]]) == expected
    for _, arguments in expected[1]:
        json.loads(arguments)


@pytest.mark.parametrize(("make", "text", "expected"), TEXTS)
def test_an_answer_cut_anywhere_shows_names_only_when_whole(
    make: Callable[[], Wire], text: str, expected: Found
) -> None:
    whole = dict(expected[1])
    for length in range(len(text)):
        content, calls = found(make(), [text[:length]])
        for name, arguments in calls:
            assert whole[name].startswith(arguments)
        if not calls:
            # Until a name is whole everything is text, and nothing is lost.
            assert content.strip() == text[:length].strip()


NONE_AT_ALL = [
    (Hermes, 'Use <tool_call>\n{"name": "unknown", "arguments": {}}\n</tool_call> for it.'),
    (Hermes, "<tool_call>"),
    (Hermes, "a <tool_ call <tool_call and"),
    (Hermes, '<tool_call>{"arguments": {}, "name": "get_time"}</tool_call>'),
    (Llama3, 'So: {"name": "get_time", "parameters": {}}'),
    (Llama3, '{"name": "Bob", "parameters": {}}'),
    (Llama3, '{"title": "get_time"}'),
    (MistralList, "[TOOL_CALLS] none"),
    (MistralArgs, "[TOOL_CALLS]get_timer[ARGS]{}"),
    (QwenXml, "<function=unknown>"),
    (lambda: Pythonic(bare=True), "[see get_time()]"),
    (lambda: Pythonic(bare=True), "I call [get_time()]"),
]


@pytest.mark.parametrize(("make", "text"), NONE_AT_ALL)
def test_what_only_looks_like_a_call_is_text(make: Callable[[], Wire], text: str) -> None:
    for pieces in ([text], list(text)):
        assert found(make(), pieces) == (text, [])


def test_what_does_not_fit_is_text() -> None:
    text = 'a <tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
    for pieces in ([text], list(text)):
        reader = CallReader(Hermes(), PLAIN, lambda asked: False)
        parts = [part for piece in pieces for part in reader.feed(piece)] + reader.finish()
        assert "".join(part.text for part in parts if part.kind is Kind.CONTENT) == text


def test_a_longer_name_is_not_taken_for_a_shorter() -> None:
    tools = Tools((Tool("get"), Tool("get_all")))
    for name in ("get", "get_all"):
        text = f'<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>'
        assert found(Hermes(), list(text), tools) == ("", [(name, "{}")])


def test_only_what_may_be_called_is() -> None:
    tools = Tools((WEATHER, TIME), callable=frozenset({"get_weather"}))
    text = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
    assert found(Hermes(), [text], tools) == (text, [])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            Hermes,
            '<tool_call>{"name": "run", "arguments": {"input": "a\\n\\"b\\" \\u00e9 \\ud83d\\ude42 c"}}</tool_call>',
        ),
        (Llama3, '{"name": "run", "parameters": {"input": "a\\n\\"b\\" \\u00e9 \\ud83d\\ude42 c"}}'),
        (QwenXml, '<function=run>\n<parameter=input>\na\n"b" é 🙂 c\n</parameter>\n</function>\n</tool_call>'),
        (Pythonic, '<|tool_call_start|>[run(input="a\\n\\"b\\" é 🙂 c")]<|tool_call_end|>'),
    ],
)
def test_a_custom_tool_is_told_its_text(make: Callable[[], Wire], text: str) -> None:
    tools = Tools((Tool("run", kind=ToolKind.CUSTOM),))
    for place in range(len(text)):
        assert found(make(), [text[:place], text[place:]], tools) == ("", [("run", 'a\n"b" é 🙂 c')])
    assert found(make(), list(text), tools) == ("", [("run", 'a\n"b" é 🙂 c')])


def test_little_is_held_back() -> None:
    reader = CallReader(Hermes(), PLAIN, lambda text: True)
    shown = ""
    for character in "a sentence < with <b>tags</b> and <tool in it, then words":
        shown += "".join(part.text for part in reader.feed(character))
    assert shown == "a sentence < with <b>tags</b> and <tool in it, then words"


def test_white_space_without_end_is_let_out() -> None:
    reader = CallReader(Hermes(), PLAIN, lambda text: True)
    parts = [part for _ in range(2000) for part in reader.feed(" ")]
    assert sum(len(part.text) for part in parts) > 1500

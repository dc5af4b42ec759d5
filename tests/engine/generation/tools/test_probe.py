"""Which wire a model speaks, told from what its template makes of a call."""

from __future__ import annotations

from typing import Any

import pytest

from engine.generation.prompts import NOTE_FOLDED, prepare_chat
from engine.generation.request import ChatInput, Message
from engine.generation.tools.probe import tool_form
from engine.generation.tools.turns import NOTE_DESCRIBED, NOTE_NO_TEXT, NOTE_SPLIT, NOTE_UNREAD
from engine.generation.tools.values import PastCall
from engine.models.backends.tokenizer import CheckpointTokenizer
from tests.engine.generation.tools import made_templates
from tests.engine.generation.tools.made_tools import PLAIN
from tests.tiny import CHAT_TEMPLATE, build_tokenizer


def made(template: str | None) -> CheckpointTokenizer:
    return CheckpointTokenizer(build_tokenizer(chat_template=template))


@pytest.mark.parametrize(
    ("template", "name", "native", "as_text"),
    [
        (made_templates.HERMES, "hermes", True, False),
        (made_templates.HERMES_OF_TEXT, "hermes", True, True),
        (made_templates.LLAMA3, "llama3", True, False),
        (made_templates.MISTRAL, "mistral", True, False),
        (made_templates.MISTRAL_ARGS, "mistral", True, False),
        (made_templates.QWEN_XML, "qwen-xml", True, False),
        (made_templates.PYTHONIC, "pythonic", True, False),
        (made_templates.PYTHONIC_BARE, "pythonic", True, False),
        (made_templates.UNREAD, "generic", False, False),
        (CHAT_TEMPLATE, "generic", False, False),
        (None, "generic", False, False),
        ("{{ raise_exception('no') }}", "generic", False, False),
    ],
)
def test_the_wire_of_a_template(template: str | None, name: str, native: bool, as_text: bool) -> None:
    form = tool_form(made(template))
    assert (form.wire.name, form.native, form.arguments_as_text) == (name, native, as_text)
    assert form.unread == (template == made_templates.UNREAD)


ASKED = Message("user", "Weather in Oslo?")
CALLED = Message("assistant", None, calls=(PastCall("call_1", "get_weather", '{"city": "Oslo"}'),))
TOLD = Message("tool", "12 degrees", call_id="call_1", name="get_weather")


def prompt(template: str | None, *messages: Message, tools: Any = PLAIN.offered) -> tuple[str, tuple[str, ...]]:
    prepared, notes, _ = prepare_chat(made(template), ChatInput(messages), tools=tools)
    return prepared.text, notes


@pytest.mark.parametrize(
    ("template", "call"),
    [
        (made_templates.HERMES, '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'),
        (made_templates.HERMES_OF_TEXT, '{"name": "get_weather", "arguments": {"city": "Oslo"}}'),
        (made_templates.LLAMA3, '{"name": "get_weather", "parameters": {"city": "Oslo"}}'),
        (made_templates.MISTRAL, '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo"}, "id": "'),
        (made_templates.MISTRAL_ARGS, '[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}'),
        (made_templates.QWEN_XML, "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>"),
        (made_templates.PYTHONIC, '<|tool_call_start|>[get_weather(city="Oslo")]<|tool_call_end|>'),
    ],
)
def test_a_round_through_the_template(template: str, call: str) -> None:
    text, notes = prompt(template, ASKED, CALLED, TOLD)
    assert call in text
    assert "12 degrees" in text
    assert '"description": "The weather of a city."' in text
    assert notes == ()


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, None, made_templates.UNREAD])
def test_a_round_in_words(template: str | None) -> None:
    text, notes = prompt(template, ASKED, CALLED, TOLD)
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>' in text
    assert "<tool_response>\n12 degrees\n</tool_response>" in text
    assert '"description": "The weather of a city."' in text
    assert (NOTE_UNREAD if template == made_templates.UNREAD else NOTE_DESCRIBED) in notes


def test_keys_of_a_schema_keep_their_order() -> None:
    text, _ = prompt(CHAT_TEMPLATE, ASKED)
    assert text.index('"city"') < text.index('"unit"')


def test_the_description_stands_behind_the_system_text() -> None:
    text, _ = prompt(CHAT_TEMPLATE, Message("system", "Be brief."), ASKED)
    assert text.startswith("<|im_start|>system\nBe brief.\n\n")
    assert text.count("<|im_start|>system") == 1


def test_a_template_that_knows_no_system_role_is_told_all_the_same() -> None:
    template = CHAT_TEMPLATE.replace(
        "{% for m in messages %}",
        "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}",
    )
    text, notes = prompt(template, ASKED)
    assert '"description": "The weather of a city."' in text
    assert set(notes) == {NOTE_FOLDED, NOTE_DESCRIBED}


def test_a_template_that_takes_one_call_a_turn() -> None:
    both = Message(
        "assistant",
        "Looking.",
        calls=(PastCall("a", "get_weather", '{"city": "Oslo"}'), PastCall("b", "get_time", "{}")),
    )
    answers = (
        Message("tool", "noon", call_id="b", name="get_time"),
        Message("tool", "rain", call_id="a", name="get_weather"),
    )
    text, notes = prompt(made_templates.LLAMA3, ASKED, both, *answers)
    assert text.index('"get_weather", "parameters"') < text.index("rain") < text.index('"get_time", "parameters"')
    assert text.index('"get_time", "parameters"') < text.index("noon")
    assert notes == (NOTE_SPLIT, NOTE_NO_TEXT)  # nor does it write text beside a call
    assert "Looking." not in text


def test_ids_are_made_as_mistral_takes_them() -> None:
    text, _ = prompt(made_templates.MISTRAL, ASKED, CALLED, TOLD)
    shown = text.split('"id": "')[1].split('"')[0]
    assert len(shown) == 9
    assert shown.isalnum()
    assert f'"call_id": "{shown}"' in text  # the answer names the same one


def test_arguments_that_are_no_object_stay_text() -> None:
    odd = Message("assistant", None, calls=(PastCall("c", "get_weather", "not json"),))
    text, _ = prompt(made_templates.HERMES, ASKED, odd, TOLD)
    assert '"arguments": "not json"' in text


def test_without_tools_the_calls_of_a_conversation_are_still_told() -> None:
    text, notes = prompt(made_templates.HERMES, ASKED, CALLED, TOLD, tools=())
    assert '<tool_call>\n{"name": "get_weather"' in text
    assert "The weather of a city" not in text
    assert notes == ()

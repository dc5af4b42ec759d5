"""How much to reason, in a word: what becomes of it with each kind of chat template."""

from __future__ import annotations

from typing import Any

import pytest

from engine.generation.effort import settled, snapped, with_effort
from engine.generation.request import ChatInput, Effort, Message, TextInput
from tests.engine.generation.made_tokenizers import byte_level

SAID = "{% for m in messages %}{{ m.content }}{% endfor %}"
THREE = (
    SAID
    + "{% set effort = reasoning_effort | default('medium') %}{% if effort == 'low' %}L{% elif effort == 'high' %}H"
    "{% else %}M{% endif %}"
)


def chat(effort: str | None, **variables: Any) -> ChatInput:
    return ChatInput((Message("user", "x"),), variables, None if effort is None else Effort(effort))


def given(template: str | None, effort: str, **variables: Any) -> tuple[dict[str, Any], bool]:
    made, used = with_effort(byte_level(chat_template=template), chat(effort, **variables))
    assert made.effort is None
    return dict(made.template_kwargs), used


@pytest.mark.parametrize(
    ("template", "levels"),
    [
        (THREE, {"low", "medium", "high"}),
        (SAID + "{% if reasoning_effort in ['none', 'high'] %}x{% endif %}", {"none", "high"}),
        (
            SAID + "{% if reasoning_effort | lower == 'low' or 'high' == reasoning_effort %}x{% endif %}",
            {"low", "high"},
        ),
        (
            SAID
            + "{% if not reasoning_effort %}{% set reasoning_effort = 'medium' %}{% endif %}{{ reasoning_effort }}",
            set(),
        ),
        (SAID + "{% if role == 'low' %}x{% endif %}{{ reasoning_effort }}", set()),
        ("{% for %}", set()),
    ],
)
def test_levels_a_template_tells_apart(template: str, levels: set[str]) -> None:
    assert byte_level(chat_template=template).template_levels("reasoning_effort") == levels


@pytest.mark.parametrize(
    ("effort", "level"),
    [
        ("none", "low"),
        ("minimal", "low"),
        ("low", "low"),
        ("medium", "medium"),
        ("high", "high"),
        ("xhigh", "high"),
        ("max", "high"),
    ],
)
def test_the_nearest_level(effort: str, level: str) -> None:
    assert given(THREE, effort) == ({"reasoning_effort": level}, True)


def test_a_tie_goes_up() -> None:
    assert snapped(Effort.MEDIUM, {"low", "high"}) is Effort.HIGH
    assert snapped(Effort.LOW, {"none", "high"}) is Effort.HIGH
    assert snapped(Effort.MINIMAL, {"none", "high"}) is Effort.NONE


def test_one_known_level_says_nothing_of_the_others() -> None:
    template = SAID + "{% if reasoning_effort == 'none' %}x{% endif %}"
    assert given(template, "high") == ({"reasoning_effort": "high"}, True)
    assert given(SAID + "{{ reasoning_effort }}", "xhigh") == ({"reasoning_effort": "xhigh"}, True)


@pytest.mark.parametrize("effort", list(Effort))
def test_a_switch(effort: Effort) -> None:
    on = effort not in (Effort.NONE, Effort.MINIMAL)
    assert given(SAID + "{% if enable_thinking %}T{% endif %}", effort.value) == ({"enable_thinking": on}, True)


def test_where_it_has_no_effect() -> None:
    switch = SAID + "{% if enable_thinking %}T{% endif %}"
    assert given(SAID, "low") == ({}, False)
    assert given(None, "low") == ({}, False)
    # What is set by name wins.
    assert given(switch, "none", enable_thinking=True) == ({"enable_thinking": True}, False)
    assert given(THREE, "high", reasoning_effort="low") == ({"reasoning_effort": "low"}, False)
    assert given(THREE, "high", enable_thinking=True) == ({"enable_thinking": True, "reasoning_effort": "high"}, True)


def test_all_forms_of_input() -> None:
    tokenizer = byte_level(chat_template=SAID)
    assert settled(tokenizer, chat(None)) == (chat(None), ())
    assert settled(tokenizer, chat("low")) == (chat(None), ("reasoning_effort",))
    assert settled(tokenizer, (chat("low"), chat(None))) == ((chat(None), chat(None)), ("reasoning_effort",))
    assert settled(tokenizer, TextInput(("a",))) == (TextInput(("a",)), ())

"""Chat templates in a process of their own: those that never end, those that lose what was said, those that work."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from engine.errors import InvalidParameter
from engine.generation.prompts import NOTE_FOLDED, prepare_chat
from engine.generation.request import ChatInput, Message
from engine.models.backends.templates import chat as chat_templates
from engine.models.backends.templates import renderer
from engine.models.backends.templates.chat import ChatTemplate, TemplateCostly, TemplateLost, TemplateRaised, chosen
from engine.models.backends.templates.renderer import Renderer, TooCostly, shared
from tests.engine.generation.made_tokenizers import byte_level

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PARTS = (
    "{% for m in messages %}<{{ m['role'] }}>{% for part in m['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}\n{% endfor %}"
)
SYSTEM_AS_TEXT = (
    "{% for m in messages %}<{{ m['role'] }}>{% if m['role'] == 'system' %}{{ m['content'] + '' }}"
    "{% else %}{% for part in m['content'] %}{{ part['text'] }}{% endfor %}{% endif %}{% endfor %}"
)
HOSTILE = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "a power": "{{ 9 ** (9 ** (9 ** 9)) }}",
    "a text multiplied": "{{ 'a' * 10 ** 10 }}",
    "a width": "{{ '%3000000000d' % 1 }}",
    "a centred text": "{{ 'a' | center(3000000000) }}",
    "indented": "{{ 'a' | indent(3000000000, true) }}",
    "doubling": "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "a tree of lists": "{% set ns = namespace(x=['ab']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | string }}",
    "two gigabytes": "{% for i in range(20000) %}{{ 'a' * 100000 }}{% endfor %}",
    "lorem ipsum": "{{ lipsum(n=1000000000) }}",
    "a batch": "{{ [1] | batch(1000000000, 'x') | list }}",
    "macros that call themselves": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less patience than the program has: what never ends is the same after half a second."""
    monkeypatch.setattr(renderer, "CPU_S", 0.5)


def told(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


def render(template: ChatTemplate, *turns: tuple[str, str], **variables: Any) -> str:
    return template.render(told(*turns), add_generation_prompt=True, continue_final=False, kwargs=variables)


# --- what does not end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_a_template_that_takes_too_much_is_ended_and_named(name: str) -> None:
    template = ChatTemplate(HOSTILE[name] + CHATML, {})
    fault = template.fault()
    assert fault is not None
    assert fault.startswith("The template ")
    with pytest.raises(TemplateRaised):
        render(template, ("user", "the sea"))
    # The next template finds a renderer as if nothing had been.
    assert render(ChatTemplate(CHATML, {}), ("user", "the sea")).startswith("<|im_start|>user\nthe sea")


def test_others_are_rendered_while_one_does_not_end() -> None:
    endless = ChatTemplate(
        CHATML + "{% for a in range(n or 1) %}{% for b in range(n or 1) %}{% endfor %}{% endfor %}", {}
    )
    assert render(endless, ("user", "a"), n=1).startswith("<|im_start|>user\na")
    ended = threading.Event()
    raised: list[Exception] = []

    def go_on() -> None:
        try:
            render(endless, ("user", "a"), n=99999)
        except TemplateRaised as error:
            raised.append(error)
        ended.set()

    threading.Thread(target=go_on).start()
    # The very same template, as another request meets it: nothing is held while the first one runs.
    assert render(endless, ("user", "b"), n=1).startswith("<|im_start|>user\nb")
    assert not ended.is_set()
    assert ended.wait(60)
    assert isinstance(raised[0], TemplateCostly)
    assert endless.fault() is None  # it was that request's variable, not the template


def test_the_refusal_blames_the_template_where_no_conversation_works() -> None:
    with pytest.raises(InvalidParameter, match="does not end") as refusal:
        prepare_chat(byte_level(chat_template=HOSTILE["nested loops"]), ChatInput((Message("user", "x"),)))
    assert refusal.value.param == "model"
    slow = byte_level(
        chat_template=CHATML + "{% for a in range(n or 1) %}{% for b in range(n or 1) %}{% endfor %}{% endfor %}"
    )
    with pytest.raises(InvalidParameter, match="does not end") as refusal:
        prepare_chat(slow, ChatInput((Message("user", "x"),), {"n": 99999}))
    assert refusal.value.param == "messages"


def test_a_template_of_ten_megabytes_of_brackets_is_a_refusal() -> None:
    assert ChatTemplate("{{ " + "(" * 5_000_000 + "1" + ")" * 5_000_000 + " }}", {}).fault() is not None
    assert ChatTemplate("{% if a %}" * 2000 + "{% endif %}" * 2000, {}).variables() is None


def test_a_renderer_that_was_killed_is_replaced() -> None:
    mine = Renderer()
    mine.warm()
    mine._idle[0].process.kill()
    job = {"do": "variables", "source": "{{ a }}"}
    with pytest.raises(TooCostly):
        mine.run(job)
    assert mine.run(job)[0] == {"variables": ["a"]}
    mine.close()


# --- what was said is in what is rendered -----------------------------------------------------------------------------


def test_a_template_that_loops_over_parts_is_given_parts() -> None:
    template = ChatTemplate(PARTS, {})
    assert render(template, ("system", "calm"), ("user", "x")) == "<system>calm<user>x"
    assert ChatTemplate(CHATML, {})._looked().parts == frozenset()


def test_a_template_may_want_text_from_one_role_and_parts_from_another() -> None:
    assert render(ChatTemplate(SYSTEM_AS_TEXT, {}), ("system", "calm"), ("user", "x")) == "<system>calm<user>x"


def test_a_template_that_writes_any_content_as_it_stands_gets_text() -> None:
    template = ChatTemplate("{{ messages }}", {})
    assert render(template, ("user", "hello")) == "[{'role': 'user', 'content': 'hello'}]"


def test_parts_left_open_are_continued() -> None:
    template = ChatTemplate(PARTS, {})
    messages = told(("user", "a"), ("assistant", "The sea is "))
    text = template.render(messages, add_generation_prompt=False, continue_final=True, kwargs={})
    assert text == "<user>a<assistant>The sea is "


@pytest.mark.parametrize(
    ("template", "turns"),
    [
        ("{% for m in messages %}{{ m.content | trim }}|{% endfor %}", [("user", "  the sea \n")]),
        ("{% for m in messages %}{{ m.content | lower }}|{% endfor %}", [("user", "The SEA")]),
        ("{% for m in messages %}{{ m.content | e }}|{% endfor %}", [("user", 'a < b && "c"')]),
        ("{% for m in messages %}{{ m.content | tojson }}|{% endfor %}", [("user", 'a\n"b"\té')]),
        (
            "{% for m in messages %}{{ m.content.split('</think>')[-1].strip() }}|{% endfor %}",
            [("user", "a"), ("assistant", "<think>long thoughts</think>\n\nThe sea."), ("user", "b")],
        ),
    ],
)
def test_templates_that_change_what_may_be_changed_pass(template: str, turns: list[tuple[str, str]]) -> None:
    assert render(ChatTemplate(template, {}), *turns)


def test_a_role_that_a_template_passes_over_is_noticed_whatever_it_says() -> None:
    silent = "{% for m in messages %}{% if m['role'] != 'system' %}<{{ m['role'] }}>{{ m['content'] }}{% endif %}{% endfor %}"
    with pytest.raises(TemplateLost, match=r"message 0 \(role system\)"):
        render(ChatTemplate(silent, {}), ("system", "user"), ("user", "x"))
    asked = ChatInput((Message("system", "Be calm."), Message("user", "x")))
    prompt, notes, _ = prepare_chat(byte_level(chat_template=silent), asked)
    assert (prompt.text, notes) == ("<user>Be calm.\n\nx", (NOTE_FOLDED,))


def test_what_a_template_leaves_out_is_refused_with_its_place() -> None:
    last = "{{ messages[-1]['content'] }}"
    asked = ChatInput((Message("user", "one thing"), Message("assistant", "yes"), Message("user", "another")))
    with pytest.raises(InvalidParameter, match=r"leaves out what message \d") as refusal:
        prepare_chat(byte_level(chat_template=last), asked)
    assert refusal.value.param == "messages"
    with pytest.raises(InvalidParameter, match="leaves out") as refusal:
        prepare_chat(byte_level(chat_template="Answer: "), ChatInput((Message("user", "e"),)))
    assert refusal.value.param == "model"


# --- templates that never work, and several of them -------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["{% for m in messages %}{{ m['content'] }", "{{ nothing.there }}", "{{ 1 / 0 }}"])
def test_a_template_that_can_never_render_is_not_blamed_on_the_conversation(broken: str) -> None:
    with pytest.raises(InvalidParameter, match="as it does every other") as refusal:
        prepare_chat(byte_level(chat_template=broken), ChatInput((Message("user", "x"),)))
    assert refusal.value.param == "model"


def test_of_several_templates_the_default_counts() -> None:
    assert chosen({"default": "d", "chat": "c"}) == ("d", None)
    assert chosen({"rag": "r"}) == ("r", None)
    assert chosen({"rag": "r", "chat": "c"})[0] == "c"
    assert chosen({"a": "A", "b": "B"})[0] == "A"
    assert chosen({}) == (None, None)
    assert chosen(None) == (None, None)
    assert chosen("x") == ("x", None)


def test_a_choice_between_templates_is_noted() -> None:
    tokenizer = byte_level(chat_template={"chat": CHATML, "rag": PARTS})
    prompt, notes, _ = prepare_chat(tokenizer, ChatInput((Message("user", "x"),)))
    assert prompt.text.startswith("<|im_start|>user\nx")
    assert notes == ("The model has several chat templates and none is called default; 'chat' was used.",)


# --- the same as transformers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "template",
    [
        CHATML,
        "  {%- if true %}\n    {{- messages | tojson(indent=2) }}\n  {% endif %}\n\nend",
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
        "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ m.content }}{% endfor %}",
        "{{ bos_token }}{{ dict(a=1) }}{{ tools is none }}{{ documents }}{{ strftime_now('%Y') }}{{ messages }}",
    ],
)
def test_templates_come_out_as_in_transformers(template: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    messages = told(("user", "the <sea> é"), ("assistant", "is\nold"))
    variables = {"bos_token": "<s>"}
    expected = render_jinja_template([messages], chat_template=template, add_generation_prompt=True, **variables)[0][0]
    assert render(ChatTemplate(template, variables), ("user", "the <sea> é"), ("assistant", "is\nold")) == expected


def test_trials_share_no_words() -> None:
    words = [content for trial in chat_templates._LATER_ROLES.values() for _, content in trial]
    assert len(set(words)) == 5
    assert shared() is shared()

"""Models with and without chat templates, with and without a BOS, over the wire."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.engine import Engine
from tests.conftest import CheckpointMaker
from tests.contract.conftest import Live

Start = Callable[..., Live]


@pytest.fixture
def start(own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker) -> Start:
    """A function from options of a checkpoint to a server on it."""

    def on(**options: object) -> Live:
        return serve(own_engine(checkpoint("llama", **options)))

    return on


def test_without_a_template(start: Start) -> None:
    live = start(chat_template=None)
    plain = live.chat()
    assert plain.status_code == 200  # A101
    assert "generic turns" in plain.headers["X-miLLM-Notes"]
    for options in ({"chat_template_kwargs": {"a": 1}}, {"enable_thinking": False}):
        refused = live.chat(**options)
        assert refused.status_code == 400  # A100
        assert refused.json()["error"]["code"] == "no_chat_template"
        assert live.chat(stream=True, **options).status_code == 400


def test_one_bos_and_only_one(start: Start) -> None:
    without, adding = start(), start(add_bos=True)
    plain = without.text().json()["usage"]["prompt_tokens"]
    assert adding.text().json()["usage"]["prompt_tokens"] == plain + 1  # A104
    assert adding.text(add_special_tokens=False).json()["usage"]["prompt_tokens"] == plain
    chat = without.chat().json()["usage"]["prompt_tokens"]
    assert adding.chat().json()["usage"]["prompt_tokens"] == chat + 1  # A103


def test_template_variables_reach_the_template(start: Start) -> None:
    template = (
        "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if shout %}{{ ' AND LOUD' }}{% endif %}"
        "{% if enable_thinking %}{{ ' THINKING' }}{% endif %}"
    )
    live = start(chat_template=template)

    def prompt_tokens(**options: object) -> int:
        response = live.chat(**options)
        assert response.status_code == 200
        assert "X-miLLM-Ignored-Fields" not in response.headers
        return int(response.json()["usage"]["prompt_tokens"])

    base = prompt_tokens()
    loud = prompt_tokens(chat_template_kwargs={"shout": True})
    assert loud > base
    assert prompt_tokens(chat_template_kwargs='{"shout": true}') == loud
    assert prompt_tokens(chat_template_kwargs=["", {"shout": True}]) == loud
    assert prompt_tokens(enable_thinking=True) > base


def test_a_template_that_refuses(start: Start) -> None:
    template = (
        "{% for m in messages %}{% if m['content'] == 'b' %}{{ raise_exception('no such words') }}{% endif %}"
        "{{ m['content'] }}{% endfor %}"
    )
    live = start(chat_template=template)
    refused = live.chat(messages=[{"role": "user", "content": "b"}])
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "messages"
    assert "no such words" in refused.json()["error"]["message"]


def test_a_template_that_knows_no_system_role(start: Start) -> None:
    template = (
        "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{{ m['content'] }}{% endfor %}"
    )
    live = start(chat_template=template)
    folded = live.chat(messages=[{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}])
    assert folded.status_code == 200
    assert "system text was moved" in folded.headers["X-miLLM-Notes"]


def test_a_trailing_assistant_message_is_continued(live: Live) -> None:
    asked = [{"role": "user", "content": "the sea"}]
    whole = live.chat(messages=asked, max_tokens=12).json()["choices"][0]["message"]["content"]
    begun = live.chat(messages=[*asked, {"role": "assistant", "content": "was calm"}], max_tokens=12)
    assert begun.status_code == 200
    # The partial is read as the beginning of the answer, so what follows is neither a restart nor a repeat.
    assert begun.json()["choices"][0]["message"]["content"] != whole
    assert begun.json()["usage"]["prompt_tokens"] > live.chat(messages=asked).json()["usage"]["prompt_tokens"]


def test_a_turn_after_one_that_was_cut_off(start: Start) -> None:
    template = (
        "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"
    )
    live = start(chat_template=template)
    # The answer between the two was stopped before its first token, so a client has nothing to put there.
    merged = live.chat(messages=[{"role": "user", "content": "the sea"}, {"role": "user", "content": "and the ship"}])
    assert merged.status_code == 200
    assert "neighbouring turns of one role were merged" in merged.headers["X-miLLM-Notes"]
    one = live.chat(messages=[{"role": "user", "content": "the sea\n\nand the ship"}])
    assert merged.json()["choices"] == one.json()["choices"]
    assert "X-miLLM-Notes" not in one.headers

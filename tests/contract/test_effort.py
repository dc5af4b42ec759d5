"""``reasoning_effort`` over a real socket, and fields beside it that other servers know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.engine import Engine
from tests.contract.conftest import Live

IGNORED = "X-miLLM-Ignored-Fields"
SAID = "{% for m in messages %}{{ m['content'] }}{% endfor %}"

Start = Callable[[str | None], Live]


@pytest.fixture
def start(own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: Callable[..., Any]) -> Start:
    """A function that serves a model with a chat template of the test's own."""

    def make(template: str | None) -> Live:
        return serve(own_engine(checkpoint("llama", chat_template=template)))

    return make


def tokens(live: Live, **body: Any) -> tuple[int, str | None]:
    """Tokens of the prompt, and what was ignored."""
    response = live.chat(model=live.engine.shelf.resident.record.name, **body)  # type: ignore[union-attr]
    assert response.status_code == 200, response.text
    return response.json()["usage"]["prompt_tokens"], response.headers.get(IGNORED)


def test_a_template_that_is_switched(start: Start) -> None:
    live = start(SAID + "{% if enable_thinking %}{{ ' think long and well' }}{% endif %}")
    off, on = tokens(live, enable_thinking=False), tokens(live, enable_thinking=True)
    assert off[0] < on[0]
    for effort in ("none", "minimal"):  # T179
        assert tokens(live, reasoning_effort=effort) == off
    for effort in ("low", "medium", "high", "xhigh", "max"):
        assert tokens(live, reasoning_effort=effort) == on
    both = {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}}
    assert tokens(live, **both) == (on[0], '"reasoning_effort"')
    assert tokens(live, reasoning_effort="none", max_tokens=1, logprobs=True) == off


def test_a_template_with_levels(start: Start) -> None:
    live = start(
        SAID + "{% if reasoning_effort == 'low' %} a{% elif reasoning_effort == 'high' %} a b c d e f g{% endif %}"
    )
    low, high = (tokens(live, chat_template_kwargs={"reasoning_effort": word}) for word in ("low", "high"))
    assert low[0] < high[0]
    assert tokens(live, reasoning_effort="none") == low
    assert tokens(live, reasoning_effort="medium") == high
    assert tokens(live, reasoning_effort="max", chat_template_kwargs={"reasoning_effort": "low"}) == (
        low[0],
        '"reasoning_effort"',
    )


@pytest.mark.parametrize("template", [SAID, None])
def test_a_template_that_reads_neither(start: Start, template: str | None) -> None:
    live = start(template)
    name = live.engine.shelf.resident.record.name  # type: ignore[union-attr]
    plain = tokens(live)[0]
    assert tokens(live, reasoning_effort="low") == (plain, '"reasoning_effort"')  # T179
    strict = live.chat(model=name, reasoning_effort="low", headers={"X-miLLM-Strict": "true"})
    assert strict.json()["error"]["code"] == "unused_fields_refused"
    if template is not None:
        scored = live.chat(model=name, reasoning_effort="low", max_tokens=1, logprobs=True)
        assert scored.headers[IGNORED] == '"reasoning_effort"'


def test_wrong_values(live: Live) -> None:
    for value in ("banana", "", 3, True):  # T179
        error = live.chat(reasoning_effort=value).json()["error"]
        assert (error["code"], error["param"]) == ("invalid_parameter", "reasoning_effort")
    assert live.chat(reasoning_effort=None).headers.get(IGNORED) is None
    assert live.text(reasoning_effort="low").headers[IGNORED] == '"reasoning_effort"'


def test_an_alias_gives_way(start: Start, serve: Callable[..., Live]) -> None:
    live = start(SAID + "{% if enable_thinking %}{{ ' think long and well' }}{% endif %}")
    name = live.engine.shelf.resident.record.name  # type: ignore[union-attr]
    named = serve(
        live.engine, MODEL_ALIASES={"thinker": {"model": name, "chat_template_kwargs": {"enable_thinking": True}}}
    )

    def prompt(**body: Any) -> int:
        return int(named.chat(model="thinker", **body).json()["usage"]["prompt_tokens"])

    assert prompt() == tokens(live, enable_thinking=True)[0]
    assert prompt(reasoning_effort="none") == tokens(live)[0]
    assert prompt(enable_thinking=False) == tokens(live)[0]


@pytest.mark.parametrize(
    ("name", "value", "neutral"),
    [
        ("verbosity", "low", "medium"),
        ("web_search_options", {}, None),
        ("audio", {"voice": "x"}, None),
        ("prediction", {"type": "content", "content": "x"}, None),
        ("modalities", ["text", "audio"], ["text"]),
    ],
)
def test_what_would_change_the_text(live: Live, name: str, value: Any, neutral: Any) -> None:
    for ask in (live.chat, live.text):
        error = ask(**{name: value}).json()["error"]
        assert (error["code"], error["param"]) == ("field_not_honoured", name)
        assert ask(**{name: neutral}).status_code == 200


@pytest.mark.parametrize("name", ["moderation", "prompt_cache_options", "prompt_cache_retention", "routing_key"])
def test_what_is_about_the_caller(live: Live, name: str) -> None:
    for ask in (live.chat, live.text):
        assert ask(**{name: "x"}).headers[IGNORED] == f'"{name}"'


def test_gguf_reports_it(gguf: Live) -> None:
    assert gguf.chat(reasoning_effort="low").headers[IGNORED] == '"reasoning_effort"'

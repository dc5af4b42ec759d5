"""Answers held to a regular expression or a grammar, over a real socket; what is hostile neither stalls nor breaks it."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from engine.generation.response_format import ResponseFormat
from tests.contract.conftest import MODEL, Live
from tests.contract.stage import STEERING, Stage, inline
from tests.contract.test_streaming import events, text_of

CONSTRAINED = "X-miLLM-Constrained"
PLATE = r"[A-Z]{2}-\d{3,4}"
SUM = 'start: sum\nsum: sum "+" INT | INT\nINT: /[1-9][0-9]?/\n'
SUMS = re.compile(r"[1-9][0-9]?(\+[1-9][0-9]?)*")


def regex(pattern: str) -> dict[str, Any]:
    return {"type": "regex", "regex": pattern}


def grammar(text: str, syntax: str = "lark") -> dict[str, Any]:
    return {"type": "grammar", "grammar": text, "syntax": syntax}


def written(live: Live, form: dict[str, Any], **body: Any) -> tuple[httpx.Response, str, str]:
    response = live.chat(**{"response_format": form, "temperature": 1, "max_tokens": 120, **body})
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    return response, choice["message"]["content"], choice["finish_reason"]


def refused(live: Live, form: Any, **body: Any) -> tuple[str, str, str]:
    response = live.chat(response_format=form, **body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    return error["code"], error["param"], error["message"]


@pytest.mark.parametrize("pattern", [PLATE, f"^{PLATE}$", r" leading|trailing ", r"\n\n(?:é|ß|東){2}\n"])
def test_a_text_matches_its_expression(live: Live, pattern: str) -> None:
    response, text, reason = written(live, regex(pattern), seed=3)
    assert reason == "stop"
    assert re.fullmatch(pattern, text)
    assert response.headers[CONSTRAINED] == "regex"
    assert response.headers["X-miLLM-Backend"]


@pytest.mark.parametrize("syntax", ["lark", "ebnf"])
def test_a_text_is_in_the_language_of_its_grammar(live: Live, syntax: str) -> None:
    told = SUM if syntax == "lark" else 'root ::= num ("+" num){0,3}\nnum ::= [1-9] [0-9]?\n'
    end = min(live.engine.shelf.resident.backend.tokenizer.eos_ids)  # type: ignore[union-attr]
    response, text, reason = written(live, grammar(told, syntax), logit_bias={str(end): 8})
    assert response.headers[CONSTRAINED] == f'grammar;syntax="{syntax}"'
    assert reason == "stop"
    assert SUMS.fullmatch(text)  # T176


def test_streams_choices_and_steering(stage: Stage) -> None:
    stage.attach()
    form = regex(PLATE)
    response, chunks = events(stage.live, response_format=form, temperature=1, max_tokens=60, n=2)
    assert response.headers[CONSTRAINED] == "regex"
    assert all(re.fullmatch(PLATE, text_of(chunks, index)) for index in (0, 1))
    answer, text, _ = written(stage.live, form, steering=inline((3, 60.0)))
    assert answer.headers[STEERING].startswith("inline") and re.fullmatch(PLATE, text)


def test_what_is_cut_says_so(live: Live) -> None:
    assert written(live, regex("[ab]{200}"), max_tokens=3)[2] == "length"
    assert written(live, grammar('start: ("a" | "b")~200'), max_tokens=3)[2] == "length"


def test_what_is_refused(live: Live) -> None:
    code = "response_format_unsupported"
    for form in (
        regex("a" * 4097),  # T175
        regex("("),  # T175
        regex(r"\bword\b"),
        regex(r"[^\s\S]"),
        grammar('start: "' + "a" * 8193 + '"'),  # T176
        grammar("start: nobody"),
        grammar("a ::= b - c", "ebnf"),
        grammar('start: A\nA: "a" A | "b"'),
    ):
        assert refused(live, form)[:2] == (code, "response_format"), form
    for form, param in (
        (grammar('start: "a"', "bnf"), "response_format.syntax"),  # T176
        ({"type": "grammar", "grammar": 'start: "a"'}, "response_format.syntax"),
        ({"type": "grammar", "syntax": "lark"}, "response_format.grammar"),
        ({"type": "regex"}, "response_format.regex"),
        ({"type": "regex", "regex": 7}, "response_format.regex"),
        ({"type": "regex", "regex": "a", "flags": "i"}, "response_format.flags"),
        ({"type": "text", "regex": "a"}, "response_format"),
        ({"type": "regex", "regex": "a", "syntax": "lark"}, "response_format"),
    ):
        assert refused(live, form)[:2] == ("invalid_parameter", param), form
    for more in ({"stop": "x"}, {"ignore_eos": True}):
        assert refused(live, regex("a+"), **more)[0] == code
    assert live.chat(model="nobody", response_format=regex("(")).status_code == 404


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("guided_json", {"type": "object"}),
        ("guided_regex", "a+"),
        ("guided_choice", ["a", "b"]),
        ("guided_grammar", 'root ::= "a"'),
        ("structured_outputs", {"regex": "a"}),
        ("grammar", 'root ::= "a"'),
        ("json_schema", {"type": "object"}),
    ],
)
def test_other_servers_names_point_to_ours(live: Live, name: str, value: Any) -> None:
    for ask in (live.chat, live.text):
        error = ask(**{name: value}).json()["error"]
        assert (error["code"], error["param"]) == ("field_not_honoured", name)  # T178
        assert "response_format" in error["message"]  # T178
        assert ask(**{name: None}).status_code == 200


HOSTILE = [
    regex("(a{1000}){1000}"),
    regex("(" + "|".join(f".*a{i}" for i in range(400)) + ")+"),
    regex("(x+x+)+y"),
    regex("(((((((((a*)*)*)*)*)*)*)*)*)*"),
    regex("(?:a?){400}a{400}"),
    grammar('start: e\ne: e e e | e e | "a" | ""'),
    grammar('start: (("a"{0,1000}){0,1000}){0,1000}'),
    grammar('start: "a"{10000}'),
    grammar("start: a0\n" + "\n".join(f"a{i}: a{i + 1} a{i + 1} | a{i + 1}" for i in range(60)) + '\na60: "a"'),
    grammar(
        "start: " + " ".join(f"T{i}" for i in range(60)) + "\n" + "\n".join(f"T{i}: /(.*a){{{i}}}b/" for i in range(60))
    ),
    grammar("root ::= x*\nx ::= . | x x | .", "ebnf"),
]


@pytest.mark.parametrize("form", HOSTILE, ids=lambda form: str(form)[:60])
def test_hostile_forms_are_refused_or_followed(live: Live, form: dict[str, Any]) -> None:
    response = live.chat(response_format=form, temperature=1, max_tokens=24)
    if response.status_code == 400:
        assert response.json()["error"]["code"] == "response_format_unsupported"
    else:
        assert response.status_code == 200, response.text
        assert response.json()["choices"][0]["finish_reason"] in ("stop", "length")
    assert live.chat().status_code == 200


def test_the_check_of_a_finished_text_is_another_hand(live: Live) -> None:
    form = ResponseFormat(regex="x[ab]")
    other = live.engine.generation.compile_constraint(MODEL, ResponseFormat(regex="y[ab]")).result(60)
    live.engine.generation.compile_constraint(MODEL, form).result(60)._check = other._check
    response = live.chat(response_format=regex("x[ab]"), max_tokens=20)
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "constrained_output_invalid"
    assert live.chat().status_code == 200


def test_gguf_holds_them_too(gguf: Live) -> None:
    response, text, reason = written(gguf, regex(PLATE))
    assert (response.headers[CONSTRAINED], reason) == ("regex", "stop")
    assert re.fullmatch(PLATE, text)
    _, text, reason = written(gguf, grammar('root ::= "é"{2} [x-z]', "ebnf"))
    assert reason == "stop" and re.fullmatch("éé[x-z]", text)


def test_others_are_answered_while_a_hostile_one_is_followed(live: Live) -> None:
    form = HOSTILE[5]
    with live.http() as client:
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": "a"}],
            "response_format": form,
            "max_tokens": 60,
            "stream": True,
        }
        with client.stream("POST", "/v1/chat/completions", json=body) as hostile:
            other = live.chat(max_tokens=4)
            assert other.status_code == 200
            assert hostile.status_code in (200, 400)
            hostile.read()

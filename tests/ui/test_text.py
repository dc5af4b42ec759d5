"""Phrases, snippets, fences and the values of a chat: pure functions."""

from __future__ import annotations

import ast
import json
import re
import shlex
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidParameter, PortInUse
from engine.events import RequestRecorded
from engine.sampling import Sampling
from ui.kit import text as words
from ui.kit.chat_options import ChatOptions, biases_text, parse_biases, parse_seed
from ui.kit.chat_state import ConversationMessage, build_request, up_to_last_question
from ui.kit.markdown_view import Segment, split_fences
from ui.kit.server_card import reach_of
from ui.kit.snippets import snippets
from ui.serve import request_text as request_words
from ui.talk.figures import figures, tokens_per_second

ROOT = Path(__file__).parents[2]
ENTRY = {
    "number": 1,
    "at": "2026-01-01T00:00:00+00:00",
    "method": "POST",
    "path": "/v1/chat/completions",
    "client": "curl",
    "remote": "127.0.0.1",
}


def test_errors_are_told_with_their_remedy() -> None:
    error = PortInUse("Port 8000 is taken.", remedy="Choose another.")
    assert words.describe_error(error) == "Port 8000 is taken. Choose another."
    assert words.describe_error(ValueError("odd\nthing")) == "Something unexpected happened: odd thing."
    assert words.describe_error(KeyError()) == "Something unexpected happened: KeyError."


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "unknown"), (950, "950"), (134_515_008, "135 M"), (1_236_000_000, "1.2 B"), (70_000_000_000, "70 B")],
)
def test_parameter_counts(number: int | None, text: str) -> None:
    assert words.parameters(number) == text


@pytest.mark.parametrize(
    ("size", "text"), [(None, "unknown size"), (0.4, "0.4 MB"), (98.2, "98 MB"), (1400.0, "1.4 GB")]
)
def test_sizes(size: float | None, text: str) -> None:
    assert words.megabytes(size) == text


def test_moments_are_shorter_the_nearer_they_are() -> None:
    now = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
    assert words.when(now - timedelta(seconds=5), now) == "just now"
    assert words.when(now - timedelta(minutes=7), now) == "7 min ago"
    assert words.when(datetime(2026, 11, 29, 11, 53), now) == "7 min ago"
    assert words.when(now - timedelta(days=40), now) == "20 Oct 2026"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Hello there", "Hello there"),
        ("  two   spaces \nand more", "two spaces"),
        ("", "New chat"),
        ("word " * 30, "word word word word word word word word word word word word…"),
        ("x" * 80, "x" * 60 + "…"),
    ],
)
def test_titles(text: str, title: str) -> None:
    assert words.title_of(text) == title


def test_snippets_carry_the_real_address_and_model() -> None:
    made = snippets("http://127.0.0.1:8123/v1", "tiny-llama")
    assert [snippet.title for snippet in made] == ["Python", "curl", "Open WebUI", "LangChain"]
    assert 'base_url="http://127.0.0.1:8123/v1"' in made[0].text
    assert 'model="tiny-llama"' in made[0].text
    compile(made[0].text, "snippet", "exec")
    assert made[1].text.startswith("curl http://127.0.0.1:8123/v1/chat/completions")
    assert "http://host.docker.internal:8123/v1" in made[2].text
    assert 'base_url="http://127.0.0.1:8123/v1"' in made[3].text
    compile(made[3].text, "snippet", "exec")


def test_snippets_carry_the_key_where_there_is_one() -> None:
    plain = snippets("http://127.0.0.1:8123/v1", "m")
    keyed = snippets("http://127.0.0.1:8123/v1", "m", "millm-abc")
    assert [snippet.text.count("not-needed") for snippet in plain] == [1, 0, 1, 1]
    assert [snippet.text.count("millm-abc") for snippet in keyed] == [1, 1, 1, 1]
    assert "Authorization: Bearer millm-abc" in keyed[1].text


@pytest.mark.parametrize(
    ("address", "reach"),
    [
        ("http://127.0.0.1:8000/v1", "This computer only"),
        ("http://localhost:8000/v1", "This computer only"),
        ("http://[::1]:8000/v1", "This computer only"),
        ("http://192.168.1.4:8000/v1", "Your network"),
    ],
)
def test_who_can_reach_an_address(address: str, reach: str) -> None:
    assert reach_of(address) == reach


# --- fences -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("", []),
        ("plain\ntext", [Segment("plain\ntext")]),
        ("a\n```python\nx = 1\n```\nb", [Segment("a"), Segment("x = 1", "python"), Segment("b")]),
        ("```\nx", [Segment("x", "")]),
        ("~~~ js extra\nx\n```\n~~~", [Segment("x\n```", "js")]),
        ("````\n```\ninner\n```\n````", [Segment("```\ninner\n```", "")]),
        ("``` not ` a fence", [Segment("``` not ` a fence")]),
        ("- item\n    ```\n    x\n    ```", [Segment("- item\n    ```\n    x\n    ```")]),
        ("```\n```\n```\n```", [Segment("", ""), Segment("", "")]),
    ],
)
def test_fences_are_split_off(text: str, segments: list[Segment]) -> None:
    assert split_fences(text) == segments


def test_long_prose_is_cut_only_between_paragraphs() -> None:
    paragraph = "words " * 220
    listed = "1. one\n\n2. two\n\n   more of two"
    text = f"{paragraph}\n\n{listed}\n\n{paragraph}\n\n# Head\n\n| a |\n|---|\n\nend"
    assert [segment.text for segment in split_fences(text)] == [
        f"{paragraph}\n\n{listed}",
        paragraph,
        "# Head\n\n| a |\n|---|\n\nend",
    ]
    assert len(split_fences("short\n\n" * 20)) == 1


@given(st.text(alphabet="`~a \n", max_size=60))
def test_no_letter_is_lost_in_splitting(text: str) -> None:
    kept = "".join(segment.text for segment in split_fences(text))
    infos = sum(
        line.lstrip(" ").lstrip("`~").count("a") for line in text.split("\n") if line.lstrip(" ")[:3] in ("```", "~~~")
    )
    assert text.count("a") - infos <= kept.count("a") <= text.count("a")


# --- values of a chat -------------------------------------------------------------------------------------------------


def test_options_survive_storage_and_reject_nonsense() -> None:
    sampling = Sampling(
        temperature=0.3,
        top_p=0.9,
        top_k=20,
        min_p=0.05,
        frequency_penalty=-0.5,
        presence_penalty=0.25,
        repetition_penalty=1.1,
        logit_bias={7: -100.0, 12: 2.5},
        min_tokens=3,
        ignore_eos=True,
        seed=7,
    )
    assert {each.name for each in fields(Sampling) if getattr(sampling, each.name) == each.default} == set()
    kept = json.loads(json.dumps(ChatOptions("be brief", 128, sampling).to_json()))
    assert ChatOptions.from_json(kept) == ChatOptions("", 128, sampling)
    # Each falls back on its own.
    kept |= {"top_p": 1.5, "top_k": -3, "min_p": True, "logit_bias": {"x": 1}, "ignore_eos": 1, "seed": -1}
    expected = replace(sampling, top_p=1.0, top_k=0, min_p=0.0, logit_bias={}, ignore_eos=False, seed=None)
    assert ChatOptions.from_json(kept | {"typical_q": 3}) == ChatOptions("", 128, expected)
    assert ChatOptions.from_json({"temperature": 9, "max_tokens": -1, "seed": "x"}) == ChatOptions()
    assert ChatOptions.from_json("nonsense") == ChatOptions()


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        ("", None),
        ("  ", None),
        ("0", 0),
        (" 42 ", 42),
        ("4294967295", 4294967295),
        ("-2", -2),
        ("-1", None),
        ("\u22125", -5),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_seeds(text: str, seed: int | None) -> None:
    assert parse_seed(text) == seed


@pytest.mark.parametrize(
    "text", ["1.5", "abc", "9223372036854775808", "-9223372036854775809", "9" * 5000, "²", "1 2", "--2", "+2"]
)
def test_bad_seeds_say_what_is_possible(text: str) -> None:
    with pytest.raises(InvalidParameter, match="whole number from -9223372036854775808 to 9223372036854775807"):
        parse_seed(text)


def test_biases_are_typed_one_to_a_line() -> None:
    assert parse_biases(" 198: -100\n\n7 : 2,5\n12:\u22123 ") == {198: -100.0, 7: 2.5, 12: -3.0}
    assert parse_biases(" \n") == {}
    assert parse_biases(biases_text({198: -100.0, 7: 2.5})) == {198: -100.0, 7: 2.5}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sea: 5", "keys must be token ids"),
        ("5", "no token and bias"),
        ("5: much", "no token and bias"),
        ("5: 101", "values must be numbers from -100 to 100"),
        ("5: nan", "values must be numbers"),
        ("5: 1\n5: 2", "named twice"),
        ("5: 1\n05: 2", "named twice"),
        ("-5: 1", "keys must be token ids"),
        ("\n".join(f"{n}: 1" for n in range(1025)), "at most 1024"),
    ],
)
def test_bad_biases_say_what_is_possible(text: str, words: str) -> None:
    with pytest.raises(InvalidParameter, match=f"(?i){words}") as caught:
        parse_biases(text)
    assert caught.value.param == "logit_bias" and "198: -100" in (caught.value.remedy or "")


def test_a_request_carries_the_system_prompt_first() -> None:
    messages = [ConversationMessage("user", "hi")]
    request = build_request("m", messages, ChatOptions("be brief", 5, Sampling(temperature=0.0, seed=3)))
    assert [(m.role, m.content) for m in request.input.messages] == [("system", "be brief"), ("user", "hi")]  # type: ignore[union-attr]
    assert (request.sampling.temperature, request.sampling.seed, request.max_tokens) == (0.0, 3, 5)
    plain = build_request("m", messages, ChatOptions(" "))
    assert [m.role for m in plain.input.messages] == ["user"]  # type: ignore[union-attr]


def test_the_last_question_ends_what_the_last_answer_saw() -> None:
    talk = [
        ConversationMessage("user", "a"),
        ConversationMessage("assistant", "b"),
        ConversationMessage("user", "c"),
        ConversationMessage("assistant", "d"),
    ]
    assert [m.content for m in up_to_last_question(talk)] == ["a", "b", "c"]
    assert up_to_last_question([]) == []


def test_figures_under_an_answer() -> None:
    details: dict[str, object] = {
        "finish_reason": "stop",
        "completion_tokens": 21,
        "seconds_to_first_token": 1.0,
        "seconds_total": 3.0,
    }
    assert tokens_per_second(details) == pytest.approx(10.0)
    assert figures(details) == "finished · 21 tokens · 10.0 tokens/s"
    assert figures({"finish_reason": "length", "completion_tokens": 1}) == "reached the length limit · 1 token"
    assert figures({"finish_reason": "stopped"}) == "stopped by you"
    assert tokens_per_second({}) is None


def test_snippets_hold_whatever_a_name_has() -> None:
    name, key = 'it\'s "x"\\', "k'y\"\\"
    python, curl, _open_webui, langchain = snippets("http://127.0.0.1:8123/v1", name, key)
    for made in (python, langchain):
        strings = [each.value for each in ast.walk(ast.parse(made.text)) if isinstance(each, ast.Constant)]
        assert name in strings and key in strings
    words_of_shell = shlex.split(curl.text.replace("\\\n", ""))
    assert f"Authorization: Bearer {key}" in words_of_shell
    assert json.loads(words_of_shell[-1])["model"] == name


def test_things_are_counted_in_their_number() -> None:
    assert [words.counted(number, "thread") for number in (0, 1, 2, 12_345)] == [
        "0 threads",
        "1 thread",
        "2 threads",
        "12,345 threads",
    ]
    assert words.counted(2, "SAE is", "SAEs are") == "2 SAEs are"


def test_no_words_count_without_the_helper() -> None:
    """Of the window's texts: a number in a brace and a plural after it is 1 of them once."""
    ours = re.compile(
        r"\{[^{}]*\} (tokens|files|labels|rows|threads|cores|edges|prompts|controls|SAEs|features)\b(?!/)"
    )
    found = [
        f"{path.name}: {line.strip()}"
        for folder in ("ui", "app")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if ours.search(line)
    ]
    # A limit, and numbers that are more than one where the words are reached.
    above_one = ("MAX_MEMBERS} features", "len(files)} files", "len(rungs)} edges")
    assert [line for line in found if not any(each in line for each in above_one)] == []


def test_a_report_of_steering_is_told_in_words() -> None:
    report = (
        'profile;name="Har%22bour";source=active;intensity="0.5";sae="s";layer=1;features=2;hash="x", '
        'profile;name="By me";source=active;intensity="1";sae="s";layer=2;features=1;hash="y", '
        'manual;sae="s";layer=1;features=1;hash="z", circuit;id="c-1";intensity="0.25";composed'
    )
    entry = RequestRecorded(**{**ENTRY, "steering": report})
    assert request_words.steering(entry, {'Har"bour'}) == (
        'cluster Har"bour λ 0.5, profile By me λ 1, by hand, circuit c-1 λ 0.25'
    )
    assert request_words.steering(RequestRecorded(**{**ENTRY, "steering": "none"})) == "none"
    assert request_words.steering(RequestRecorded(**{**ENTRY, "steering": None})) == "–"

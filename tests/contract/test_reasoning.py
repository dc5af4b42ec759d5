"""A model's reasoning told from its answer, on a model that has learned exactly what to write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.engine import Engine
from tests.conftest import CheckpointMaker
from tests.contract.conftest import Live
from tests.contract.test_streaming import events
from tests.gguf_files import build_gguf
from tests.tiny import CHAT_TEMPLATE, THINKING_TEMPLATE, teach

Taught = Callable[..., Live]


@pytest.fixture
def taught(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker, tmp_path: Path
) -> Taught:
    """A function that serves a model which writes ``text``, a byte a token, after a line break, and then ends.

    No byte may come twice: every token tells the model the next one.
    """

    def served(text: str, template: str = CHAT_TEMPLATE) -> Live:
        folder = tmp_path / f"taught-{len(list(tmp_path.glob('taught-*')))}" / "tiny-llama"
        return serve(own_engine(teach(checkpoint("llama", chat_template=template), folder, text)))

    return served


def message(live: Live, **body: Any) -> dict[str, Any]:
    response = live.chat(max_tokens=40, **body)
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    assert choice["finish_reason"] == "stop"
    return dict(choice["message"])


def streamed(live: Live, *, tokens: int = 40, **body: Any) -> tuple[list[str], str, str]:
    """The order of the parts, the reasoning and the answer."""
    _, chunks = events(live, max_tokens=tokens, **body)
    order: list[str] = []
    parts = {"reasoning_content": "", "content": ""}
    for chunk in chunks:
        for choice in chunk["choices"]:
            for name in parts.keys() & choice["delta"].keys():
                parts[name] += choice["delta"][name]
                if order[-1:] != [name]:
                    order.append(name)
    return order, parts["reasoning_content"], parts["content"]


def test_a_template_that_opens_the_tag(taught: Taught) -> None:
    live = taught("qu</think>fox", THINKING_TEMPLATE)
    assert message(live) == {"role": "assistant", "content": "fox", "reasoning_content": "qu"}  # A107
    # The closing tag comes in eight tokens.
    assert streamed(live) == (["reasoning_content", "content"], "qu", "fox")  # A110
    with live.sdk() as client:
        answer = client.chat.completions.create(
            model="tiny-llama", messages=[{"role": "user", "content": "x"}], max_tokens=40, temperature=0
        )
        assert answer.choices[0].message.content == "fox"
        assert answer.choices[0].message.model_extra == {"reasoning_content": "qu"}


def test_every_choice_is_split(taught: Taught) -> None:
    live = taught("qu</think>fox", THINKING_TEMPLATE)
    choices = live.chat(max_tokens=40, n=2).json()["choices"]
    assert [choice["message"]["reasoning_content"] for choice in choices] == ["qu", "qu"]


def test_logprobs_lose_no_token(taught: Taught) -> None:
    live = taught("qu</think>fox", THINKING_TEMPLATE)
    whole = live.chat(max_tokens=40, logprobs=True).json()["choices"][0]["logprobs"]["content"]
    assert "".join(entry["token"] for entry in whole).startswith("qu</think>fox")
    _, chunks = events(live, max_tokens=40, logprobs=True)
    sent = [
        entry
        for chunk in chunks
        for choice in chunk["choices"]
        for entry in choice.get("logprobs", {"content": []})["content"]
    ]
    assert [entry["token"] for entry in sent] == [entry["token"] for entry in whole]


def test_a_tag_the_model_opens(taught: Taught) -> None:
    live = taught("fox<think>qu")
    assert message(live) == {"role": "assistant", "content": "fox", "reasoning_content": "qu"}
    assert streamed(live) == (["content", "reasoning_content"], "qu", "fox")  # A110
    # Raw text is never split.
    assert live.text(prompt="x\n", max_tokens=40).json()["choices"][0]["text"] == "fox<think>qu"


def test_reasoning_without_an_answer(taught: Taught) -> None:
    live = taught("qu", THINKING_TEMPLATE)
    assert message(live) == {"role": "assistant", "content": "", "reasoning_content": "qu"}


def test_without_evidence_the_text_is_left_alone(taught: Taught) -> None:
    live = taught(" qu</think>fo")
    assert message(live) == {"role": "assistant", "content": " qu</think>fo"}  # A109
    assert streamed(live) == (["content"], "", " qu</think>fo")  # A109


def test_constrained_text_is_never_split(taught: Taught) -> None:
    live = taught("qu", THINKING_TEMPLATE)
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": "<think>x"}}}
    assert message(live, response_format=form) == {"role": "assistant", "content": '"<think>x"'}
    assert streamed(live, response_format=form) == (["content"], "", '"<think>x"')


def test_stop_strings_end_the_answer_and_not_the_reasoning(taught: Taught) -> None:
    live = taught("qu\t</think>\rfox", THINKING_TEMPLATE)
    for stop in (["u"], ["q", "t"], ["<"], ["\t"], ["\r"]):
        assert message(live, stop=stop) == {"role": "assistant", "content": "fox", "reasoning_content": "qu"}, stop
        assert streamed(live, stop=stop) == (["reasoning_content", "content"], "qu", "fox"), stop
    assert message(live, stop=["u", "x"]) == {"role": "assistant", "content": "fo", "reasoning_content": "qu"}
    # A stop that names the tag means the end of the reasoning.
    assert message(live, stop=["</think>"]) == {"role": "assistant", "content": "", "reasoning_content": "qu"}


def test_a_stop_string_before_a_tag_that_the_model_opens(taught: Taught) -> None:
    live = taught("fox<think>qu")
    assert message(live, stop=["<"])["content"] == "fox"
    assert message(live, stop=["u"]) == {"role": "assistant", "content": "fox", "reasoning_content": "qu"}
    # Raw text is all one.
    assert live.text(prompt="x\n", max_tokens=40, stop=["u"]).json()["choices"][0]["text"] == "fox<think>q"


# --- nothing is lost at the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "template", "reasoning", "content"),
    [
        ("fox <thi", CHAT_TEMPLATE, None, "fox <thi"),
        (" \t", CHAT_TEMPLATE, None, " \t"),
        ("qu </thin", THINKING_TEMPLATE, "qu </thin", ""),
        ("<thi", THINKING_TEMPLATE, "<thi", ""),
    ],
)
@pytest.mark.parametrize("cut", [False, True])
def test_a_tail_that_was_held_comes_with_the_end(
    taught: Taught, text: str, template: str, reasoning: str | None, content: str, cut: bool
) -> None:
    live = taught(text, template)
    # Either the model ends by itself or the length limit does, at the same letter.
    tokens = len(text) if cut else 40
    (choice,) = live.chat(max_tokens=tokens).json()["choices"]
    assert choice["finish_reason"] == ("length" if cut else "stop")
    assert (choice["message"].get("reasoning_content"), choice["message"]["content"]) == (reasoning, content)
    assert streamed(live, tokens=tokens)[1:] == (reasoning or "", content)


def test_continuous_usage_counts_tokens(taught: Taught) -> None:
    # Eight tokens of the close tag come in no piece, and count all the same.
    live = taught("qu</think>fox", THINKING_TEMPLATE)
    options = {"include_usage": True, "continuous_usage_stats": True}
    _, chunks = events(live, max_tokens=40, stream_options=options)
    told = [
        (delta, chunk["usage"]["completion_tokens"])
        for chunk in chunks
        for choice in chunk["choices"]
        for delta in choice["delta"].values()
        if "usage" in chunk
    ]
    assert told == [("q", 1), ("u", 2), ("f", 11), ("o", 12), ("x", 13)]


def test_several_choices_and_conversations_are_split(taught: Taught) -> None:
    live = taught("qu</think>fox", THINKING_TEMPLATE)
    for more in ({"n": 2}, {"extra_messages": [[{"role": "user", "content": "y"}]]}):
        choices = live.chat(max_tokens=40, **more).json()["choices"]
        said = {(each["message"]["content"], each["message"]["reasoning_content"]) for each in choices}
        assert (len(choices), said) == (2, {("fox", "qu")})


def test_evidence_without_a_letter_of_reasoning_is_told(taught: Taught) -> None:
    live = taught("</think>fox", THINKING_TEMPLATE)
    assert message(live) == {"role": "assistant", "content": "fox", "reasoning_content": ""}
    assert streamed(live) == (["content"], "", "fox")


def test_a_gguf_model_is_told_apart_too(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker, tmp_path: Path
) -> None:
    folder = teach(checkpoint("llama", chat_template=THINKING_TEMPLATE), tmp_path / "taught", "qu</think>fox")
    file = build_gguf(folder, tmp_path / "tiny-llama-F32.gguf", chat_template=THINKING_TEMPLATE)
    live = serve(own_engine(file))
    name = "tiny-llama:F32"
    assert message(live, model=name) == {"role": "assistant", "content": "fox", "reasoning_content": "qu"}
    assert streamed(live, model=name) == (["reasoning_content", "content"], "qu", "fox")
    assert streamed(live, model=name, tokens=5) == (["reasoning_content"], "qu</t", "")

"""A model's reasoning told from its answer, on a model that has learned exactly what to write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.engine import Engine
from engine.models.backends.tokenizer import CheckpointTokenizer
from tests.conftest import CheckpointMaker
from tests.contract.conftest import Live
from tests.contract.test_streaming import events
from tests.tiny import CHAT_TEMPLATE

OPENING = CHAT_TEMPLATE.replace("assistant\n", "assistant\n<think>\n")
"""A template that opens the tag itself."""

Taught = Callable[..., Live]


@pytest.fixture
def taught(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker, tmp_path: Path
) -> Taught:
    """A function that serves a model which writes ``text``, a byte a token, after a line break, and then ends.

    No byte may come twice: every token tells the model the next one.
    """

    def teach(text: str, template: str = CHAT_TEMPLATE) -> Live:
        folder = tmp_path / f"taught-{len(list(tmp_path.glob('taught-*')))}" / "tiny-llama"
        shutil.copytree(checkpoint("llama", chat_template=template), folder)
        tokenizer = CheckpointTokenizer.load(folder)
        chain = [tokenizer.encode(letter, False)[0] for letter in "\n" + text] + [min(tokenizer.eos_ids)]
        assert len(set(chain)) == len(text) + 2
        weights = load_file(folder / "model.safetensors")
        for name, weight in weights.items():
            if name.endswith(("self_attn.o_proj.weight", "mlp.down_proj.weight")):
                weight.zero_()
        embedded, head = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
        embedded.copy_(torch.randn(embedded.shape, generator=torch.Generator().manual_seed(0)))
        head.zero_()
        for token, following in pairwise(chain):
            head[following] = 20 * embedded[token] / embedded[token].norm()
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return serve(own_engine(folder))

    return teach


def message(live: Live, **body: Any) -> dict[str, Any]:
    response = live.chat(max_tokens=40, **body)
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    assert choice["finish_reason"] == "stop"
    return dict(choice["message"])


def streamed(live: Live, **body: Any) -> tuple[list[str], str, str]:
    """The order of the parts, the reasoning and the answer."""
    _, chunks = events(live, max_tokens=40, **body)
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
    live = taught("qu</think>fox", OPENING)
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
    live = taught("qu</think>fox", OPENING)
    choices = live.chat(max_tokens=40, n=2).json()["choices"]
    assert [choice["message"]["reasoning_content"] for choice in choices] == ["qu", "qu"]


def test_logprobs_lose_no_token(taught: Taught) -> None:
    live = taught("qu</think>fox", OPENING)
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
    live = taught("qu", OPENING)
    assert message(live) == {"role": "assistant", "content": "", "reasoning_content": "qu"}


def test_without_evidence_the_text_is_left_alone(taught: Taught) -> None:
    live = taught(" qu</think>fo")
    assert message(live) == {"role": "assistant", "content": " qu</think>fo"}  # A109
    assert streamed(live) == (["content"], "", " qu</think>fo")  # A109


def test_constrained_text_is_never_split(taught: Taught) -> None:
    live = taught("qu", OPENING)
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": "<think>x"}}}
    assert message(live, response_format=form) == {"role": "assistant", "content": '"<think>x"'}
    assert streamed(live, response_format=form) == (["content"], "", '"<think>x"')


def test_stop_strings_end_the_answer_and_not_the_reasoning(taught: Taught) -> None:
    live = taught("qu\t</think>\rfox", OPENING)
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

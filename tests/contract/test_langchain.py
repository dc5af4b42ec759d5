"""What a user of LangChain sees, through its own OpenAI classes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field, SecretStr

from tests.contract.conftest import MODEL, Live

MESSAGES = [SystemMessage("a language model writes"), HumanMessage("the quick brown fox")]


class Reply(BaseModel):
    """One word of three, and whether it is meant."""

    word: str = Field(pattern="^(yes|no|maybe)$")
    meant: bool


@pytest.fixture(autouse=True)
def _no_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a test is sent to anybody."""
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    monkeypatch.setenv("LANGCHAIN_TRACING_V2", "false")


def model(live: Live, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        **{
            "model": MODEL,
            "base_url": live.address,
            "api_key": SecretStr("any"),
            "temperature": 0,
            "max_tokens": 12,
            "max_retries": 0,
            "timeout": 120,
            **options,
        }
    )


def test_invoke(live: Live) -> None:
    answer = model(live).invoke(MESSAGES)
    plain = live.chat(
        messages=[
            {"role": "system", "content": "a language model writes"},
            {"role": "user", "content": "the quick brown fox"},
        ],
        max_tokens=12,
    ).json()
    assert answer.content == plain["choices"][0]["message"]["content"]
    assert answer.response_metadata["finish_reason"] == "length"
    assert answer.response_metadata["model_name"] == MODEL
    assert answer.response_metadata["system_fingerprint"] == plain["system_fingerprint"]
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["input_tokens"] == plain["usage"]["prompt_tokens"]
    assert answer.usage_metadata["output_tokens"] == 12


def test_stream(live: Live) -> None:
    chunks = list(model(live, stream_usage=True).stream(MESSAGES))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk  # type: ignore[assignment]
    assert len([chunk for chunk in chunks if chunk.content]) > 3
    assert whole.content == model(live).invoke(MESSAGES).content
    assert isinstance(whole, AIMessageChunk)
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] == 12
    assert whole.response_metadata["finish_reason"] == "length"


def test_several_at_once(live: Live) -> None:
    prompts = ["the sea", "the ship", "a smile", "the forest"]
    answers = model(live).batch([[HumanMessage(prompt)] for prompt in prompts], config={"max_concurrency": 4})
    assert [answer.content for answer in answers] == [
        model(live).invoke([HumanMessage(prompt)]).content for prompt in prompts
    ]


@pytest.mark.parametrize("strict", [True, None])
def test_structured_output(live: Live, strict: bool | None) -> None:
    asking = model(live, max_tokens=60).with_structured_output(Reply, method="json_schema", strict=strict)
    found = asking.invoke(MESSAGES)
    assert isinstance(found, Reply)
    assert found.word in ("yes", "no", "maybe")


def test_fields_of_our_own(live: Live) -> None:
    own = model(live, extra_body={"seed": 7, "ignore_eos": True, "top_k": 20}, temperature=1, max_tokens=20)
    assert own.invoke(MESSAGES).content == own.invoke(MESSAGES).content


def test_logprobs(live: Live) -> None:
    answer = model(live, max_tokens=3, logprobs=True, top_logprobs=2).invoke(MESSAGES)
    content = answer.response_metadata["logprobs"]["content"]
    assert [len(entry["top_logprobs"]) for entry in content] == [2, 2, 2]


def test_tools_in_two_rounds(live: Live) -> None:
    # T058
    asking = model(live, max_tokens=300).bind_tools([Reply], tool_choice="Reply")
    first = asking.invoke(MESSAGES)
    assert isinstance(first, AIMessage)
    (call,) = first.tool_calls
    assert call["name"] == "Reply"
    assert call["args"]["word"] in ("yes", "no", "maybe")
    told = [HumanMessage("the quick brown fox"), first, ToolMessage("heard", tool_call_id=call["id"])]
    (again,) = asking.invoke(told).tool_calls
    assert again["id"] != call["id"]
    whole = None
    for chunk in asking.stream(MESSAGES):
        whole = chunk if whole is None else whole + chunk
    assert isinstance(whole, AIMessageChunk)
    assert [each["args"] for each in whole.tool_calls] == [call["args"]]


def test_text_completions(live: Live) -> None:
    writer = OpenAI(
        model=MODEL,
        base_url=live.address,
        api_key=SecretStr("any"),
        temperature=0,
        max_tokens=12,
        max_retries=0,
        timeout=120,
    )
    text = writer.invoke("the quick brown fox")
    assert text == live.text(max_tokens=12).json()["choices"][0]["text"]
    assert "".join(writer.stream("the quick brown fox")) == text


def test_embeddings(live: Live) -> None:
    # Counting tokens on the client's side would need OpenAI's own vocabulary.
    maker = OpenAIEmbeddings(
        model=MODEL,
        base_url=live.address,
        api_key=SecretStr("any"),
        check_embedding_ctx_length=False,
        max_retries=0,
        timeout=120,
        model_kwargs={"extra_body": {"normalize": True}},
    )
    vectors = maker.embed_documents(["the sea", "the ship", "the sea"])
    assert [len(vector) for vector in vectors] == [32, 32, 32]
    assert vectors[0] == vectors[2]
    assert maker.embed_query("the sea") == vectors[0]
    assert math.isclose(sum(x * x for x in vectors[0]), 1.0, abs_tol=1e-5)

"""What a user of the official openai client sees."""

from __future__ import annotations

import openai
import pytest

from tests.contract.conftest import MODEL, Live

MESSAGES = [{"role": "user", "content": "the quick brown fox"}]


def test_chat(live: Live) -> None:
    with live.sdk() as client:
        answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=8, temperature=0)  # type: ignore[arg-type]
    assert answer.object == "chat.completion"
    assert answer.model == MODEL
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].logprobs is None
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_stream(live: Live) -> None:
    with live.sdk() as client:
        stream = client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,  # type: ignore[arg-type]
            max_tokens=8,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=8, temperature=0)  # type: ignore[arg-type]
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.usage.total_tokens for c in chunks if c.usage is not None] == [30]
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["length"]


def test_the_stream_helper(live: Live) -> None:
    # It refuses answers cut by the cap, so the end token is made certain after four others.
    end = {str(token): 100 for token in live.engine.shelf.resident.backend.tokenizer.eos_ids}  # type: ignore[union-attr]
    with (
        live.sdk() as client,
        client.chat.completions.stream(
            model=MODEL,
            messages=MESSAGES,  # type: ignore[arg-type]
            max_tokens=8,
            logit_bias=end,
            extra_body={"min_tokens": 4},
        ) as stream,
    ):
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].finish_reason == "stop"


def test_stop_and_n(live: Live) -> None:
    with live.sdk() as client:
        whole = client.completions.create(model=MODEL, prompt="the sea", max_tokens=30, temperature=0).choices[0].text
        stopped = client.completions.create(
            model=MODEL, prompt="the sea", max_tokens=30, temperature=0, stop=whole[5:8]
        )
        several = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=4, n=3)  # type: ignore[arg-type]
        streamed = list(
            client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=4, n=2, stream=True)  # type: ignore[arg-type]
        )
    assert stopped.choices[0].text == whole[: whole.index(whole[5:8])]
    assert stopped.choices[0].finish_reason == "stop"
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    assert {choice.index for chunk in streamed for choice in chunk.choices} == {0, 1}


def test_logprobs(live: Live) -> None:
    with live.sdk() as client:
        answer = client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,  # type: ignore[arg-type]
            max_tokens=3,
            logprobs=True,
            top_logprobs=2,
        )
        text = client.completions.create(model=MODEL, prompt="the sea", max_tokens=3, logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [len(entry.top_logprobs) for entry in logprobs.content] == [2, 2, 2]
    assert all(entry.logprob <= 0 for entry in logprobs.content)
    assert text.choices[0].logprobs is not None
    assert len(text.choices[0].logprobs.tokens or []) == 3


def test_errors_are_exceptions(live: Live) -> None:
    with live.sdk() as client:
        with pytest.raises(openai.BadRequestError) as bad:
            client.chat.completions.create(model=MODEL, messages=MESSAGES, temperature=3)  # type: ignore[arg-type]
        assert (bad.value.code, bad.value.param, bad.value.type) == (
            "invalid_parameter",
            "temperature",
            "invalid_request_error",
        )
        with pytest.raises(openai.NotFoundError) as unknown:
            client.chat.completions.create(model="nope", messages=MESSAGES)  # type: ignore[arg-type]
        assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError) as long:
            client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=5000, stream=True)  # type: ignore[arg-type]
        assert long.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError) as tools:
            client.chat.completions.create(
                model=MODEL,
                messages=MESSAGES,  # type: ignore[arg-type]
                tools=[{"type": "function", "function": {"name": "a name", "parameters": {}}}],
            )
        assert (tools.value.code, tools.value.param) == ("invalid_parameter", "tools.0.function.name")
    with (
        live.sdk(default_headers={"Origin": "https://evil.example"}) as page,
        pytest.raises(openai.PermissionDeniedError),
    ):
        page.models.list()


async def _ask_async(live: Live) -> str:
    async with openai.AsyncOpenAI(base_url=live.address, api_key="any", max_retries=0) as client:
        stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=5, stream=True)  # type: ignore[arg-type]
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


def test_the_async_client(live: Live) -> None:
    import asyncio

    assert asyncio.run(_ask_async(live))

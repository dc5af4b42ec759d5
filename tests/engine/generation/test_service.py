"""Preparing requests: the window, the caps, the model asked for; and reading deltas from an event loop."""

from __future__ import annotations

import threading

import pytest

from engine.errors import ContextLengthExceeded, InvalidParameter, ModelNotLoaded
from engine.generation.consume import collect
from engine.generation.request import ChatInput, Delta, GenerationRequest, Message, RequestFailed, TextDelta, TextInput
from engine.sampling import Sampling
from tests.conftest import CheckpointMaker, EngineMaker

GREEDY = Sampling(temperature=0.0, ignore_eos=True)


def text_request(prompt: str = "the sea", **fields: object) -> GenerationRequest:
    return GenerationRequest(model="tiny-llama", input=TextInput((prompt,)), sampling=GREEDY, **fields)  # type: ignore[arg-type]


def test_prompt_plus_cap_may_fill_the_window_and_no_more(make_engine: EngineMaker) -> None:
    service = make_engine().generation
    prompt_tokens = len(service.prepare(text_request()).prompts[0].token_ids)
    assert service.prepare(text_request(max_tokens=2048 - prompt_tokens)).max_tokens == 2048 - prompt_tokens
    with pytest.raises(ContextLengthExceeded) as refusal:
        service.prepare(text_request(max_tokens=2048 - prompt_tokens + 1))
    assert "2048" in refusal.value.message
    assert str(prompt_tokens) in refusal.value.message
    assert str(2049 - prompt_tokens) in refusal.value.message


def test_without_a_cap_the_rest_of_the_window_up_to_the_default(make_engine: EngineMaker) -> None:
    service = make_engine().generation
    assert service.prepare(text_request()).max_tokens == 1024
    long = "the sea was calm " * 300
    prepared = service.prepare(text_request(long))
    assert prepared.max_tokens == 2048 - len(prepared.prompts[0].token_ids) < 1024
    with pytest.raises(ContextLengthExceeded):
        service.prepare(text_request("the sea was calm " * 3000))


def test_one_of_several_prompts_too_long_is_named(make_engine: EngineMaker) -> None:
    service = make_engine().generation
    request = GenerationRequest("tiny-llama", TextInput(("the sea", "calm " * 3000)), GREEDY, max_tokens=4)
    with pytest.raises(ContextLengthExceeded, match="Prompt 1 has"):
        service.prepare(request)


def test_min_tokens_over_the_resolved_cap(make_engine: EngineMaker) -> None:
    service = make_engine().generation
    sampling = Sampling(min_tokens=1025)
    with pytest.raises(InvalidParameter) as refusal:
        service.prepare(GenerationRequest("tiny-llama", TextInput(("the sea",)), sampling))
    assert refusal.value.param == "min_tokens"


def test_bias_outside_the_vocabulary(make_engine: EngineMaker) -> None:
    service = make_engine().generation
    with pytest.raises(InvalidParameter) as refusal:
        service.prepare(GenerationRequest("tiny-llama", TextInput(("x",)), Sampling(logit_bias={400: 1.0})))
    assert refusal.value.param == "logit_bias"


def test_another_model_than_the_resident_one(make_engine: EngineMaker) -> None:
    empty = make_engine(None).generation
    with pytest.raises(ModelNotLoaded):
        empty.prepare(text_request())


def test_a_seed_decides_for_a_solo_lane(make_engine: EngineMaker) -> None:
    service = make_engine().generation
    assert not service.prepare(text_request()).solo
    assert service.prepare(GenerationRequest("tiny-llama", TextInput(("x",)), Sampling(seed=0))).solo


def test_chat_and_its_rendered_prompt_write_the_same(make_engine: EngineMaker) -> None:
    service = make_engine().generation
    chat = GenerationRequest("tiny-llama", ChatInput((Message("user", "hello"),)), GREEDY, max_tokens=12)
    prepared = service.prepare(chat)
    assert prepared.prompts[0].text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    raw = GenerationRequest("tiny-llama", TextInput((prepared.prompts[0].text,), False), GREEDY, max_tokens=12)

    def ids(deltas: list[Delta]) -> list[int]:
        return [t.token_id for d in deltas if isinstance(d, TextDelta) for t in d.tokens]

    assert ids(collect(service, prepared)) == ids(collect(service, service.prepare(raw)))


def test_cancelling_gives_a_last_delta(make_engine: EngineMaker) -> None:
    engine = make_engine()
    deltas: list[Delta] = []
    begun = threading.Event()

    def sink(delta: Delta) -> None:
        deltas.append(delta)
        begun.set()

    handle = engine.generation.submit(engine.generation.prepare(text_request(max_tokens=2000)), sink)
    assert begun.wait(30)
    handle.cancel()
    assert handle.wait(30)
    assert isinstance(deltas[-1], RequestFailed)
    assert deltas[-1].error.code == "request_cancelled"
    assert engine.generation.stats().queue_pending == 0


def test_families_with_a_window_stay_within_it(make_engine: EngineMaker, checkpoint: CheckpointMaker) -> None:
    engine = make_engine(checkpoint("llama", max_positions=64))
    with pytest.raises(ContextLengthExceeded, match="64"):
        engine.generation.prepare(text_request(max_tokens=64))


def test_generic_turns_end_where_the_model_writes_their_end(
    make_engine: EngineMaker, checkpoint: CheckpointMaker
) -> None:
    engine = make_engine(checkpoint("llama", chat_template=None))
    chat = GenerationRequest("tiny-llama", ChatInput((Message("user", "hello"),)), GREEDY, max_tokens=30)
    prepared = engine.generation.prepare(chat)
    assert prepared.prompts[0].text == "<start_of_turn>user\nhello<end_of_turn>\n<start_of_turn>model\n"
    assert prepared.own_stops == ("<end_of_turn>",)

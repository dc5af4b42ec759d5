"""Embeddings: the numbers, the refusals before anything runs, and that steering never reaches them."""

from __future__ import annotations

import math
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.errors import ContextLengthExceeded, InvalidParameter, ModelNotLoaded
from engine.generation.embeddings import Embedded, EmbeddingRequest, Pooling
from engine.generation.errors import EmbeddingVectorInvalid
from engine.library.database import Library
from engine.steering import transitions
from tests.conftest import CheckpointMaker, EngineMaker
from tests.engine.generation.driving import Driver
from tests.engine.generation.test_steered_lanes import attach, inline
from tests.tiny import FAMILIES

TEXT = "the quick brown fox jumps over the lazy dog and runs"


@pytest.fixture
def driver(tiny_checkpoint: Path, library: Library) -> Driver:
    return Driver(tiny_checkpoint, library)


def request(driver: Driver, *texts: Any, **fields: Any) -> EmbeddingRequest:
    return EmbeddingRequest(driver.name, texts, **fields)


def send(driver: Driver, *texts: Any, **fields: Any) -> Future[Embedded]:
    return driver.service.embed(driver.service.prepare_embeddings(request(driver, *texts, **fields)))


def embed(driver: Driver, *texts: Any, **fields: Any) -> np.ndarray:
    future = send(driver, *texts, **fields)
    driver.finish()
    return future.result(0).vectors


@pytest.mark.parametrize("family", FAMILIES)
def test_the_librarys_own_last_hidden_state(family: str, checkpoint: CheckpointMaker, library: Library) -> None:
    from transformers import AutoModel, AutoTokenizer

    folder = checkpoint(family)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        ids = AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")["input_ids"]
        states = model(ids).last_hidden_state[0].numpy()
    driver = Driver(folder, library)
    assert embed(driver, TEXT)[0] == pytest.approx(states.mean(axis=0), abs=1e-4)
    assert embed(driver, TEXT, pooling=Pooling.LAST)[0] == pytest.approx(states[-1], abs=1e-4)
    assert embed(driver, TEXT, pooling=Pooling.CLS)[0] == pytest.approx(states[0], abs=1e-4)


def test_a_model_that_is_not_batched(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    batched = embed(driver, TEXT)
    object.__setattr__(driver.backend.capabilities, "batching", False)
    assert embed(driver, TEXT)[0] == pytest.approx(batched[0], abs=1e-5)


def test_mean_is_the_default(driver: Driver) -> None:
    # A244: element for element
    assert np.array_equal(embed(driver, TEXT), embed(driver, TEXT, pooling=Pooling.MEAN))
    assert embed(driver, TEXT).dtype == np.float32
    assert embed(driver, TEXT).shape == (1, 32)


def test_unit_length(driver: Driver) -> None:
    plain, unit = embed(driver, TEXT, "a"), embed(driver, TEXT, "a", normalize=True)
    assert np.linalg.norm(unit, axis=1) == pytest.approx([1.0, 1.0], abs=1e-5)
    for before, after in zip(plain, unit, strict=True):
        assert abs(float(np.linalg.norm(before)) - 1.0) > 0.01
        assert after == pytest.approx(before / np.linalg.norm(before), abs=1e-6)


def test_several_texts_in_order_each_as_alone(driver: Driver) -> None:
    texts = (TEXT, "a", "naïve café, 東京")
    future = send(driver, *texts)
    driver.finish()
    result = future.result(0)
    assert np.array_equal(result.vectors, np.concatenate([embed(driver, text) for text in texts]))
    counts = [len(driver.backend.tokenizer.encode(text, True)) for text in texts]
    assert result.usage.prompt_tokens == sum(counts)  # A250
    assert result.usage.total_tokens == sum(counts)
    assert result.usage.completion_tokens == 0


def test_special_tokens_count_and_make_every_cls_the_same(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama", add_bos=True), library)
    prepared = driver.service.prepare_embeddings(request(driver, "a", "dog"))
    assert [ids[0] for ids in prepared.token_ids] == [driver.backend.tokenizer.bos_id] * 2
    first, second = embed(driver, "the sea", "a smile", pooling=Pooling.CLS)
    assert first == pytest.approx(second, abs=1e-6)


def test_token_ids_are_taken_as_they_are(driver: Driver) -> None:
    ids = tuple(driver.backend.tokenizer.encode(TEXT, True))
    assert np.array_equal(embed(driver, ids), embed(driver, TEXT))
    with pytest.raises(InvalidParameter, match="token 400") as refusal:
        driver.service.prepare_embeddings(request(driver, "a", (3, 400)))
    assert refusal.value.param == "input[1]"


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_too_long_is_measured_before_anything_runs(driver: Driver) -> None:
    # A248: named, and no item was embedded
    with pytest.raises(ContextLengthExceeded, match=r"window of 'tiny-llama' is 2048 tokens") as refusal:
        driver.service.prepare_embeddings(request(driver, "the sea", "calm " * 3000))
    assert refusal.value.param == "input[1]"
    assert driver.passes == []
    with pytest.raises(ContextLengthExceeded) as refusal:
        driver.service.prepare_embeddings(request(driver, "calm " * 3000, single=True))
    assert refusal.value.param == "input"


def test_up_to_16_offenders_are_listed(driver: Driver) -> None:
    long = (3,) * 2049
    with pytest.raises(ContextLengthExceeded) as refusal:
        driver.service.prepare_embeddings(request(driver, (3,) * 2048, *[long] * 18))
    assert refusal.value.param == "input[1]"
    assert refusal.value.message.count("has 2049 tokens") == 16
    assert "'input[16]'" in refusal.value.message
    assert "'input[17]'" not in refusal.value.message
    assert "2 more are too long" in refusal.value.message
    assert refusal.value.details["inputs_total"] == 18


def test_how_many_texts(driver: Driver) -> None:
    # A247: names the number and the cap
    with pytest.raises(InvalidParameter, match=r"holds 129 texts; at most 128") as refusal:
        driver.service.prepare_embeddings(request(driver, *["a"] * 129))
    assert refusal.value.param == "input"
    assert embed(driver, *["a"] * 128).shape == (128, 32)


@pytest.mark.parametrize(
    ("texts", "single", "named"),
    [((), False, "empty list"), (("",), True, "'input'"), (("a", ""), False, r"'input\[1\]'"), (((),), False, "input")],
)
def test_nothing_to_embed(texts: tuple[Any, ...], single: bool, named: str) -> None:
    with pytest.raises(InvalidParameter, match=named) as refusal:
        EmbeddingRequest("m", texts, single)
    assert refusal.value.param == "input"


def test_not_unicode_and_not_loaded(driver: Driver, make_engine: EngineMaker) -> None:
    with pytest.raises(InvalidParameter, match="Unicode") as refusal:
        driver.service.prepare_embeddings(request(driver, "a", "\ud800"))
    assert refusal.value.param == "input[1]"
    with pytest.raises(ModelNotLoaded):
        make_engine(None).generation.prepare_embeddings(EmbeddingRequest("tiny-llama", ("a",)))


@pytest.mark.parametrize(("value", "what"), [(0.0, "no length"), (math.nan, "not finite"), (math.inf, "not finite")])
def test_a_vector_that_says_nothing(driver: Driver, value: float, what: str) -> None:
    with torch.no_grad():
        driver.backend._model.model.norm.weight.fill_(value)
    future = send(driver, "the sea", "a", normalize=True)
    driver.finish()
    with pytest.raises(EmbeddingVectorInvalid, match=what) as refusal:
        future.result(0)
    assert refusal.value.param == "input[0]"
    assert driver.service.stats().queue_pending == 0
    alone = send(driver, "the sea", single=True)
    driver.finish()
    with pytest.raises(EmbeddingVectorInvalid) as refusal:
        alone.result(0)
    assert refusal.value.param == "input"


# --- beside other lanes -----------------------------------------------------------------------------------------------


def test_never_steered_never_monitored(driver: Driver) -> None:
    attach(driver, 1, 2)
    plain = embed(driver, TEXT)
    driver.desk.apply(transitions.set_values(("sae-1", 1), {3: 150.0}))
    driver.desk.apply(transitions.set_values(("sae-2", 2), {9: 150.0}))
    driver.monitor.configure(enabled=True, top_k=3, history_size=1000)
    lanes = [driver.send("the sea", max_tokens=30), driver.send("the sea", steering=inline("sae-1", f5=90.0))]
    driver.tick(4)
    future = send(driver, TEXT)
    while not future.done():
        driver.tick()
    assert not lanes[0].finished
    assert np.array_equal(future.result(0).vectors, plain)
    driver.finish()
    assert len({record.request_id for record in driver.monitor.history(limit=1000)}) == 2


def test_leaving_between_chunks(driver: Driver) -> None:
    future = send(driver, "the sea was calm " * 40)
    driver.tick(2)
    assert driver.service.stats().in_flight == 1
    assert future.cancel()
    driver.tick()
    assert driver.service.stats().queue_pending == 0
    with pytest.raises(CancelledError):
        future.result(0)


def test_readings_take_turns(driver: Driver) -> None:
    long, short = send(driver, "the sea was calm " * 40), send(driver, "a")
    driver.tick(3)
    assert short.done()
    assert not long.done()
    driver.finish()
    assert long.result(0).vectors.shape == (1, 32)


def test_on_the_engine_thread(make_engine: EngineMaker) -> None:
    service = make_engine().generation
    prepared = service.prepare_embeddings(EmbeddingRequest("tiny-llama", ("the sea", "a smile")))
    result = service.embed(prepared).result(60)
    assert result.vectors.shape == (2, 32)
    assert result.figures.seconds_total >= result.figures.seconds_queued >= 0

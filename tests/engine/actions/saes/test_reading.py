"""Reading a text with an SAE: every token, unsteered and unseen, beside answers that go on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
import torch

from engine.actions.saes.reading import ReadPlace, TextReading, sinks_among, submit
from engine.actions.sweeping.rereading import Rereading, Steered
from engine.engine import Engine
from engine.errors import ContextLengthExceeded, InvalidParameter, ModelNotLoaded, NoChatTemplate, SaeNotAttached
from engine.generation.request import (
    ChatInput,
    Delta,
    GenerationRequest,
    Message,
    RequestFinished,
    TextDelta,
    TextInput,
)
from engine.library.errors import SaeNotFound
from engine.saes.errors import InvalidFeatureIndex, SaeIncompatible
from engine.sampling import Sampling
from tests.engine.actions.saes.driving import context_of, hooked
from tests.made_saes import make_mirror_sae, make_sae
from tests.waiting import wait_until

EngineMaker = Callable[..., Engine]
CheckpointMaker = Callable[..., Path]
TEXT = "the sea was calm and the old ship went slowly along the coast"


@pytest.fixture
def engine(make_engine: EngineMaker) -> Engine:
    return make_engine()


def with_mirror(engine: Engine, folder: Path, *, layer: int = 1, attach: bool = True) -> str:
    record, _ = engine.saes.import_local(make_mirror_sae(folder / "mirror", layer=layer), sae_id="mirror")
    if attach:
        engine.attachments.attach(record.id)
    return record.id


def stream(engine: Engine, ids: list[int], layer: int) -> torch.Tensor:
    """What transformers itself gives after block ``layer`` for these tokens: ``[tokens, 32]``."""
    resident = engine.shelf.resident
    assert resident is not None
    model = resident.backend._model  # type: ignore[attr-defined]

    def run() -> torch.Tensor:
        with torch.inference_mode():
            states: torch.Tensor = model.model(torch.tensor([ids]), output_hidden_states=True).hidden_states[layer + 1]
            return states[0]

    return engine._thread.run(run).result(60)


def test_the_mirror_shows_the_stream_itself(engine: Engine, tmp_path: Path) -> None:
    sae_id = with_mirror(engine, tmp_path)
    reading = engine.reading.read(TEXT, top_k=3, features=[5, 37]).result(60)
    assert (reading.sae_id, reading.layer, reading.model, reading.features) == (sae_id, 1, "tiny-llama", (5, 37))
    assert "".join(token.text for token in reading.tokens) == TEXT
    assert [token.position for token in reading.tokens] == list(range(len(reading.tokens)))
    expected = stream(engine, [token.token_id for token in reading.tokens], 1)
    both = torch.cat([expected, -expected], dim=1).clamp(min=0)
    for token, row in zip(reading.tokens, both, strict=True):
        order = row.argsort(descending=True)[:3].tolist()
        assert [index for index, _ in token.top_k] == order
        assert [value for _, value in token.top_k] == pytest.approx(row[order].tolist(), abs=1e-4)
        assert token.activations == pytest.approx(row[[5, 37]].tolist(), abs=1e-4)
        assert token.norm == pytest.approx(float(row.norm()), abs=1e-3)
    assert reading.tokens[0].sink
    assert reading.values(5) == tuple(token.activations[0] for token in reading.tokens)


def test_how_the_text_is_cut_changes_nothing(make_engine: EngineMaker, tmp_path: Path) -> None:
    found: list[TextReading] = []
    for chunk in (3, 512):
        engine = make_engine(PREFILL_CHUNK=chunk)
        with_mirror(engine, tmp_path / str(chunk))
        found.append(engine.reading.read(TEXT, top_k=4).result(60))
    first, second = found
    for ours, theirs in zip(first.tokens, second.tokens, strict=True):
        assert ours.token_id == theirs.token_id
        assert [i for i, _ in ours.top_k] == [i for i, _ in theirs.top_k]
        assert [v for _, v in ours.top_k] == pytest.approx([v for _, v in theirs.top_k], abs=1e-4)


def test_neither_steered_nor_monitored(engine: Engine, tmp_path: Path) -> None:
    sae_id = with_mirror(engine, tmp_path)
    plain = engine.reading.read(TEXT, top_k=4).result(60)
    engine.hand_steering.set_value(3, 50.0, sae_id=sae_id, layer=1)
    engine.monitor.configure(True)
    again = engine.reading.read(TEXT, top_k=4).result(60)
    assert again.tokens == plain.tokens
    assert engine.monitor.history() == []


def test_a_conversation_goes_through_the_template(engine: Engine, tmp_path: Path) -> None:
    with_mirror(engine, tmp_path)
    chat = ChatInput((Message("user", "the sea"), Message("assistant", "was calm")))
    reading = engine.reading.read(chat).result(60)
    assert "".join(token.text for token in reading.tokens) == (
        "<|im_start|>user\nthe sea<|im_end|>\n<|im_start|>assistant\nwas calm"
    )


def test_token_ids_are_read_as_they_are(engine: Engine, tmp_path: Path) -> None:
    with_mirror(engine, tmp_path)
    reading = engine.reading.read([260, 17, 5], top_k=1).result(60)
    assert [token.token_id for token in reading.tokens] == [260, 17, 5]


def test_a_tokenizers_own_bos_is_read(make_engine: EngineMaker, checkpoint: CheckpointMaker, tmp_path: Path) -> None:
    engine = make_engine(checkpoint("llama", add_bos=True))
    with_mirror(engine, tmp_path)
    reading = engine.reading.read("the sea").result(60)
    assert reading.tokens[0].text == "<|bos|>" and reading.tokens[0].sink


def test_an_sae_of_the_library_is_read_without_attaching_it(engine: Engine, tmp_path: Path) -> None:
    with_mirror(engine, tmp_path, attach=False)
    reading = engine.reading.read(TEXT, sae_id="mirror", top_k=2).result(60)
    assert reading.layer == 1 and len(reading.tokens[0].top_k) == 2
    wait_until(lambda: hooked(engine) == set(), "the hook of the passes to go")
    assert engine.desk.state.attachments == ()


def test_at_another_layer(engine: Engine, tmp_path: Path) -> None:
    with_mirror(engine, tmp_path)
    reading = engine.reading.read(TEXT, sae_id="mirror", layer=2, features=[0, 32]).result(60)
    expected = stream(engine, [token.token_id for token in reading.tokens], 2)[:, 0]
    assert [token.activations[0] - token.activations[1] for token in reading.tokens] == pytest.approx(
        expected.tolist(), abs=1e-4
    )
    wait_until(lambda: hooked(engine) == {1}, "only the attached SAE's hook to be left")


def test_answers_go_on_meanwhile_and_a_leaver_ends_it(make_engine: EngineMaker, tmp_path: Path) -> None:
    engine = make_engine(PREFILL_CHUNK=4)
    with_mirror(engine, tmp_path)
    heard: list[Delta] = []
    asked = GenerationRequest(
        "tiny-llama", TextInput(("the sea",)), sampling=Sampling(temperature=0.0, ignore_eos=True), max_tokens=1000
    )
    handle = engine.generation.submit(engine.generation.prepare(asked), heard.append)
    reading = engine.reading.read(" ".join([TEXT] * 20), top_k=1)
    before = len(heard)
    reading.result(120)
    assert sum(isinstance(each, TextDelta) for each in heard[before:]) > 5
    left = engine.reading.read(" ".join([TEXT] * 60), top_k=1)
    assert left.cancel()
    with pytest.raises(CancelledError):
        left.result(60)
    handle.cancel()
    wait_until(lambda: engine.generation.stats().queue_pending == 0, "the queue to be empty")
    assert not any(isinstance(each, RequestFinished) and each.usage is None for each in heard)


def test_a_gguf_model_reads_the_same(
    engine: Engine, make_engine: EngineMaker, gguf_file: Callable[[str], Path], tmp_path: Path
) -> None:
    other = make_engine(gguf_file("F32"), GGUF_KV_CACHE_TYPE="f32", GGUF_FLASH_ATTENTION=False)
    with_mirror(engine, tmp_path / "here")
    with_mirror(other, tmp_path / "there")
    first, second = (each.reading.read(TEXT, top_k=2, features=[5]).result(60) for each in (engine, other))
    assert [token.token_id for token in second.tokens] == [token.token_id for token in first.tokens]
    assert second.values(5) == pytest.approx(first.values(5), abs=1e-3)
    resident = other.shelf.resident
    assert resident is not None
    place = ReadPlace("mirror", 1, other.desk.state.attachments[0].sae)
    reread = Rereading(context_of(other), resident, tuple(range(40, 60)), range(7, 20), [Steered(place, {5: 1.0})])
    mine = engine.shelf.resident
    assert mine is not None
    again = Rereading(context_of(engine), mine, tuple(range(40, 60)), range(7, 20), [Steered(place, {5: 1.0})])
    theirs, ours = submit(context_of(other), reread).result(60), submit(context_of(engine), again).result(60)
    assert theirs.loss == pytest.approx(ours.loss, abs=1e-3)
    assert theirs.features == pytest.approx(ours.features, abs=1e-3)


def test_refusals(engine: Engine, make_engine: EngineMaker, tmp_path: Path, checkpoint: CheckpointMaker) -> None:
    with pytest.raises(SaeNotAttached, match="No SAE is attached, so there is nothing to read with"):
        engine.reading.read(TEXT)
    with pytest.raises(SaeNotFound):
        engine.reading.read(TEXT, sae_id="nobody")
    with_mirror(engine, tmp_path)
    with pytest.raises(InvalidFeatureIndex, match="no feature 64: this SAE has 64"):
        engine.reading.read(TEXT, features=[64])
    with pytest.raises(InvalidParameter, match="The text is empty"):
        engine.reading.read("  \n")
    with pytest.raises(InvalidParameter, match="expected a whole number from 0 to 64"):
        engine.reading.read(TEXT, top_k=65)
    with pytest.raises(InvalidParameter, match="at most 65536 are read at once"):
        engine.reading.read([5] * 1025, top_k=64)
    with pytest.raises(InvalidParameter, match="Token 99999 is outside"):
        engine.reading.read([99999])
    with pytest.raises(ContextLengthExceeded, match="has 2049 tokens"):
        engine.reading.read([5] * 2049)
    engine.saes.import_local(make_sae(tmp_path / "wide", d_in=16), sae_id="wide")
    with pytest.raises(SaeIncompatible):
        engine.reading.read(TEXT, sae_id="wide")
    bare = make_engine(checkpoint("llama", chat_template=None))
    with_mirror(bare, tmp_path / "bare")
    with pytest.raises(NoChatTemplate):
        bare.reading.read(ChatInput((Message("user", "x"),), {"thinking": True}))
    with pytest.raises(ModelNotLoaded):
        make_engine(None).reading.read(TEXT)


@pytest.mark.parametrize(
    ("norms", "sinks"),
    [([900.0, 2.0, 3.0, 2.0], {0}), ([900.0, 20.0, 3.0, 2.0, 3.0], {0, 1}), ([1.0], {0}), ([], {0})],
)
def test_sinks(norms: list[float], sinks: set[int]) -> None:
    assert sinks_among(norms) == sinks

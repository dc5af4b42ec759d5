"""Tokens that a tokenizer has and the weights have not, and one row's fault among innocent neighbours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.actions.saes.reading import token_ids_of
from engine.errors import InvalidParameter
from engine.generation.embeddings import EmbeddingRequest
from engine.generation.errors import ResponseFormatUnsupported
from engine.generation.request import ChatInput, GenerationRequest, Message, TextInput
from engine.generation.response_format import ResponseFormat
from engine.generation.scoring import ScoringRequest
from engine.library.database import Library
from engine.models.backends.llamacpp.backend import LlamaCppBackend
from engine.models.backends.transformers_backend import TransformersBackend
from engine.sampling import Sampling
from tests.conftest import CheckpointMaker
from tests.engine.generation.driving import Answer, Driver
from tests.engine.models.llamacpp.conftest import load as gguf

EXTRA = "<extra_a>"


@pytest.fixture
def driver(checkpoint: CheckpointMaker, tmp_path: Path, library: Library) -> Driver:
    """A model whose tokenizer was given two tokens after its weights were made."""
    import shutil

    from transformers import AutoTokenizer

    folder = tmp_path / "beyond"
    shutil.copytree(checkpoint("llama"), folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    tokenizer.add_tokens([EXTRA, "<extra_b>"])
    tokenizer.save_pretrained(folder)
    return Driver(folder, library, PREFILL_CHUNK=64)


def rows_of(driver: Driver) -> int:
    return int(
        json.loads((Path(driver.service._shelf.resident.record.local_path) / "config.json").read_text())["vocab_size"]
    )  # type: ignore[union-attr]


def test_text_with_such_a_token_is_refused_before_any_pass(driver: Driver) -> None:
    rows = rows_of(driver)
    texts = (f"say {EXTRA}", "fine")
    chat = ChatInput((Message("user", texts[0]),))
    asked: list[tuple[str, Any]] = [
        ("prompt", lambda: driver.send(texts[0])),
        ("prompt", lambda: driver.send(*texts)),
        ("messages", lambda: driver.service.prepare(GenerationRequest(driver.name, chat))),
        ("prompt", lambda: driver.service.prepare_scoring(ScoringRequest(driver.name, TextInput(texts)))),
        ("messages", lambda: driver.service.prepare_scoring(ScoringRequest(driver.name, (chat,)))),
        ("input[0]", lambda: driver.service.prepare_embeddings(EmbeddingRequest(driver.name, texts))),
        ("text", lambda: token_ids_of(texts[0], driver.service._resident(driver.name))),
        ("messages", lambda: token_ids_of(chat, driver.service._resident(driver.name))),
    ]
    for param, ask in asked:
        with pytest.raises(InvalidParameter) as refused:
            ask()
        assert refused.value.param == param
        assert f"'{EXTRA}', which is token {rows} of the tokenizer" in refused.value.message
        assert refused.value.details == {"token_id": rows, "readable_ids": rows}
        assert refused.value.remedy
    with pytest.raises(InvalidParameter, match=rf"token {rows}"):
        driver.service.prepare_embeddings(EmbeddingRequest(driver.name, ((rows,),)))
    with pytest.raises(InvalidParameter, match=f"token id {rows}"):
        driver.send("x", sampling=Sampling(logit_bias={rows: 100.0}))
    assert driver.passes == []
    assert len(driver.alone("say it").ids()) == 12


@pytest.mark.parametrize("method", ["extend", "decode", "read_together", "logits_at_ends", "hidden"])
def test_a_pass_never_looks_beyond_the_embedding(method: str, driver: Driver) -> None:
    backend: TransformersBackend = driver.backend
    beyond = rows_of(driver)
    store = backend.new_store()
    batch = backend.new_batch()
    backend.extend(store, [5, 6])
    backend.join(batch, store)
    calls: dict[str, Any] = {
        "extend": lambda: backend.extend(store, [beyond]),
        "decode": lambda: backend.decode(batch, [beyond]),
        "read_together": lambda: backend.read_together([[3], [beyond]]),
        "logits_at_ends": lambda: backend.logits_at_ends([[3], [beyond]]),
        "hidden": lambda: backend.hidden(store, [beyond]),
    }
    with pytest.raises(InvalidParameter, match=f"Token {beyond} is outside"):
        calls[method]()
    assert (store.lengths, batch.lengths) == ([2], [2])


def test_a_packed_embedding_reads_its_own_rows_only(tiny_checkpoint: Path) -> None:
    from engine.models.backends.prepacked import PackedEmbedding, PackedWeight

    embedding = torch.nn.Embedding(70, 32)
    try:
        packed = PackedWeight(embedding.weight.detach())
    except Exception:
        pytest.skip("this torch arranges no weights")
    memory = packed.readable()
    if memory is None:
        pytest.skip("arranged weights cannot be read here")
    module = PackedEmbedding(embedding, packed, memory)
    with torch.inference_mode():
        assert module(torch.tensor([69])).shape == (1, 32)
        with pytest.raises(IndexError, match="token 70 of an embedding of 70 rows"):
            module(torch.tensor([70]))


def test_a_head_wider_than_the_embedding_writes_what_can_be_read(checkpoint: CheckpointMaker, library: Library) -> None:
    driver = Driver(checkpoint("llama"), library)
    model = driver.backend._model
    rows = driver.backend._vocab_rows()
    plain = driver.alone("the sea").ids()
    wide = torch.nn.Linear(32, rows + 8, bias=True)
    with torch.no_grad():
        wide.weight[:rows] = model.get_output_embeddings().weight
        wide.weight[rows:] = 0
        wide.bias[:rows] = 0
        wide.bias[rows:] = 1e4
    model.lm_head = wide
    backend = driver.backend
    assert backend._writable() == rows == backend.info.vocab_size == backend.info.readable_ids
    store = backend.new_store()
    assert backend.extend(store, [5, 6]).shape == (rows,)
    assert backend.extend_all(store, [5, 6]).shape == (2, rows)
    assert backend.read_together([[5], [6]])[1].shape == (2, rows)
    assert backend.logits_at_ends([[5], [6]]).shape == (2, rows)
    assert driver.alone("the old sea").ids()
    drawn = driver.alone("the sea", sampling=Sampling(temperature=2.0, ignore_eos=True, seed=3)).ids()
    assert max(drawn) < rows
    assert driver.alone("the sea").ids() == plain


def test_an_end_token_beyond_the_logits(driver: Driver) -> None:
    rows = rows_of(driver)
    driver.backend.tokenizer.eos_ids = frozenset({rows})
    with pytest.raises(ResponseFormatUnsupported, match="cannot write an end token"):
        driver.send("x", response_format=ResponseFormat(), sampling=Sampling(temperature=0.0))


# --- one row's fault --------------------------------------------------------------------------------------------------


def fails_for(driver: Driver, monkeypatch: pytest.MonkeyPatch, token: int, *methods: str) -> None:
    """Passes of ``methods`` in which ``token`` is fed fail, whoever else is in them."""
    for method in methods:
        real = getattr(driver.backend, method)

        def failing(first: Any, *rest: Any, real: Any = real, method: str = method) -> Any:
            fed = [i for ids in first for i in ids] if method == "read_together" else list(rest[0])
            if token in fed:
                raise RuntimeError("index out of range in self")
            return real(first, *rest)

        monkeypatch.setattr(driver.backend, method, failing)


def neighbours(driver: Driver) -> list[Answer]:
    return [driver.send(text, max_tokens=20) for text in ("the sea", "a smile", "one")]


@pytest.mark.parametrize("engine", ["transformers", "llamacpp"])
def test_a_prompt_that_cannot_be_read_ends_alone(
    engine: str, tiny_checkpoint: Path, gguf_file: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = _driver(engine, tiny_checkpoint, gguf_file, library)
    expected = [driver.alone(text, max_tokens=20).ids() for text in ("the sea", "a smile", "one")]
    (bad,) = driver.backend.tokenizer.encode("~", add_special_tokens=False)
    fails_for(driver, monkeypatch, bad, "extend", "read_together")
    others = neighbours(driver)
    faulty = driver.send("~")
    driver.finish()
    assert faulty.error is not None and "index out of range" in faulty.error.message
    assert [other.ids() for other in others] == expected


@pytest.mark.parametrize("engine", ["transformers", "llamacpp"])
def test_a_token_that_cannot_be_fed_ends_its_own_answer(
    engine: str, tiny_checkpoint: Path, gguf_file: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = _driver(engine, tiny_checkpoint, gguf_file, library)
    expected = [driver.alone(text, max_tokens=20).ids() for text in ("the sea", "a smile", "one")]
    bad = next(token for token in range(100, 400) if not any(token in ids for ids in expected))
    fails_for(driver, monkeypatch, bad, "extend", "decode")
    others = neighbours(driver)
    faulty = driver.send(
        "the ship", sampling=Sampling(temperature=0.0, ignore_eos=True, logit_bias={bad: 100.0}), max_tokens=20
    )
    driver.finish()
    assert faulty.error is not None and "index out of range" in faulty.error.message
    assert [other.ids() for other in others] == expected
    assert all(other.finished is not None for other in others)
    assert driver.scheduler.stats().queue_pending == 0
    monkeypatch.undo()
    assert driver.alone("the sea", max_tokens=20).ids() == expected[0]


def _driver(engine: str, checkpoint: Path, file: Path, library: Library) -> Driver:
    if engine == "transformers":
        return Driver(checkpoint, library, PREFILL_CHUNK=64)
    made = Driver(file, library, load=gguf, PREFILL_CHUNK=64)
    assert isinstance(made.backend, LlamaCppBackend)
    return made

"""What llama.cpp says when it fails: a request that meets it ends in words, and the next one is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import GenerationFailed, MillmError
from engine.generation.request import ChatInput, GenerationRequest, Message
from engine.library.database import Library
from engine.models.backends.llamacpp.binding import library as llama_cpp
from engine.models.backends.llamacpp.tokenizer import GgufTokenizer
from tests.engine.generation.driving import Answer, Driver
from tests.engine.generation.test_comparing import gguf


@pytest.fixture
def driver(gguf_file: Path, library: Library) -> Iterator[Driver]:
    made = Driver(gguf_file, library, load=gguf)
    yield made
    made.backend.close()


def text(driver: Driver) -> str:
    answer = driver.send("the sea")
    driver.finish()
    assert answer.error is None
    return answer.text()


class Spoilt:
    """A function of the library that answers otherwise at some of its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, answer: Callable[..., Any], after: int = 0) -> None:
        module = llama_cpp()
        self.real = getattr(module, name)
        self.calls = 0
        self.left = after

        def spoilt(*args: Any) -> Any:
            self.calls += 1
            if self.left:
                self.left -= 1
                return self.real(*args)
            return answer(self.real, *args)

        monkeypatch.setattr(module, name, spoilt)


@pytest.mark.parametrize("code", [2, -1, -2, -3])
@pytest.mark.parametrize("after", [0, 3], ids=["in the prompt", "in the answer"])
def test_a_pass_that_it_gives_up(driver: Driver, monkeypatch: pytest.MonkeyPatch, code: int, after: int) -> None:
    before = text(driver)
    with monkeypatch.context() as spoiling:
        Spoilt(spoiling, "llama_decode", lambda real, *args: code, after)
        failed: Answer = driver.send("the old forest")
        driver.finish()
    assert isinstance(failed.error, GenerationFailed)
    assert f"code {code}" in failed.error.message
    assert text(driver) == before


def test_results_that_are_not_there(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    before = text(driver)
    with monkeypatch.context() as spoiling:
        for name in ("llama_get_logits", "llama_get_logits_ith"):
            Spoilt(spoiling, name, lambda real, *args: None)
        failed = driver.send("the old forest")
        driver.finish()
    assert isinstance(failed.error, GenerationFailed)
    assert text(driver) == before


def test_results_that_are_no_numbers(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    before = text(driver)

    def spoil(real: Any, *args: Any) -> Any:
        pointer = real(*args)
        np.ctypeslib.as_array(pointer, (driver.backend.info.vocab_size,))[:] = np.nan
        return pointer

    with monkeypatch.context() as spoiling:
        for name in ("llama_get_logits", "llama_get_logits_ith"):
            Spoilt(spoiling, name, spoil)
        failed = driver.send("the old forest")
        driver.finish()
    assert failed.error is not None
    assert failed.error.code == "non_finite_logits"
    assert text(driver) == before


@pytest.mark.parametrize("answer", [-(2**31), -1, -5])
def test_a_tokenizer_that_never_has_room_enough(driver: Driver, monkeypatch: pytest.MonkeyPatch, answer: int) -> None:
    tokenizer = driver.backend.tokenizer
    assert isinstance(tokenizer, GgufTokenizer)
    chat = ChatInput((Message("user", "the old forest"),))
    with monkeypatch.context() as spoiling:
        for name in ("llama_tokenize", "llama_detokenize"):
            Spoilt(spoiling, name, lambda real, *args: answer)
        with pytest.raises(MillmError):
            driver.service.prepare(GenerationRequest(driver.name, chat))
        with pytest.raises(MillmError):
            tokenizer.decode([5, 6])
    assert text(driver)

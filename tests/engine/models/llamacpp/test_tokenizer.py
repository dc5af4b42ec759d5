"""The tokenizer in the GGUF file against the one of the checkpoint it was made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import ModelBusy
from engine.generation.prompts import prepare_chat, prepare_text
from engine.generation.request import ChatInput, Message, TextInput
from engine.generation.text.detokenizer import Detokenizer
from engine.models.backends.llamacpp.backend import LlamaCppBackend
from engine.models.backends.tokenizer import TemplateRaised
from engine.models.backends.transformers_backend import TransformersBackend
from tests.engine.models.llamacpp.conftest import BackendMaker, load
from tests.gguf_files import build_gguf

TEXTS = ["the quick brown fox", "Well, naïve 東京 🙂 — a  b\n\n  c\td", "<|im_start|>user\nhi<|im_end|>\n", " ", "a\0b"]


@pytest.mark.parametrize("text", TEXTS)
def test_the_same_tokens_and_the_same_text(backend: LlamaCppBackend, reference: TransformersBackend, text: str) -> None:
    mine, theirs = backend.tokenizer, reference.tokenizer
    ids = mine.encode(text, True)
    assert ids == theirs.encode(text, True)
    assert mine.decode(ids, skip_special=False) == text
    assert mine.decode(ids) == theirs.decode(ids)
    assert [mine.token_bytes(i) for i in ids] == [theirs.token_bytes(i) for i in ids]
    written = Detokenizer(mine)
    shown = "".join(written.feed(i) for i in ids) + written.finish()
    assert shown == theirs.decode(ids)


def test_what_is_known_of_the_vocabulary(backend: LlamaCppBackend, reference: TransformersBackend) -> None:
    mine, theirs = backend.tokenizer, reference.tokenizer
    assert (mine.bos_id, mine.bos_text) == (theirs.bos_id, theirs.bos_text) == (0, "<|bos|>")
    assert theirs.eos_ids <= mine.eos_ids
    assert mine.special_ids == theirs.special_ids
    assert mine.vocab_size == theirs.vocab_size == 400
    assert mine.token_bytes(4000) == b"" and mine.decode([4000, -1]) == ""
    assert (mine.prepended_ids, mine.appended_ids) == ((), ())
    assert mine.has_chat_template
    with pytest.raises(ValueError, match="surrogate"):
        mine.encode("\ud83d", True)


@pytest.mark.parametrize(
    "turns",
    [
        [("user", "the sea")],
        [("system", "calm"), ("user", "the sea"), ("assistant", "was"), ("user", "and?")],
        [("user", "the sea"), ("assistant", "was calm and")],
    ],
)
def test_the_same_prompt(
    backend: LlamaCppBackend, reference: TransformersBackend, turns: list[tuple[str, str]]
) -> None:
    chat = ChatInput(tuple(Message(role, content) for role, content in turns))
    assert prepare_chat(backend.tokenizer, chat) == prepare_chat(reference.tokenizer, chat)


def test_one_bos_whoever_writes_it(tiny_checkpoint: Path, tmp_path: Path) -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    file = build_gguf(tiny_checkpoint, tmp_path / "bos-F32.gguf", add_bos=True, chat_template=template)
    backend = load(file)
    try:
        tokenizer = backend.tokenizer
        assert tokenizer.prepended_ids == (0,)
        prompt, _, _ = prepare_chat(tokenizer, ChatInput((Message("user", "the sea"),)))
        assert prompt.text == "<|bos|>user: the sea\n"
        assert prompt.token_ids[0] == 0 and prompt.token_ids.count(0) == 1
        for text in ("the sea", "<|bos|>the sea"):
            (raw,) = prepare_text(tokenizer, TextInput((text,), True))
            assert raw.token_ids[0] == 0 and raw.token_ids.count(0) == 1
    finally:
        backend.close()


def test_a_file_without_a_template(tiny_checkpoint: Path, tmp_path: Path) -> None:
    backend = load(build_gguf(tiny_checkpoint, tmp_path / "plain-F32.gguf", chat_template=None))
    try:
        assert not backend.tokenizer.has_chat_template and not backend.info.has_chat_template
        prompt, notes, _ = prepare_chat(backend.tokenizer, ChatInput((Message("user", "the sea"),)))
        assert prompt.text == "<start_of_turn>user\nthe sea<end_of_turn>\n<start_of_turn>model\n"
        assert notes
        with pytest.raises(TemplateRaised):
            backend.tokenizer.render_chat([], add_generation_prompt=True, continue_final=False, kwargs={})
    finally:
        backend.close()


def test_after_the_model_has_gone(make_backend: BackendMaker) -> None:
    backend = make_backend()
    tokenizer = backend.tokenizer
    backend.close()
    assert tokenizer.token_bytes(262) == b"the"
    with pytest.raises(ModelBusy):
        tokenizer.encode("the sea", False)
    with pytest.raises(ModelBusy):
        tokenizer.decode([262])
    backend.close()

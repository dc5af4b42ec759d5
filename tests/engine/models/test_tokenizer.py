"""The tokenizer facade: exact bytes, end tokens, loading, threads."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine.errors import CheckpointInvalid, InvalidParameter
from engine.generation.text.detokenizer import Detokenizer
from engine.models.backends.tokenizer import CheckpointTokenizer, TemplateRaised
from tests.engine.generation.made_tokenizers import byte_chunks, byte_level, sentencepiece, wordpiece
from tests.tiny import build_tokenizer

TEXT = "naïve café, 東京, привет 🙂\n  two  spaces\tand 👩‍👩‍👧 한국어"


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    return folder


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
def test_a_text_is_the_bytes_of_its_tokens(make: Any) -> None:
    tokenizer = make()
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    assert tokenizer.exact_bytes
    assert b"".join(tokenizer.token_bytes(i) for i in ids).decode().removeprefix(" ") == TEXT
    assert tokenizer.decode(ids) == TEXT


def test_bytes_of_single_tokens_of_a_byte_level_tokenizer() -> None:
    tokenizer = byte_level()
    first, second = tokenizer.encode("the quick", add_special_tokens=False)[:1], tokenizer.encode(" the", False)
    assert tokenizer.token_bytes(first[0]) == b"the"
    assert tokenizer.token_bytes(second[0]) == b" the"
    assert tokenizer.token_text(second[0]) == " the"
    assert tokenizer.token_text(0) == "<|bos|>"
    assert tokenizer.token_bytes(10**7) == b""
    assert tokenizer.token_bytes(-1) == b""
    assert tokenizer.decode([10**7, -1, *first]) == "the"


def test_half_a_character_is_written_as_escapes() -> None:
    tokenizer, ids = byte_chunks([b" \xf0\x9f", b"\x99\x82", b"\xef\xbf\xbd"])
    assert [tokenizer.token_text(i) for i in ids] == [" \\xf0\\x9f", "\\x99\\x82", "\ufffd"]
    assert tokenizer.token_bytes(ids[0]) == b" \xf0\x9f"


def test_bytes_of_single_tokens_of_a_sentencepiece_tokenizer() -> None:
    tokenizer = sentencepiece()
    ids = tokenizer.encode("hello world 京", add_special_tokens=False)
    assert [tokenizer.token_bytes(i) for i in ids] == [b" hello", b" world", b" ", b"\xe4", b"\xba", b"\xac"]
    assert tokenizer.token_text(2) == "</s>"


def test_a_tokenizer_without_exact_bytes_answers_with_what_it_decodes() -> None:
    tokenizer = wordpiece()
    ids = tokenizer.encode("writes a", add_special_tokens=False)
    assert not tokenizer.exact_bytes
    assert [tokenizer.token_text(i) for i in ids] == ["write", "##s", "a"]
    assert tokenizer.decode(ids) == "writes a"


def test_end_tokens_are_the_union_of_both_declarations() -> None:
    tokenizer = CheckpointTokenizer(build_tokenizer(), extra_eos=[106, 50])
    assert tokenizer.eos_ids == {2, 50, 106}
    assert tokenizer.special_ids == {0, 1, 2, 3}
    assert tokenizer.hidden_ids == {0, 1, 2, 3, 50, 106}
    assert (tokenizer.bos_id, tokenizer.bos_text, tokenizer.vocab_size) == (0, "<|bos|>", 400)


def test_what_the_tokenizer_puts_around_a_text() -> None:
    assert (byte_level().prepended_ids, byte_level().appended_ids) == ((), ())
    around = sentencepiece(add_bos=True, add_eos=True)
    assert (around.prepended_ids, around.appended_ids) == ((1,), (2,))
    assert byte_level(add_bos=True).encode("the", True)[0] == 0
    assert byte_level(add_bos=True).encode("the", False)[0] != 0


def test_special_tokens_are_skipped_unless_asked_for() -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode("<|im_start|>the<|im_end|>", add_special_tokens=False)
    assert tokenizer.decode(ids) == "the"
    assert tokenizer.decode(ids, skip_special=False) == "<|im_start|>the<|im_end|>"


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        byte_level().encode("a\ud800", add_special_tokens=False)


def test_inputs_are_never_cut_or_padded_whatever_the_files_say(tokenizer_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(tokenizer_folder, folder)
    stored = json.loads((folder / "tokenizer.json").read_text())
    stored["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    stored["padding"] = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 3,
        "pad_type_id": 0,
        "pad_token": "<|pad|>",
    }
    (folder / "tokenizer.json").write_text(json.dumps(stored))
    tokenizer = CheckpointTokenizer.load(folder)
    ids = tokenizer.encode("the quick brown fox " * 3, add_special_tokens=True)
    assert tokenizer.decode(ids) == "the quick brown fox " * 3
    assert 3 not in ids


def test_loading_from_a_checkpoint(tokenizer_folder: Path) -> None:
    tokenizer = CheckpointTokenizer.load(tokenizer_folder, [50])
    assert tokenizer.eos_ids == {2, 50}
    assert tokenizer.has_chat_template
    assert tokenizer.decode(tokenizer.encode(TEXT, True)) == TEXT


def test_a_missing_tokenizer_is_named(tokenizer_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(CheckpointInvalid) as caught:
        CheckpointTokenizer.load(tmp_path)
    assert "has no tokenizer in it" in caught.value.message
    assert str(tmp_path) in caught.value.message
    assert caught.value.remedy
    assert len(caught.value.details["problems"]) == 1


@pytest.mark.parametrize("content", ["{", '{"model": 1}', ""])
def test_a_broken_tokenizer_file_is_named(tokenizer_folder: Path, tmp_path: Path, content: str) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(tokenizer_folder, folder)
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointInvalid, match="cannot be read"):
        CheckpointTokenizer.load(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointInvalid, match="no tokenizer"):
        CheckpointTokenizer.load(tmp_path / "nowhere")


def test_template_rendering_and_its_refusals() -> None:
    tokenizer = byte_level()
    turns = [{"role": "user", "content": "the sea", "name": "ann"}]
    rendered = tokenizer.render_chat(turns, add_generation_prompt=True, continue_final=False, kwargs={})
    assert rendered == "<|im_start|>user\nthe sea<|im_end|>\n<|im_start|>assistant\n"
    bare = byte_level(chat_template=None)
    assert not bare.has_chat_template
    with pytest.raises(TemplateRaised):
        bare.render_chat(turns, add_generation_prompt=True, continue_final=False, kwargs={})
    raising = byte_level(chat_template="{{ raise_exception('Only users may speak.') }}")
    with pytest.raises(TemplateRaised, match=r"^Only users may speak\.$"):
        raising.render_chat(turns, add_generation_prompt=True, continue_final=False, kwargs={})


def test_a_template_sees_role_and_content_only() -> None:
    tokenizer = byte_level(
        chat_template="{% for m in messages %}{{ m.keys() | sort | join(' ') }} {{ m.content }}{% endfor %}"
    )
    turns = [{"role": "user", "content": "x", "name": "ann", "tool_call_id": "7"}]
    assert tokenizer.render_chat(turns, add_generation_prompt=True, continue_final=False, kwargs={}) == "content role x"


def test_variables_a_template_reads() -> None:
    tokenizer = byte_level(chat_template="{% if enable_thinking %}{{ bos_token }}{% endif %}{{ messages }}")
    assert tokenizer.template_variables() == {"enable_thinking", "bos_token", "messages"}
    tracked = byte_level(chat_template="{% generation %}{{ messages }}{% endgeneration %}")
    assert tracked.template_variables() == {"messages"}
    assert byte_level(chat_template="{% for %}").template_variables() is None


def test_eight_threads_share_one_tokenizer() -> None:
    tokenizer = byte_level()
    texts = [f"the quick brown fox {n} 🙂 東京 " * 20 for n in range(8)]
    expected = [tokenizer.encode(text, True) for text in texts]
    turns = [{"role": "user", "content": "the sea"}]
    start = threading.Barrier(8)

    def work(n: int) -> bool:
        start.wait(60)
        for _ in range(50):
            ids = tokenizer.encode(texts[n], True)
            if ids != expected[n] or tokenizer.decode(ids) != texts[n]:
                return False
            if b"".join(tokenizer.token_bytes(i) for i in ids) != texts[n].encode():
                return False
            text = tokenizer.render_chat(turns, add_generation_prompt=True, continue_final=False, kwargs={})
            if text != "<|im_start|>user\nthe sea<|im_end|>\n<|im_start|>assistant\n":
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [True] * 8


def test_a_long_prompt_being_read_does_not_hold_up_decoding() -> None:
    from transformers import PreTrainedTokenizerFast

    entered, release = threading.Event(), threading.Event()

    class Slow(PreTrainedTokenizerFast):  # type: ignore[misc]
        def _encode_plus(self, text: str, *args: Any, **kwargs: Any) -> Any:
            if text == "long":
                entered.set()
                release.wait(60)
            return super()._encode_plus(text, *args, **kwargs)

    tokenizer = CheckpointTokenizer(Slow(tokenizer_object=build_tokenizer().backend_tokenizer, eos_token="<|im_end|>"))
    ids = tokenizer.encode("the sea", True)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(tokenizer.encode, "long", True)
        try:
            assert entered.wait(60)
            assert tokenizer.decode(ids) == "the sea"
            assert not reading.done()
        finally:
            release.set()
        assert tokenizer.decode(reading.result(60)) == "long"


# --- added tokens -----------------------------------------------------------------------------------------------------

ADDED = ["đem", "čas", "größe", "señor", "日本", " ĠĊ", "Ã¶"]
"""Written in letters that a byte-level vocabulary uses for bytes, all of them or some."""


@pytest.mark.parametrize("special", [False, True])
def test_added_tokens_come_out_as_they_are_written(special: bool) -> None:
    from tokenizers import AddedToken

    inner = build_tokenizer()
    first = len(inner)
    inner.add_tokens([AddedToken(word, special=special) for word in ADDED], special_tokens=special)
    tokenizer = CheckpointTokenizer(inner)
    assert tokenizer.exact_bytes
    for token, word in enumerate(ADDED, first):
        assert tokenizer.token_bytes(token) == word.encode()
        assert tokenizer.token_text(token) == word
        assert tokenizer.decode([token], skip_special=False) == word
        assert tokenizer.decode([token]) == ("" if special else word)
        assert tokenizer.encode(word, False) == [token]
        text = f"the {word} sea"
        assert tokenizer.decode(tokenizer.encode(text, False), skip_special=False) == text
    vocabulary, _ = tokenizer.constraint_vocabulary()
    if not special:
        for token, word in enumerate(ADDED, first):
            assert vocabulary.decode_bytes([token]) == word.encode()
    assert vocabulary.decode_bytes(tokenizer.encode("naïve", False)) == "naïve".encode()


def test_added_tokens_in_the_stream_and_in_a_vocabulary_of_pieces() -> None:
    inner = build_tokenizer()
    first = len(inner)
    inner.add_tokens(ADDED)
    shown = Detokenizer(CheckpointTokenizer(inner))
    assert "".join(shown.feed(first + n) for n in range(len(ADDED))) + shown.finish() == "".join(ADDED)
    pieces = sentencepiece()._inner
    first = len(pieces)
    pieces.add_tokens(["größe", "日本"])
    tokenizer = CheckpointTokenizer(pieces)
    assert [tokenizer.token_bytes(first + n) for n in (0, 1)] == ["größe".encode(), "日本".encode()]


def test_a_vocabulary_with_a_hole_is_a_refusal() -> None:
    from tokenizers import Tokenizer as Raw
    from tokenizers import models
    from transformers import PreTrainedTokenizerFast

    raw = Raw(models.WordLevel(vocab={**{word: n for n, word in enumerate("abcdefgh")}}, unk_token="<none>"))
    tokenizer = CheckpointTokenizer.__new__(CheckpointTokenizer)
    tokenizer._inner = PreTrainedTokenizerFast(tokenizer_object=raw)
    tokenizer._backend, tokenizer._direct = raw, True
    assert tokenizer.encode("a", False) == [0]
    with pytest.raises(InvalidParameter, match="cannot make tokens") as refusal:
        tokenizer.encode("z", False)
    assert refusal.value.param == "model"

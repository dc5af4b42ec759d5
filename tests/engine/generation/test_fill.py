"""Filling in the middle: the exact tokens of the prompt, by family and order, checked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import InvalidParameter
from engine.generation.errors import FimUnsupported
from engine.generation.fill import FillInput, FillOrder, marks_for, prepare_fill
from engine.generation.prompts import PromptTooLong
from engine.models.backends.tokenizer import CheckpointTokenizer
from tests.tiny import build_tokenizer

QWEN = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|file_sep|>")
STARCODER = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>")
DEEPSEEK = ("<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>")
"""In the order in which the made vocabularies have them, from id 4 on."""

# Of a byte-level vocabulary, Q and Z, which are in no merge.
PSM, SPM = FillOrder.PSM, FillOrder.SPM


def byte_level(marks: tuple[str, ...], **options: Any) -> CheckpointTokenizer:
    return CheckpointTokenizer(build_tokenizer(marks=marks, **options))


def sentencepiece() -> CheckpointTokenizer:
    """A vocabulary as CodeLlama's: a space in front of every text, bytes for what has no piece, a BOS."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = ["<unk>", "<s>", "</s>", "▁", "a", "b", "c", "▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"]
    pieces += [f"<0x{byte:02X}>" for byte in range(256)]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    raw = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    raw.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    raw.add_special_tokens(
        [AddedToken(piece, normalized=False, special=True) for piece in (*pieces[:3], *pieces[7:11])]
    )
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return CheckpointTokenizer(PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>"))


def ids(
    tokenizer: CheckpointTokenizer, before: str, after: str, order: FillOrder = PSM, *, special: bool = True
) -> tuple[int, ...]:
    marks = marks_for(tokenizer, 10_000, "m")
    return prepare_fill(tokenizer, FillInput((before,), special, suffix=after, order=order), marks).token_ids


@pytest.mark.parametrize(
    ("marks", "order", "expected"),
    [
        # prefix 4, middle 5, suffix 6
        (QWEN, PSM, (4, "Q", 6, "Z", 5)),
        (QWEN, SPM, (4, 6, "Z", 5, "Q")),
        (STARCODER, PSM, (4, "Q", 6, "Z", 5)),
        (STARCODER, SPM, (4, 6, "Z", 5, "Q")),
        # hole 4, begin 5, end 6
        (DEEPSEEK, PSM, (5, "Q", 4, "Z", 6)),
        (DEEPSEEK, SPM, (5, 4, "Z", 6, "Q")),
    ],
)
def test_the_order_of_byte_level_families(
    marks: tuple[str, ...], order: FillOrder, expected: tuple[int | str, ...]
) -> None:
    tokenizer = byte_level(marks)
    first = 4 + len(marks)
    # Behind the special tokens comes the alphabet in the order of its characters: ! is the first of them.
    letter = {"Q": first + ord("Q") - ord("!"), "Z": first + ord("Z") - ord("!")}
    assert [tokenizer.token_text(i) for i in letter.values()] == ["Q", "Z"]
    assert ids(tokenizer, "Q", "Z", order) == tuple(letter[e] if isinstance(e, str) else e for e in expected)


def test_a_bos_comes_first_where_the_tokenizer_puts_one() -> None:
    tokenizer = byte_level(DEEPSEEK, add_bos=True)
    with_bos = ids(tokenizer, "Q", "Z")
    assert with_bos[:2] == (0, 5)
    assert ids(tokenizer, "Q", "Z", special=False) == with_bos[1:]
    assert ids(tokenizer, "Q", "Z", SPM)[:3] == (0, 5, 4)


def test_codellama() -> None:
    """The text before keeps the space that is put before every text; the text after has none, as it was trained."""
    tokenizer = sentencepiece()
    assert ids(tokenizer, "ab", "c") == (1, 7, 3, 4, 5, 8, 6, 9)
    assert ids(tokenizer, "ab", "c", SPM) == (1, 7, 8, 6, 9, 3, 4, 5)
    assert ids(tokenizer, "ab", " c") == (1, 7, 3, 4, 5, 8, 3, 6, 9)
    assert ids(tokenizer, "ab", "c", special=False) == (7, 3, 4, 5, 8, 6, 9)
    assert marks_for(tokenizer, 10_000, "m").ends == {7, 8, 9, 10}


def test_an_empty_text_before_the_cursor() -> None:
    tokenizer = byte_level(QWEN)
    assert ids(tokenizer, "", "Z") == (4, 6, *tokenizer.encode("Z", False), 5)


def test_the_end_marks_of_a_family_that_are_there() -> None:
    assert marks_for(byte_level(QWEN), 10_000, "m").ends == {4, 5, 6, 7, 8}
    assert marks_for(byte_level(STARCODER), 10_000, "m").ends == {4, 5, 6, 7}
    assert marks_for(byte_level(DEEPSEEK), 10_000, "m").ends == {4, 5, 6}


@pytest.mark.parametrize("marks", [(), QWEN[:2], STARCODER[1:], ("▁<PRE>", "▁<SUF>", "▁<MID>")])
def test_a_vocabulary_without_all_marks(marks: tuple[str, ...]) -> None:
    with pytest.raises(FimUnsupported) as caught:
        marks_for(byte_level(marks), 10_000, "m")
    assert caught.value.param == "suffix"


def test_marks_that_the_weights_do_not_know() -> None:
    with pytest.raises(FimUnsupported):
        marks_for(byte_level(QWEN), 6, "m")
    assert marks_for(byte_level(QWEN), 7, "m")


@pytest.mark.parametrize("maker", [lambda: byte_level(QWEN), sentencepiece])
def test_texts_that_cannot_be_read(maker: Any) -> None:
    tokenizer = maker()
    marks = marks_for(tokenizer, 10_000, "m")
    for before, after, param in (("\ud83d", "b", "prompt"), ("a", "\ud83d", "suffix")):
        with pytest.raises(InvalidParameter) as caught:
            prepare_fill(tokenizer, FillInput((before,), suffix=after), marks)
        assert caught.value.param == param
    for before, after in (("a" * 200_000, "b"), ("a", "b" * 200_000)):
        with pytest.raises(PromptTooLong):
            prepare_fill(tokenizer, FillInput((before,), suffix=after), marks, 100)

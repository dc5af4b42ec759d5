"""The marks by which code models are shown a gap: which families have them, and which of them a vocabulary holds.

A family is known by its marks alone, never by a model's name. What is asked is a vocabulary, or the files it lies in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class FillFamily:
    """How one family writes a gap: the text before the cursor behind ``prefix``, the text after it behind ``suffix``,
    and what belongs between them behind ``middle``.

    Attributes:
        needed: Further marks without which such a model could not end what it writes.
        others: Marks that end a file or stand between files; a model has some of them.
        suffix_goes_on: The text after the cursor has no space of the tokenizer's own in front, as SentencePiece puts
            one before every text.
    """

    prefix: str
    suffix: str
    middle: str
    needed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    suffix_goes_on: bool = False

    @property
    def required(self) -> tuple[str, ...]:
        """All marks a vocabulary must hold."""
        return (self.prefix, self.suffix, self.middle, *self.needed)


FAMILIES = (
    # Qwen-Coder, CodeGemma, later Granite models
    FillFamily(
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        others=("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|file_separator|>", "<|endoftext|>"),
    ),
    # StarCoder, Granite
    FillFamily(
        "<fim_prefix>",
        "<fim_suffix>",
        "<fim_middle>",
        others=(
            "<fim_pad>",
            "<file_sep>",
            "<repo_name>",
            "<filename>",
            "<reponame>",
            "<gh_stars>",
            "<jupyter_start>",
            "<|endoftext|>",
        ),
    ),
    # CodeLlama
    FillFamily("▁<PRE>", "▁<SUF>", "▁<MID>", needed=("▁<EOT>",), suffix_goes_on=True),
    # DeepSeek-Coder: the hole stands where the gap is, and the end of it is where writing begins
    FillFamily(
        "<｜fim▁begin｜>",
        "<｜fim▁hole｜>",
        "<｜fim▁end｜>",
        others=("<|EOT|>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    ),
)


@dataclass(frozen=True)
class FillMarks:
    """The marks of one vocabulary, as token ids.

    Attributes:
        ends: Tokens that are no text of the gap: all marks of the family that the vocabulary holds.
        written: Prefix, suffix and middle as they are written.
    """

    prefix: int
    suffix: int
    middle: int
    ends: frozenset[int]
    written: tuple[str, str, str]
    suffix_goes_on: bool = False


def find_marks(token_id: Callable[[str], int | None]) -> FillMarks | None:
    """The marks of the first family all of whose marks are in the vocabulary; None where there is no such family.

    ``token_id`` gives the id of the one token that is written so, or None.
    """
    for family in FAMILIES:
        ids = {mark: token_id(mark) for mark in (*family.required, *family.others)}
        prefix, suffix, middle = (ids[mark] for mark in (family.prefix, family.suffix, family.middle))
        if prefix is None or suffix is None or middle is None or any(ids[mark] is None for mark in family.needed):
            continue
        return FillMarks(
            prefix,
            suffix,
            middle,
            frozenset(found for found in ids.values() if found is not None),
            (family.prefix, family.suffix, family.middle),
            family.suffix_goes_on,
        )
    return None


def holds_marks(holds: Callable[[str], bool]) -> bool:
    """Whether files, of which ``holds`` says what is written in them, have all marks of a family."""
    return any(all(map(holds, family.required)) for family in FAMILIES)

"""Filling in the middle: a text before the cursor and one after it, written as the model's own marks want it.

The marks are those of the model's family (:mod:`engine.models.inspection.fill_marks`). What lies between them is made
tokens of piece by piece, so that no letters of a person's text grow together with a mark.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from engine.checked import of_kind
from engine.errors import shortened
from engine.generation.errors import FimUnsupported
from engine.generation.prompts import PreparedPrompt, PromptTooLong, check_text
from engine.generation.request import TextInput
from engine.models.backends.lengths import TextTooLong

if TYPE_CHECKING:
    from engine.models.backends.backend import Tokenizer
    from engine.models.inspection.fill_marks import FillMarks

DEFAULT_CAP = 128
"""Tokens written into a gap where a request sets no cap."""

_ANCHOR = "☺"
"""Something in front of a text that takes the space which SentencePiece puts before every text."""


class FillOrder(StrEnum):
    """Which of the two texts stands first: prefix, suffix, middle; or suffix, prefix, middle."""

    PSM = "psm"
    SPM = "spm"


@dataclass(frozen=True)
class FillInput(TextInput):
    """A text with a gap: the one prompt before it, ``suffix`` after it."""

    suffix: str = ""
    order: FillOrder = FillOrder.PSM


def marks_for(tokenizer: Tokenizer, readable: int, model: str) -> FillMarks:
    """The marks of a gap. Raises :class:`FimUnsupported` where the vocabulary has none, or they lie at or past
    ``readable``, the end of what the weights know.
    """
    marks = tokenizer.fill_marks
    if marks is None or max(marks.prefix, marks.suffix, marks.middle) >= readable:
        raise no_marks(model)
    return marks


def no_marks(model: str) -> FimUnsupported:
    """What is said of a model that knows no gaps."""
    return FimUnsupported(
        f"The model {shortened(model)} cannot fill in the middle: its vocabulary has no marks for a gap.",
        param="suffix",
        remedy="Leave suffix out, or use a model that was made for it, such as one of the Qwen-Coder or StarCoder "
        "families.",
    )


def prepare_fill(tokenizer: Tokenizer, given: FillInput, marks: FillMarks, most: int | None = None) -> PreparedPrompt:
    """The prompt for one gap: BOS where the tokenizer puts one, then marks and texts in the order asked for.

    Raises :class:`PromptTooLong` for certainly more than ``most`` tokens, :class:`InvalidParameter` for what is not
    Unicode.
    """
    before = of_kind(str, given.prompts[0])
    check_text(before, "prompt")
    check_text(given.suffix, "suffix")
    try:
        first = tokenizer.encode(before, False, most)
        after = _going_on if marks.suffix_goes_on else _plain
        second = after(tokenizer, given.suffix, most)
    except TextTooLong as error:
        raise PromptTooLong(error.tokens, 0) from error
    begun = tokenizer.prepended_ids if given.add_special_tokens else ()
    prefix, suffix, middle = marks.written
    if given.order is FillOrder.PSM:
        ids = (*begun, marks.prefix, *first, marks.suffix, *second, marks.middle)
        text = f"{prefix}{before}{suffix}{given.suffix}{middle}"
    else:
        # As these families were trained: the mark of an empty prefix comes first, and what is written goes on from the
        # text before the cursor.
        ids = (*begun, marks.prefix, marks.suffix, *second, marks.middle, *first)
        text = f"{prefix}{suffix}{given.suffix}{middle}{before}"
    return PreparedPrompt(text, ids)


def _plain(tokenizer: Tokenizer, text: str, most: int | None) -> list[int]:
    return tokenizer.encode(text, False, most)


def _going_on(tokenizer: Tokenizer, text: str, most: int | None) -> list[int]:
    """Tokens of a text that stands behind another: no space is put in front of it."""
    head = tokenizer.encode(_ANCHOR, False)
    whole = tokenizer.encode(_ANCHOR + text, False, None if most is None else most + len(head))
    return whole[len(head) :] if whole[: len(head)] == head else tokenizer.encode(text, False, most)

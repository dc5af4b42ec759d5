"""The constraint of one lane: which tokens its document may go on with, and whether the finished document is right.

Knows masks and documents; the grammar behind it is ``constraints/``'s, the choice of a token the sampler's. A document
is complete when, and only when, the model ended it with an end token.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from engine.generation.constraints.texts import GrammarCheck, RegexCheck, TextCheck
from engine.generation.constraints.validation import DocumentCheck
from engine.generation.request import Piece, text_of
from engine.generation.response_format import ResponseFormat
from engine.generation.text.parts import Kind

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from engine.generation.constraints.grammar import Matcher, Vocabulary


def check_of(asked: ResponseFormat) -> TextCheck:
    """What a finished document of that form is checked by."""
    written = asked.written
    if written is None:
        return DocumentCheck(asked.effective_schema)
    return RegexCheck(written.regex or "") if written.lark is None else GrammarCheck(written.lark)


class CompiledConstraint:
    """A response format compiled for one tokenizer; lanes take their constraints from it.

    Args:
        eos_ids: All end tokens of the model. The grammar knows one of them, and where that may follow all may.

    Raises :class:`ResponseFormatUnsupported`: the library refuses the schema or the tokenizer.
    """

    def __init__(self, vocabulary: Vocabulary, asked: ResponseFormat, eos_ids: Collection[int]) -> None:
        self._check = check_of(asked)
        written = asked.written
        if written is None:
            self._grammar = vocabulary.compile(asked.text)
        elif written.lark is not None:
            self._grammar = vocabulary.compile_grammar(written.lark)
        else:
            self._grammar = vocabulary.compile_regex(written.regex or "")
        self._eos_ids = frozenset(eos_ids)

    def for_lane(self, vocab_size: int, device: torch.device | str) -> LaneConstraint:
        """A constraint at the start of a document, for logits of width ``vocab_size`` on ``device``."""
        masks = MaskMaker(self._grammar.eos_id, self._eos_ids, vocab_size, device)
        return LaneConstraint(self._grammar.matcher(), self._check, masks)


class MaskMaker:
    """Masks for logits of one width on one device."""

    def __init__(self, eos_id: int, eos_ids: frozenset[int], vocab_size: int, device: torch.device | str) -> None:
        self._eos_id = eos_id
        self._other_eos = [i for i in eos_ids if 0 <= i < vocab_size]
        self._vocab_size = vocab_size
        self._device = device

    def of(self, matcher: Matcher) -> Tensor:
        """``[vocab]`` bool, true for tokens that may follow; ids past the tokenizer's (padding of the head) may not.

        Unpacked with numpy: the kernels that constraint libraries ship for torch need a compiler at first use.
        """
        import numpy as np
        import torch

        bits = np.unpackbits(np.frombuffer(matcher.allowed(), dtype=np.uint8), bitorder="little")
        allowed = np.zeros(self._vocab_size, dtype=bool)
        width = min(self._vocab_size, bits.size)
        allowed[:width] = bits[:width]
        # The grammar's own end token may lie beyond the logits, where the model has others.
        if self._eos_id < bits.size and bits[self._eos_id]:
            allowed[self._other_eos] = True
        return torch.from_numpy(allowed).to(self._device)


class LaneConstraint:
    """Where one lane's document stands. Engine thread only."""

    holds = True
    """Whether the next token is chosen under a mask."""

    def __init__(self, matcher: Matcher, check: TextCheck, masks: MaskMaker) -> None:
        self._matcher = matcher
        self._check = check
        self._masks = masks
        self._text: list[str] = []

    def mask(self) -> Tensor:
        """As :meth:`MaskMaker.of`."""
        return self._masks.of(self._matcher)

    def take(self, token_id: int) -> None:
        """The lane chose ``token_id``, which is no end token."""
        self._matcher.take(token_id)

    def show(self, pieces: Iterable[Piece]) -> None:
        """``pieces`` were added to the answer."""
        self._text.append(text_of(pieces, Kind.CONTENT))

    def complete(self) -> None:
        """The model ended the document. Raises :class:`ConstrainedOutputInvalid` when it is not what was asked for."""
        self._check.check("".join(self._text))

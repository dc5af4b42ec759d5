"""What holds one answer to its calls: free until a call begins, then within its grammar, and free again behind it.

Engine thread only. The reader says where calls stand in the text; the grammar says what may follow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from engine.generation.constraint import MaskMaker, check_of
from engine.generation.constraints.validation import DocumentCheck
from engine.generation.request import Piece
from engine.generation.text.parts import Call, Kind
from engine.generation.tools.reader import CallReader

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from engine.generation.constraints.grammar import Grammar, Matcher
    from engine.generation.tools.grammar import CallGrammar
    from engine.generation.tools.values import Tools


class CompiledCalls:
    """A request's grammar of calls compiled for one tokenizer; lanes take their guards from it."""

    def __init__(self, grammar: CallGrammar, compiled: Grammar, eos_ids: Collection[int]) -> None:
        self.grammar = grammar
        self.compiled = compiled
        self.eos_ids = frozenset(eos_ids)
        self.document = None if grammar.document is None else check_of(grammar.document)
        self._checks: dict[str, DocumentCheck] = {}

    def check_of(self, name: str) -> DocumentCheck:
        """What the arguments of a strict tool are checked against."""
        if name not in self._checks:
            self._checks[name] = DocumentCheck(self.grammar.arguments[name])
        return self._checks[name]

    def guard(self, tools: Tools, vocab_size: int, device: torch.device | str) -> CallGuard:
        """A guard at the start of an answer, for logits of width ``vocab_size`` on ``device``."""
        return CallGuard(self, tools, vocab_size, device)


class CallGuard:
    """Where one answer stands: whether the grammar holds it now, and what it allows."""

    def __init__(self, compiled: CompiledCalls, tools: Tools, vocab_size: int, device: torch.device | str) -> None:
        self._compiled = compiled
        self._tools = tools
        self._masks = MaskMaker(compiled.compiled.eos_id, compiled.eos_ids, vocab_size, device)
        self._matcher: Matcher | None = None
        self._text: list[str] = []
        self._arguments: dict[Call, list[str]] = {}
        self.reader = CallReader(compiled.grammar.wire, tools, self.fits)

    @property
    def holds(self) -> bool:
        """Whether the next token is chosen under a mask."""
        return self._matcher is not None

    @property
    def done(self) -> bool:
        """Whether the answer ends here, since it has all the calls it may have."""
        return self.reader.closed >= self._compiled.grammar.most

    @property
    def called(self) -> bool:
        """Whether the answer has a call."""
        return self.reader.begun > 0

    def fits(self, text: str) -> bool:
        """Whether ``text``, which begins with a mark, may begin a call. What is held fits anyway."""
        return self._matcher is not None or self._compiled.compiled.matcher().fits(text)

    def follow(self, *, answering: bool) -> None:
        """The text went on: be held where it has to be. ``answering``: what comes next is the answer itself."""
        if self._compiled.grammar.whole:
            if self._matcher is None and answering:
                self._matcher = self._compiled.compiled.matcher()
                if self.reader.raw is not None:
                    self._matcher.take_text(self.reader.raw)
                elif self._compiled.grammar.insists:
                    self.reader.only_calls_now()
        elif self.reader.raw is None:
            self._matcher = None
        elif self._matcher is None:
            self._matcher = self._compiled.compiled.matcher()
            if not self._matcher.take_text(self.reader.raw):
                self._matcher = None

    def mask(self) -> Tensor | None:
        """As a constraint's; None where the next token is free."""
        return None if self._matcher is None else self._masks.of(self._matcher)

    def take(self, token_id: int) -> None:
        """The lane chose ``token_id``, which is no end token."""
        if self._matcher is not None:
            self._matcher.take(token_id)

    def show(self, pieces: Iterable[Piece]) -> None:
        """``pieces`` were added to the answer.

        Raises :class:`ConstrainedOutputInvalid` for complete arguments of a strict tool that do not fit its schema.
        """
        for piece in pieces:
            if piece.call is None:
                if piece.kind is Kind.CONTENT:
                    self._text.append(piece.text)
            elif piece.call.name in self._compiled.grammar.strict:
                self._arguments.setdefault(piece.call, []).append(piece.text)
        complete = [call for call in self._arguments if call.number < self.reader.closed]
        for call in complete:
            self._compiled.check_of(call.name).check("".join(self._arguments.pop(call)))

    def complete(self) -> None:
        """The model ended the answer. Raises :class:`ConstrainedOutputInvalid` when it has no call and not the form
        that was asked for.
        """
        if self._compiled.document is not None and not self.called:
            self._compiled.document.check("".join(self._text))

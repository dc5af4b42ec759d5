"""The text of one choice: tokens in, safe pieces out, each of one kind and with the tokens that wrote it.

Puts the detokenizer, the reasoning splitter and the stop holder together; knows nothing of sampling or of where the
text goes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from engine.generation.request import Piece, TokenInfo, joined
from engine.generation.text.detokenizer import Detokenizer, TokenSource
from engine.generation.text.parts import Kind, Part
from engine.generation.text.reasoning import CLOSE, OPEN, Beginning, Edges, ReasoningSplitter
from engine.generation.text.stops import StopHolder

if TYPE_CHECKING:
    from engine.generation.prepared import PreparedRequest

CONTEXT_IDS = 6
"""Prompt tokens the detokenizer sees before the first generated one, so that a continued text keeps its spaces."""


@dataclass(frozen=True)
class Emitted:
    """Pieces that may be shown, and whether a stop string ended the choice.

    The text of a token that was cut by a stop is only partly in its piece.
    """

    pieces: tuple[Piece, ...] = ()
    stopped: bool = False


class CallFinder(Protocol):
    """Tells calls from the text of an answer around them, on any cut; every character comes out again, in order."""

    raw: str | None
    """What was written since a call's mark; None outside of calls."""

    def feed(self, text: str) -> list[Part]:
        """What the next piece of text settles."""
        ...

    def flush(self) -> list[Part]:
        """Something comes next that is no part of the answer."""
        ...

    def finish(self) -> list[Part]:
        """What is still held, now that nothing follows."""
        ...


@dataclass
class _Waiting:
    """A token not sent yet. Places count characters of the completion; ``end`` is None while it has shown nothing."""

    token: TokenInfo
    start: int
    end: int | None


class ChoiceText:
    """The text stream of one choice.

    A token goes out with the piece that completes it. One that shows nothing by itself (a special token, part of a
    character) goes out with the next text, or at the end. When a stop string cuts the text, tokens that begin at or
    after the cut never go out. Each token gets its ``text``, ``bytes`` and ``text_offset`` here: the characters of
    prompt and completion before it.

    ``stops`` end the answer and say nothing of the reasoning, but for those that name a tag of it.

    A stop that is exactly the written form of a special token also ends the text when the model writes that token,
    which itself shows nothing.

    Args:
        tokenizer: Where bytes and texts come from.
        stops: Stop strings; looked for in the text of tokens after the first ``min_tokens``.
        context_ids: The end of the text being continued; empty for a new turn. See :class:`Detokenizer`.
        min_tokens: Tokens that are written whatever they spell.
        prompt_chars: Length of the prompt in characters; where ``text_offset`` starts.
        turn_ends: Stop strings of the program's own, which close a turn wherever they stand.
        beginning: Where the text begins; by default all of it is the answer.
        calls: Finds calls in the answer, where it may have any.
        begun: What the answer goes on with of the prompt: a call that is open in it is finished, and one that is whole
            in it is told with the first token.
        shown_ids: Tokens that calls are made of and that otherwise show nothing.
        also_hidden: Tokens that show nothing beside those the tokenizer hides.
    """

    def __init__(
        self,
        tokenizer: TokenSource,
        stops: Sequence[str] = (),
        *,
        context_ids: Sequence[int] = (),
        min_tokens: int = 0,
        prompt_chars: int = 0,
        turn_ends: Sequence[str] = (),
        beginning: Beginning = Beginning.NEVER,
        calls: CallFinder | None = None,
        begun: str = "",
        shown_ids: Collection[int] = (),
        also_hidden: Collection[int] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._stop_texts = frozenset((*stops, *turn_ends))
        self._detokenizer = Detokenizer(tokenizer, context_ids, shown_ids=shown_ids, also_hidden=also_hidden)
        self._splitter = ReasoningSplitter(beginning)
        self._calls = calls
        self._from_prompt = 0  # characters of the prompt that the finder of calls has not given back yet
        self._told: list[Piece] = []  # calls that stand in the prompt
        self._edges = Edges(beginning)
        self._kind = Kind.REASONING if self._edges.found else Kind.CONTENT
        everywhere = [stop for stop in stops if OPEN in stop or CLOSE in stop]
        self._stops = StopHolder(stops, active=min_tokens == 0, everywhere=(*turn_ends, *everywhere))
        self._min_tokens = min_tokens
        self._prompt_chars = prompt_chars
        self._fed = 0
        self._decoded = 0  # characters the detokenizer has given
        self._shown = 0  # characters that went out, those of tags among them
        self._held: deque[Part] = deque()  # what the stop holder holds
        self._waiting: deque[_Waiting] = deque()
        self._stopped = False
        if calls is not None and begun:
            self._from_prompt = len(begun)
            for part in self._new(calls.feed(begun)):
                self._told.append(Piece(part.kind, part.told, call=part.call, opens=part.opens))
            if calls.raw is not None:
                self._splitter.settle()

    @property
    def answering(self) -> bool:
        """Whether what comes next is the answer, not reasoning."""
        return self._splitter.answering

    @property
    def reasoned(self) -> bool:
        """Whether there has been evidence of reasoning."""
        return self._edges.found

    def feed(self, token: TokenInfo, *, last: bool = False) -> Emitted:
        """Take the next token; what may be shown now, and with the ``last`` one all the rest. After a stop nothing more
        comes out.
        """
        fed = self._with_told(self._feed(token))
        if fed.stopped or not last:
            return fed
        rest = self.finish()
        return Emitted(joined((*fed.pieces, *rest.pieces)), rest.stopped)

    def _feed(self, token: TokenInfo) -> Emitted:
        if self._stopped:
            return Emitted(stopped=True)
        self._stops.active = self._fed >= self._min_tokens
        self._fed += 1
        text = self._detokenizer.feed(token.token_id)
        filled = replace(
            token,
            text=self._tokenizer.token_text(token.token_id),
            bytes=self._tokenizer.token_bytes(token.token_id),
            text_offset=self._prompt_chars + self._decoded,
        )
        self._waiting.append(_Waiting(filled, self._decoded, None))
        self._settle(text)
        parts, stopped = self._hold(text)
        if self._stops.active and self._is_stop_token(filled):
            return self._close([*parts, *self._rest()], stopped=True)
        if stopped:
            return self._close(parts, stopped=True)
        return Emitted(joined(self._release(parts)))

    def finish(self) -> Emitted:
        """What is still held, now that no token follows. A stop can still be found in it."""
        if self._stopped:
            return Emitted(stopped=True)
        text = self._detokenizer.finish()
        self._settle(text)
        parts, stopped = self._hold(text, last=True)
        if not stopped:
            parts += self._through(self._stops.finish())
        return self._with_told(self._close(parts, stopped=stopped))

    def _with_told(self, emitted: Emitted) -> Emitted:
        """``emitted`` behind the calls that stand in the prompt, which are told once."""
        if not self._told:
            return emitted
        told, self._told = self._told, []
        return Emitted(joined((*told, *emitted.pieces)), emitted.stopped)

    def _hold(self, text: str, *, last: bool = False) -> tuple[list[Part], bool]:
        """Look for stops in the next text, in its answer and its reasoning each for those that count there: the parts
        that are let through, and whether one was found.
        """
        parts = self._parts(text)
        if last:
            parts += self._with_calls(self._splitter.finish())
            if self._calls is not None:
                parts += self._new(self._calls.finish())
        through: list[Part] = []
        for part in parts:
            self._held.append(part)
            if part.kind is Kind.CALL or part.sealed:
                held = self._stops.pass_by(part.text)
                if not part.text:
                    # It says something all the same: what of it stood in the prompt.
                    through += self._through(held.text)
                    through += [self._held.pop()]
                    continue
            else:
                held = self._stops.feed(part.text, aside=part.aside)
            through += self._through(held.text)
            if held.stopped:
                return through, True
        return through, False

    def _parts(self, text: str) -> list[Part]:
        """What the next text settles."""
        if self._calls is None:
            return self._splitter.feed(text)
        parts: list[Part] = []
        for place, character in enumerate(text):
            if self._splitter.settled:
                parts += self._with_calls(self._splitter.feed(text[place:]))
                break
            # One at a time: behind the mark of a call a tag is text.
            parts += self._with_calls(self._splitter.feed(character))
            if self._calls.raw is not None:
                self._splitter.settle()
        return parts

    def _with_calls(self, parts: list[Part]) -> list[Part]:
        """``parts``, calls told from the answer around them."""
        if self._calls is None:
            return parts
        found: list[Part] = []
        for part in parts:
            if part.kind is Kind.CONTENT and not part.mark:
                found += self._new(self._calls.feed(part.text))
            else:
                found += [*self._new(self._calls.flush()), part]
        return found

    def _new(self, parts: list[Part]) -> list[Part]:
        """``parts`` without what of them stands in the prompt; calls are told whole."""
        if not self._from_prompt:
            return parts
        new: list[Part] = []
        for part in parts:
            old = min(self._from_prompt, len(part.text))
            self._from_prompt -= old
            left = part if not old else replace(part.cut(old)[1], opens=part.opens)
            if left.text or (left.call is not None and (left.told or left.opens)):
                new.append(left)
        return new

    def _through(self, text: str) -> list[Part]:
        """The next characters of what was held, which are ``text``, as the parts they are of."""
        parts: list[Part] = []
        left = len(text)
        while left:
            part = self._held.popleft()
            if len(part.text) > left:
                part, rest = part.cut(left)
                self._held.appendleft(rest)
            left -= len(part.text)
            parts.append(part)
        return parts

    def _is_stop_token(self, token: TokenInfo) -> bool:
        return (
            bool(self._stop_texts) and token.token_id in self._tokenizer.hidden_ids and token.text in self._stop_texts
        )

    def _rest(self) -> list[Part]:
        """Everything held, flushed because the text ends here."""
        text = self._detokenizer.finish()
        self._settle(text)
        parts, _stopped = self._hold(text, last=True)
        return parts + self._through(self._stops.finish())

    def _settle(self, text: str) -> None:
        """``text`` has been decoded: it completes the tokens that had shown nothing yet."""
        if not text:
            return
        end = self._decoded + len(text)
        for waiting in reversed(self._waiting):
            if waiting.end is not None:
                break
            waiting.end = end
            end = self._decoded + 1  # earlier ones hold bytes of the first new character at most
        self._decoded += len(text)

    def _release(self, parts: Sequence[Part]) -> list[Piece]:
        pieces: list[Piece] = []
        for part in parts:
            self._kind = part.kind
            self._shown += len(part.text)
            ready: list[TokenInfo] = []
            while self._waiting and self._waiting[0].end is not None and self._waiting[0].end <= self._shown:
                ready.append(self._waiting.popleft().token)
            if part.kind is Kind.CALL:
                pieces.append(Piece(part.kind, "" if part.mark else part.told, tuple(ready), part.call, part.opens))
            else:
                pieces.append(Piece(part.kind, self._edges.show(part), tuple(ready)))
        return pieces

    def _close(self, parts: Sequence[Part], *, stopped: bool) -> Emitted:
        self._stopped = stopped
        pieces = self._release(parts)
        if rest := self._edges.finish():
            self._kind = Kind.CONTENT
            pieces.append(Piece(Kind.CONTENT, rest))
        kept = tuple(w.token for w in self._waiting if not stopped or w.start < self._shown)
        self._waiting.clear()
        return Emitted(joined((*pieces, Piece(self._kind, "", kept))), stopped)


def text_of_choice(prepared: PreparedRequest, prompt: int, calls: CallFinder | None = None) -> ChoiceText:
    """The text of a choice for prompt number ``prompt``. Constrained text is all document, whatever it opens."""
    request, given = prepared.request, prepared.prompts[prompt]
    return ChoiceText(
        prepared.loaded.backend.tokenizer,
        request.stop,
        turn_ends=prepared.own_stops,
        beginning=given.beginning if request.response_format is None else Beginning.NEVER,
        context_ids=given.token_ids[-CONTEXT_IDS:] if prepared.continues[prompt] else (),
        min_tokens=request.sampling.min_tokens,
        prompt_chars=len(given.text),
        calls=calls,
        begun=given.continued,
        shown_ids=prepared.shown_ids,
        also_hidden=prepared.own_ends,
    )

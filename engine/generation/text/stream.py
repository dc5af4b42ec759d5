"""The text of one choice: tokens in, safe text out, each token with the text it wrote.

Puts the detokenizer and the stop holder together; knows nothing of sampling or of where the text goes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.generation.request import TokenInfo
from engine.generation.text.detokenizer import Detokenizer, TokenSource
from engine.generation.text.reasoning import CLOSE, OPEN, ReasoningSpans
from engine.generation.text.stops import Held, StopHolder


@dataclass(frozen=True)
class Emitted:
    """Text that may be shown, the tokens whose text is out with it, and whether a stop string ended the choice.

    Either may be empty. The text of a token that was cut by a stop is only partly in ``text``.
    """

    text: str = ""
    tokens: tuple[TokenInfo, ...] = ()
    stopped: bool = False


@dataclass
class _Waiting:
    """A token not sent yet. Places count characters of the completion; ``end`` is None while it has shown nothing."""

    token: TokenInfo
    start: int
    end: int | None


class ChoiceText:
    """The text stream of one choice.

    A token goes out with the text that completes it. One that shows nothing by itself (a special token, part of a
    character) goes out with the next text, or at the end. When a stop string cuts the text, tokens that begin at or
    after the cut never go out. Each token gets its ``text``, ``bytes`` and ``text_offset`` here: the characters of
    prompt and completion before it.

    A stop that is exactly the written form of a special token also ends the text when the model writes that token,
    which itself shows nothing.

    Args:
        tokenizer: Where bytes and texts come from.
        stops: Stop strings; looked for in the text of tokens after the first ``min_tokens``.
        context_ids: The end of the text being continued; empty for a new turn. See :class:`Detokenizer`.
        min_tokens: Tokens that are written whatever they spell.
        prompt_chars: Length of the prompt in characters; where ``text_offset`` starts.
        turn_ends: Stop strings of the program's own, which close a turn wherever they stand.
        reasoning: Tells the model's reasoning from its answer. ``stops`` end the answer and say nothing of the
            reasoning, but for those that name a tag of it. None: all of the text is the answer.
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
        reasoning: ReasoningSpans | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._stop_texts = frozenset((*stops, *turn_ends))
        self._detokenizer = Detokenizer(tokenizer, context_ids)
        self._reasoning = reasoning
        everywhere = [stop for stop in stops if OPEN in stop or CLOSE in stop]
        self._stops = StopHolder(stops, active=min_tokens == 0, everywhere=(*turn_ends, *everywhere))
        self._min_tokens = min_tokens
        self._prompt_chars = prompt_chars
        self._fed = 0
        self._decoded = 0  # characters the detokenizer has given
        self._shown = 0  # characters that went out
        self._waiting: deque[_Waiting] = deque()
        self._stopped = False

    def feed(self, token: TokenInfo) -> Emitted:
        """Take the next token; what may be shown now. After a stop nothing more comes out."""
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
        held = self._hold(text)
        if self._stops.active and self._is_stop_token(filled):
            return self._close(held.text + self._rest(), stopped=True)
        if held.stopped:
            return self._close(held.text, stopped=True)
        return self._release(held.text)

    def finish(self) -> Emitted:
        """What is still held, now that no token follows. A stop can still be found in it."""
        if self._stopped:
            return Emitted(stopped=True)
        text = self._detokenizer.finish()
        self._settle(text)
        held = self._hold(text, last=True)
        if held.stopped:
            return self._close(held.text, stopped=True)
        return self._close(held.text + self._stops.finish(), stopped=False)

    def _hold(self, text: str, *, last: bool = False) -> Held:
        """Look for stops in the next piece, in its answer and its reasoning each for those that count there."""
        if self._reasoning is None:
            return self._stops.feed(text)
        parts = self._reasoning.feed(text)
        if last:
            parts += self._reasoning.finish()
        shown = ""
        for part, aside in parts:
            held = self._stops.feed(part, aside=aside)
            shown += held.text
            if held.stopped:
                return Held(shown, True)
        return Held(shown)

    def _is_stop_token(self, token: TokenInfo) -> bool:
        return (
            bool(self._stop_texts) and token.token_id in self._tokenizer.hidden_ids and token.text in self._stop_texts
        )

    def _rest(self) -> str:
        """Everything held, flushed because the text ends here."""
        text = self._detokenizer.finish()
        self._settle(text)
        return self._hold(text, last=True).text + self._stops.finish()

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

    def _release(self, text: str) -> Emitted:
        self._shown += len(text)
        ready: list[TokenInfo] = []
        while self._waiting and self._waiting[0].end is not None and self._waiting[0].end <= self._shown:
            ready.append(self._waiting.popleft().token)
        return Emitted(text, tuple(ready))

    def _close(self, text: str, *, stopped: bool) -> Emitted:
        self._stopped = stopped
        self._shown += len(text)
        kept = tuple(w.token for w in self._waiting if not stopped or w.start < self._shown)
        self._waiting.clear()
        return Emitted(text, kept, stopped)

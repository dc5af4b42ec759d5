"""Finding calls in an answer as it is written, on any cut of the text.

Knows a wire's patterns; knows nothing of tokens. Every character comes out again, in order: as content, as part of a
call, or as a mark that nobody is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import regex  # the one that can say that a text may become a match

from engine.checked import there
from engine.generation.text.parts import Call, Kind, Part
from engine.generation.tools.scanners import Said, Scanner
from engine.generation.tools.values import ToolKind, Tools
from engine.generation.tools.wire import Wire

_MOST_BLANK = 256
"""White space held back before a call, at most."""


class _Stage(Enum):
    OUTSIDE = "outside"
    ARGUMENTS = "arguments"
    TAIL = "tail"
    BETWEEN = "between"


@dataclass
class _Open:
    """The call being written."""

    call: Call
    scanner: Scanner


class CallReader:
    """Tells calls from the text around them.

    A call begins where the head of one is whole: its mark, its name (one that may be called) and what opens its
    arguments. Until then what stands there may be content, and is held back. White space before a call belongs to it,
    and so does what follows one where nothing else was said.

    Args:
        wire: How the model writes calls.
        tools: What may be called.
        fits: Whether a text that begins with a mark is one that a call may begin with, as far as it goes. Asked as soon
            as the mark is whole; what does not fit is content.
    """

    def __init__(self, wire: Wire, tools: Tools, fits: Callable[[str], bool]) -> None:
        patterns = wire.patterns([tool.name for tool in tools.to_call])
        self._wire = wire
        self._tools = tools
        self._fits = fits
        self._mark = regex.compile(patterns.mark)
        self._first = regex.compile(rf"\s*(?P<from>{patterns.first})")
        self._next = None if patterns.next is None else regex.compile(patterns.next)
        self._tail = regex.compile(patterns.tail)
        self._end = None if patterns.end is None else regex.compile(patterns.end)
        self._stage = _Stage.OUTSIDE
        self._held = ""
        self._bare = True  # nothing but white space and calls so far
        self._open: _Open | None = None
        self._after_call = False
        self._checked = False  # the mark in the held text has been asked about
        self.begun = 0
        """Calls whose head was whole."""
        self.closed = 0
        """Calls that are complete."""
        self.raw: str | None = None
        """What was written since the mark of the call, or of the row of calls, that is open; None where none is."""

    def feed(self, text: str) -> list[Part]:
        """What the next piece of text settles."""
        if self.raw is not None:
            self.raw += text
        self._held += text
        parts: list[Part] = []
        while self._step(parts):
            pass
        return parts

    def finish(self) -> list[Part]:
        """What is still held, now that nothing follows."""
        parts: list[Part] = []
        if self._open is not None and self._stage is _Stage.ARGUMENTS:
            self._say(parts, self._open.scanner.finish())
        if self._held:
            # Behind a call it is the rest of its form; else a head that was never whole is text.
            mark = self._stage is _Stage.TAIL or (self._stage is _Stage.BETWEEN and self._is_partial(self._held))
            blank_after = self._after_call and not self._held.strip()
            if mark or blank_after:
                parts.append(Part(Kind.CALL, self._held, mark=True))
            else:
                # What was to be a call is no text in which anybody looks for a stop.
                sealed = self.raw is not None or self._tools.insists
                self._content(parts, len(self._held))
                if sealed:
                    parts = [replace(part, sealed=True) for part in parts]
            self._held = ""
        self.raw = None
        return parts

    def only_calls_now(self) -> None:
        """What comes is nothing but calls, whatever was said before."""
        self._bare = True

    def flush(self) -> list[Part]:
        """What is held becomes what it is: something that is no part of the answer comes next."""
        return self.finish() if self._stage is _Stage.OUTSIDE else []

    def _step(self, parts: list[Part]) -> bool:
        """One step over the held text; whether there may be another."""
        match self._stage:
            case _Stage.OUTSIDE:
                return self._outside(parts)
            case _Stage.ARGUMENTS:
                return self._arguments(parts)
            case _Stage.TAIL:
                return self._close(parts)
            case _Stage.BETWEEN:
                return self._between(parts)

    # --- outside ------------------------------------------------------------------------------------------------------

    def _outside(self, parts: list[Part]) -> bool:
        if not self._held:
            return False
        if self._wire.only_first and not self._bare:
            self._content(parts, len(self._held))
            return False
        found = self._first.search(self._held, partial=True)
        if found is not None and self._wire.only_first and found.start() > 0:
            found = None
        if found is None:
            self._content(parts, self._without_blank_end())
            return False
        if found.start():
            self._content(parts, found.start())
            return True
        start = self._mark_at(found)
        if start is None:
            return self._limit_blank(parts)
        if not self._checked:
            if not self._fits(self._held[start:]):
                # Text that looked like a call and is none.
                self._content(parts, start + 1)
                return True
            self._checked = True
            self.raw = self._held[start:]
        if found.partial:
            return False
        if not self._fits(self._held[start:]):
            self._content(parts, start + 1)
            return True
        self._begin(parts, found)
        return True

    def _mark_at(self, found: Any) -> int | None:
        """Where in the held text the mark begins, once it is whole."""
        start = len(self._held) - len(self._held.lstrip()) if found.partial else found.start("from")
        return start if self._mark.match(self._held, start) else None

    def _limit_blank(self, parts: list[Part]) -> bool:
        if len(self._held) > _MOST_BLANK and not self._held.strip():
            self._content(parts, len(self._held))
        return False

    def _without_blank_end(self) -> int:
        shown = len(self._held.rstrip())
        return shown if len(self._held) - shown <= _MOST_BLANK else len(self._held)

    def _content(self, parts: list[Part], length: int) -> None:
        text, self._held = self._held[:length], self._held[length:]
        self._checked, self.raw = False, None
        if not text:
            return
        if self._after_call:
            if not text.strip():
                parts.append(Part(Kind.CALL, text, mark=True))
                return
            rest = text.lstrip() if self._bare else text
            if len(rest) < len(text):
                parts.append(Part(Kind.CALL, text[: len(text) - len(rest)], mark=True))
            text, self._after_call = rest, False
        self._bare = self._bare and not text.strip()
        parts.append(Part(Kind.CONTENT, text))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _begin(self, parts: list[Part], head: Any) -> None:
        tool = self._tools.tool(head["name"])
        call = Call(self.begun, tool.name, tool.kind is ToolKind.CUSTOM)
        self.begun += 1
        parts.append(Part(Kind.CALL, head.group(), call=call, opens=True, says=""))
        self._held = self._held[head.end() :]
        self._open = _Open(call, self._wire.scanner(tool))
        self._stage = _Stage.ARGUMENTS
        self._checked = False

    def _arguments(self, parts: list[Part]) -> bool:
        scanner = there(self._open).scanner
        said, rest = scanner.feed(self._held)
        self._say(parts, said)
        self._held = rest
        if not scanner.done:
            return False
        self._stage = _Stage.TAIL
        return True

    def _say(self, parts: list[Part], said: list[Said]) -> None:
        call = there(self._open).call
        parts += [Part(Kind.CALL, written, call=call, says=says) for written, says in said]

    def _close(self, parts: list[Part]) -> bool:
        tail = self._tail.match(self._held, partial=True)
        if tail is not None and tail.partial:
            return False
        if tail is not None:
            self._pass(parts, tail.end())
        self.closed += 1
        self._open, self._after_call = None, True
        if self._next is None and self._end is None:
            self._leave()
        else:
            self._stage = _Stage.BETWEEN
        return bool(self._held)

    def _between(self, parts: list[Part]) -> bool:
        if not self._held:
            return False
        for pattern in (self._next, self._end):
            found = None if pattern is None else pattern.match(self._held, partial=True)
            if found is None:
                continue
            if found.partial:
                return False
            if pattern is self._next:
                self._begin(parts, found)
            else:
                self._pass(parts, found.end())
                self._leave()
            return True
        self._leave()
        return True

    def _is_partial(self, text: str) -> bool:
        return any(
            pattern is not None and pattern.match(text, partial=True) is not None for pattern in (self._next, self._end)
        )

    def _pass(self, parts: list[Part], length: int) -> None:
        if length:
            parts.append(Part(Kind.CALL, self._held[:length], mark=True))
            self._held = self._held[length:]

    def _leave(self) -> None:
        self._stage, self.raw = _Stage.OUTSIDE, None

"""Stop strings in a text that arrives in pieces: nothing of a stop is ever let out.

Knows strings only; knows nothing of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Held:
    """What a piece of text lets out, and whether a stop string ended the text (after which nothing more comes out)."""

    text: str
    stopped: bool = False


class StopHolder:
    """Lets text through, but for a tail that may be the beginning of a stop string.

    The text ends before the stop that is complete first when the text is read character by character; of several that
    are complete at the same character, before the one that began first. So the result does not depend on how the text
    was cut into pieces, and generation ends at once.

    While ``active`` is false, text is let through unseen. A stop counts only if it begins after ``active`` became true:
    the start of a stop that was let out before cannot be taken back.

    Args:
        stops: Non-empty strings.
        active: Whether stops are looked for from the start; may be set later.
        everywhere: Further stops, which end the text also in a part that is ``aside``.
    """

    def __init__(self, stops: Sequence[str], *, active: bool = True, everywhere: Sequence[str] = ()) -> None:
        if not all((*stops, *everywhere)):
            raise ValueError("a stop string may not be empty")
        self.active = active
        self._everywhere = [_Matcher(stop) for stop in dict.fromkeys(everywhere)]
        self._matchers = [*self._everywhere, *(_Matcher(stop) for stop in dict.fromkeys(stops))]
        self._held = ""
        self._stopped = False

    def feed(self, text: str, *, aside: bool = False) -> Held:
        """Take the next piece; the result's text is what can safely be shown now.

        ``aside``: it belongs to a part in which only the stops that count everywhere count. None of the others reaches
        over its edge.
        """
        if self._stopped:
            return Held("", True)
        if not self.active or not self._matchers:
            return Held(text)
        looking = self._everywhere if aside else self._matchers
        if aside and text:
            for matcher in self._matchers[len(self._everywhere) :]:
                matcher.matched = 0
        whole = self._held + text
        for place in range(len(self._held), len(whole)):
            character = whole[place]
            longest = 0
            for matcher in looking:
                if matcher.step(character):
                    longest = max(longest, matcher.length)
            if longest:
                self._stopped = True
                self._held = ""
                return Held(whole[: place + 1 - longest], True)
        tail = max((matcher.matched for matcher in self._matchers), default=0)
        self._held = whole[len(whole) - tail :]
        return Held(whole[: len(whole) - tail])

    def pass_by(self, text: str) -> Held:
        """Text in which no stop counts at all. None reaches over its edges either."""
        if self._stopped:
            return Held("", True)
        for matcher in self._matchers:
            matcher.matched = 0
        held, self._held = self._held, ""
        return Held(held + text)

    def finish(self) -> str:
        """What was held, now that nothing follows: the beginning of a stop that never came is text."""
        rest, self._held = self._held, ""
        return rest


class _Matcher:
    """Follows one stop string through a text, a character at a time (Knuth, Morris, Pratt, 1977).

    ``matched`` is the length of the longest beginning of the stop that the text so far ends with. The table of
    fallbacks grows only as far as the text has matched, so a stop of any length costs nothing until it is met.
    """

    def __init__(self, stop: str) -> None:
        self._stop = stop
        self._fallback = [0]  # by length - 1: the longest proper beginning that is also an end
        self.length = len(stop)
        self.matched = 0

    def step(self, character: str) -> bool:
        """Take one character; true when the stop is complete."""
        self.matched = self._next(self.matched, character)
        if self.matched > len(self._fallback):
            self._fallback.append(self._next(self._fallback[-1], character))
        return self.matched == self.length

    def _next(self, matched: int, character: str) -> int:
        while matched and self._stop[matched] != character:
            matched = self._fallback[matched - 1]
        return matched + 1 if self._stop[matched] == character else 0

"""Texts held to a regular expression or a grammar: what is accepted, and the check of a finished text.

The check is another hand than the one that constrained it: an expression is matched by pydantic's engine, a grammar
followed anew over the bytes of the whole text, whatever tokens they came in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from engine.generation.constraints.patterns import found_in, problem
from engine.generation.constraints.rules import refused
from engine.generation.errors import ConstrainedOutputInvalid

if TYPE_CHECKING:
    from llguidance import LLMatcher


class TextCheck(Protocol):
    """Whether a finished text is what was asked for."""

    def check(self, document: str) -> None:
        """Raise :class:`ConstrainedOutputInvalid` unless it is."""


def whole_text(regex: str) -> str:
    """``regex`` as one that is matched by whole texts: without the anchors at its ends, which say so already.

    Raises :class:`ResponseFormatUnsupported` for what is not matched in linear time (look-around, back-references), is
    too large, or is no regular expression.
    """
    try:
        regex.encode()
    except UnicodeEncodeError as error:
        raise refused("The regular expression holds half of a surrogate pair, which is not Unicode text.") from error
    if (reason := problem(regex)) is not None:
        raise refused(f"The regular expression cannot be used: {reason}.")
    bare = regex.removeprefix("^")
    unescaped = bare.removesuffix("$")
    if unescaped != bare and (len(unescaped) - len(unescaped.rstrip("\\"))) % 2 == 0:
        bare = unescaped
    # What a flag of the expression makes of the wrapping (a comment up to the end of the line) is found here.
    if problem(bare) is not None or (reason := problem(_anchored(bare))) is not None:
        raise refused("The regular expression cannot be held to the whole text.")
    return bare


class RegexCheck:
    """Matches whole texts with ``regex``, one that :func:`whole_text` gave."""

    def __init__(self, regex: str) -> None:
        self._regex = _anchored(regex)

    def check(self, document: str) -> None:
        """As the protocol says."""
        if not found_in(self._regex, document):
            raise _invalid("it does not match the regular expression")


class GrammarCheck:
    """Follows whole texts through a grammar, given in the library's words."""

    def __init__(self, lark: str) -> None:
        from llguidance import LLMatcher, LLParserLimits, LLTokenizer

        limits = LLParserLimits(verbose_errors=False)
        grammar = LLMatcher.grammar_from_lark(lark)
        self._start: LLMatcher = LLMatcher(LLTokenizer("byte"), grammar, log_level=0, limits=limits)

    def check(self, document: str) -> None:
        """As the protocol says."""
        followed = self._start.deep_copy()
        if not (followed.consume_tokens(list(document.encode("utf-8", "replace"))) and followed.is_accepting()):
            raise _invalid("the grammar does not describe it")


def _anchored(regex: str) -> str:
    return f"\\A(?:{regex})\\z"


def _invalid(reason: str) -> ConstrainedOutputInvalid:
    return ConstrainedOutputInvalid(
        f"The model completed a text that is not what was asked for: {reason}.",
        remedy="Send the request again, or simplify what is asked for.",
    )

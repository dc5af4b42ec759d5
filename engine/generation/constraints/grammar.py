"""What talks to the constraint library, with ``numbers`` and ``texts``: outlines, and llguidance behind it.

outlines makes the grammar of a schema and the library's view of a tokenizer. The matchers are llguidance's own, one
for each lane, because outlines' logits processor serves one fixed batch and applies its masks with kernels that are
compiled at first use. Nothing here runs on the engine thread but copying a matcher and asking it for masks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.errors import MillmError
from engine.generation.constraints.keywords import FIELD
from engine.generation.constraints.numbers import as_told
from engine.generation.errors import ConstrainedOutputInvalid, ResponseFormatUnsupported

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from engine.models.backends.backend import Tokenizer

STEP_ITEMS, ROW_ITEMS = 20_000, 1_000
"""Most items the library may make of one step of a grammar, and at one place of a text: others wait meanwhile. Measured
with 49,152 tokens: grammars of programs and of JSON take 1 to 3 ms a step; ``e: e e e | e e | "a" | ""`` took a second
at the library's own limits, and grows without end.
"""
TRIAL_WAYS, TRIAL_TOKENS = 2, 48
"""How a grammar is tried out before it is given to a lane."""

_PLAIN_ESCAPES = '"\\bfnrt'
"""Escapes a document may use. Without ``\\u`` a name has one spelling, so no property can be written twice over."""


class Vocabulary:
    """A tokenizer as the constraint library sees it. Costs up to a second for a large one; made once for a model.

    Raises :class:`ResponseFormatUnsupported` for a tokenizer without an end token, or one the library cannot read.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        from outlines.backends.llguidance import LLGuidanceBackend

        class GrammarsOnly(LLGuidanceBackend):
            """outlines as a maker of grammars: it is given a vocabulary, of whichever engine, and never a model."""

            def _create_llg_tokenizer(self, model: Any) -> Any:
                return model.vocabulary

        if not tokenizer.eos_ids:
            raise _unusable("The model has no end token, so a document could never be complete.")
        try:
            made, eos_id = tokenizer.constraint_vocabulary()
        except MillmError:
            raise
        except Exception as error:  # the library raises plain ValueError, and its core whatever it meets
            raise _unusable(
                f"The model's tokenizer cannot be constrained: {' '.join(str(error).split())[:300]}."
            ) from error
        stand_in: Any = _VocabularyOnly(made)
        self._made: LLTokenizer = made
        self._encode = tokenizer.encode
        self._bytes: list[int] | None = None
        self._outlines = GrammarsOnly(stand_in)
        self.eos_id: int = eos_id
        """The one end token the library knows; the others follow it."""

    def marks(self, text: str) -> list[int]:
        """Tokens that are ``text`` and that the library does not take for its letters."""
        try:
            found = self._encode(text, False)
        except (MillmError, ValueError):
            return []
        return [token for token in found if self._made.is_special_token(token)] if len(found) == 1 else []

    def compile(self, schema: str) -> Grammar:
        """The grammar of a schema, given as compact JSON. Bounded by the library's own limits on size and effort.

        Raises :class:`ResponseFormatUnsupported` with the library's words.
        """
        # No free white space: a model that may write any could write nothing else.
        rules: dict[str, Any] = {"whitespace_flexible": False}
        if "\\u" not in schema:
            rules["json_allowed_escapes"] = _PLAIN_ESCAPES
        told = as_told(json.loads(schema), {"x-guidance": rules})
        try:
            made = self._outlines.get_json_schema_logits_processor(told)
        except ValueError as error:
            raise _uncompilable(str(error)) from error
        return self._compiled(made)

    def compile_rules(self, rules: str) -> Grammar:
        """The grammar of Lark rules that the program itself has written. Raises as :meth:`compile`."""
        try:
            made = self._outlines.get_cfg_logits_processor(rules)
        except ValueError as error:
            raise _uncompilable(str(error)) from error
        return self._compiled(made)

    def _compiled(self, made: Any) -> Grammar:
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(verbose_errors=False)  # a schema's words do not belong in a log
        matcher = LLMatcher(made.llg_tokenizer, made.grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise _uncompilable(matcher.get_error())
        # The first mask is the dearest; paid here, not on the engine thread.
        matcher.compute_bitmask()
        if matcher.is_error():
            raise _uncompilable(matcher.get_error())
        return Grammar(matcher, self.eos_id, self._letters)

    def _letters(self, text: str) -> list[int]:
        """``text`` as tokens, of a byte each where the vocabulary has those: any cut of it can be told by them."""
        if self._bytes is None:
            found = [self._made.tokenize_bytes(bytes([byte])) for byte in range(256)]
            self._bytes = [token for (token,) in found] if all(len(each) == 1 for each in found) else []
        if self._bytes:
            return [self._bytes[byte] for byte in text.encode()]
        return list(self._made.tokenize_bytes(text.encode()))

    def compile_regex(self, regex: str) -> Grammar:
        """The grammar of a regular expression of whole texts. As :meth:`compile`."""
        return self._tried(lambda: self._outlines.get_regex_logits_processor(regex), "regular expression")

    def compile_grammar(self, lark: str) -> Grammar:
        """The grammar that is written in the library's words. As :meth:`compile`."""
        return self._tried(lambda: self._outlines.get_cfg_logits_processor(lark), "grammar")

    def _tried(self, make: Callable[[], Any], what: str) -> Grammar:
        """What ``make`` makes, followed over some tokens: an expression of a few letters may describe what takes the
        library more than its limits allow, and that is to be found here and not in the midst of an answer.
        """
        from llguidance import LLMatcher, LLParserLimits

        try:
            made = make()
        except ValueError as error:
            raise _uncompilable(str(error), what) from error
        limits = LLParserLimits(verbose_errors=False, step_max_items=STEP_ITEMS, max_items_in_row=ROW_ITEMS)
        matcher = LLMatcher(made.llg_tokenizer, made.grammar, log_level=0, limits=limits)
        if not matcher.is_error():
            _follow(matcher.deep_copy(), self.eos_id)
            matcher.compute_bitmask()
        if matcher.is_error():
            raise _uncompilable(_reason(matcher), what)
        return Grammar(matcher, self.eos_id, self._letters)


def _follow(matcher: LLMatcher, eos_id: int) -> None:
    """Go ``matcher`` some tokens on, in several ways. Raises :class:`ResponseFormatUnsupported` at its limits."""
    import numpy as np

    for way in range(TRIAL_WAYS):
        followed, draw = matcher.deep_copy(), np.random.default_rng(way)
        for _ in range(TRIAL_TOKENS):
            bits = np.unpackbits(np.frombuffer(followed.compute_bitmask(), dtype=np.uint8), bitorder="little")
            allowed = np.flatnonzero(bits)
            allowed = allowed[allowed != eos_id]
            if followed.is_error() or not allowed.size:
                break
            followed.consume_token(int(draw.choice(allowed)))
        if followed.is_error():
            raise ResponseFormatUnsupported(
                f"Following it takes more than the limits allow: {_reason(followed)}.",
                param=FIELD,
                remedy="Write it with less that can be read in several ways, and with fewer and smaller repetitions.",
            )


def _reason(matcher: LLMatcher) -> str:
    return str(matcher.get_error()).partition("<non-verbose/>")[0].strip()


class _VocabularyOnly:
    """What outlines is told of a model: its vocabulary as llguidance has it."""

    tensor_library_name = "numpy"
    """Not torch: its processor switches off errors of torch.compile for the whole process."""

    def __init__(self, vocabulary: Any) -> None:
        self.vocabulary = vocabulary


class Grammar:
    """A compiled grammar; matchers are copies of its own, which stays at the start."""

    def __init__(self, matcher: LLMatcher, eos_id: int, letters: Callable[[str], list[int]]) -> None:
        self._matcher = matcher
        self._letters = letters
        self.eos_id = eos_id

    def matcher(self) -> Matcher:
        """A matcher at the start of a document. Takes microseconds."""
        return Matcher(self._matcher.deep_copy(), self._letters)


class Matcher:
    """Where one document stands in its grammar."""

    def __init__(self, inner: LLMatcher, letters: Callable[[str], list[int]]) -> None:
        self._inner = inner
        self._letters = letters

    def allowed(self) -> bytes:
        """The tokens that may follow, one bit each, the lowest bit of a byte first.

        Raises :class:`ConstrainedOutputInvalid` when the library cannot go on.
        """
        bits = self._inner.compute_bitmask()
        self._check()
        return bits

    def take(self, token_id: int) -> None:
        """The document goes on with ``token_id``. Raises as :meth:`allowed`."""
        self._inner.consume_token(token_id)
        self._check()

    def fits(self, text: str) -> bool:
        """Whether a document may begin with ``text``, or is whole before it ends. The matcher is used up."""
        tokens = self._letters(text)
        taken = self._inner.validate_tokens(tokens)
        if taken == len(tokens):
            return True
        self._inner.try_consume_tokens(tokens[:taken])
        return not self._inner.is_error() and self._inner.is_accepting()

    def take_text(self, text: str) -> bool:
        """The document goes on with ``text``; False where it cannot, and the matcher is used up."""
        tokens = self._letters(text)
        return self._inner.try_consume_tokens(tokens) == len(tokens) and not self._inner.is_error()

    def _check(self) -> None:
        if self._inner.is_error():
            raise ConstrainedOutputInvalid(
                f"The constraint could not be followed any further: {' '.join(self._inner.get_error().split())[:300]}.",
                remedy="Simplify the schema.",
            )


def _unusable(message: str) -> ResponseFormatUnsupported:
    return ResponseFormatUnsupported(message, param=FIELD, remedy="Use another model for structured output.")


def _uncompilable(words: str, what: str = "schema") -> ResponseFormatUnsupported:
    if words.startswith("NoExtension"):
        words = "no text fits it"
    return ResponseFormatUnsupported(
        f"The {what} could not be compiled: {' '.join(words.split())[:500]}.",
        param=FIELD,
        remedy=f"Change the part of the {what} that is named.",
    )

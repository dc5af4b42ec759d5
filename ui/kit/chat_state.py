"""What a conversation is while it is open in the window: plain values, and the way to and from the library's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.actions.experiments.words import SAMPLING_WORDS
from engine.errors import InvalidParameter
from engine.generation.request import (
    MAX_SEED,
    MIN_SEED,
    NO_SEED,
    ChatInput,
    GenerationRequest,
    Message,
    Piece,
    Sampling,
)
from engine.generation.text.reasoning import Kind
from engine.library.conversations import CUT_OFF, PLAIN_SIDE, StoredMessage
from engine.steering.dial import DialWord
from engine.steering.request import FOLLOW_LIVE, SteeringRequest

_SEED_DIGITS = 40

OFF: Mapping[str, float] = {"repetition_penalty": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
"""What changes nothing, by the field's name."""
UNSTEERED = SteeringRequest(dial=DialWord.OFF)
"""Nothing is added, whatever steers live."""


TEMPERATURE = 0.7
"""Of answers in the window, where neither the person nor the model says another."""


@dataclass(frozen=True)
class Suggested:
    """How a model reads best, by its own files or by what was measured; ``source`` says by which, in words."""

    temperature: float | None = None
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    source: str = ""

    def words(self) -> str:
        """What is used beside the temperature; empty where nothing is."""
        parts = [
            f"repetition penalty {self.repetition_penalty:g}" if self.repetition_penalty != 1 else "",
            f"top-p {self.top_p:g}" if self.top_p != 1 else "",
            f"top-k {self.top_k}" if self.top_k else "",
            f"min-p {self.min_p:g}" if self.min_p else "",
        ]
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class ChatOptions:
    """How the next answer is written. ``max_tokens`` None: as long as the window allows; ``seed`` None: random.

    Names and meanings are those of :class:`engine.generation.request.Sampling`.
    """

    system_prompt: str = ""
    temperature: float = TEMPERATURE
    max_tokens: int | None = None
    seed: int | None = None
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def sampling(self) -> Sampling:
        """As the engine takes it. Raises InvalidParameter."""
        return Sampling(
            temperature=self.temperature,
            seed=self.seed,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
        )

    def to_json(self) -> dict[str, Any]:
        """All of how an answer is sampled, as it is kept with it; the system prompt belongs to a conversation."""
        told: dict[str, Any] = {"temperature": self.temperature, "max_tokens": self.max_tokens, "seed": self.seed}
        for name, off in OFF.items():
            if getattr(self, name) != off:
                told[name] = getattr(self, name)
        return told

    @classmethod
    def from_json(cls, value: Any) -> ChatOptions:
        """What :meth:`to_json` gave; anything unusable falls back to the default of its field."""
        given = value if isinstance(value, dict) else {}
        fallback = cls()
        temperature = given.get("temperature")
        max_tokens = given.get("max_tokens")
        seed = given.get("seed")
        return replace(
            fallback,
            temperature=float(temperature)
            if isinstance(temperature, int | float) and 0 <= temperature <= 2
            else fallback.temperature,
            max_tokens=max_tokens if isinstance(max_tokens, int) and max_tokens > 0 else None,
            seed=seed if isinstance(seed, int) and MIN_SEED <= seed <= MAX_SEED and seed != NO_SEED else None,
        )


def sampling_words(details: Mapping[str, object]) -> str:
    """How an answer was sampled, as kept with it; empty where that is not known."""
    given = details.get("sampling")
    if not isinstance(given, dict):
        return ""
    seed = given.get("seed")
    more = [f"{words} {given[name]}" for name, words in SAMPLING_WORDS.items() if name in given]
    return ", ".join([f"temperature {given.get('temperature')}", *more, f"seed {'random' if seed is None else seed}"])


def parse_seed(text: str) -> int | None:
    """A seed as typed; blank and −1 are None. Raises InvalidParameter for anything but a whole number in range."""
    words = text.strip().replace("\N{MINUS SIGN}", "-")
    if not words:
        return None
    digits = words.removeprefix("-")
    # The length first: Python refuses to read thousands of digits.
    plain = digits.isascii() and digits.isdigit() and len(digits) <= _SEED_DIGITS
    if not plain or not MIN_SEED <= int(words) <= MAX_SEED:
        raise InvalidParameter(
            f"The seed must be a whole number from {MIN_SEED} to {MAX_SEED}.",
            param="seed",
            remedy="Leave it empty for a different answer each time.",
        )
    return None if int(words) == NO_SEED else int(words)


@dataclass(eq=False)
class ConversationMessage:
    """One message on screen. ``role`` is user or assistant; ``details`` is what was known when it was written.

    ``plain`` is the unsteered answer written beside this one, where the two were compared; ``reasoning`` what the model
    wrote before the answer, which is no part of it.
    """

    role: str
    content: str = ""
    details: dict[str, object] = field(default_factory=dict)
    plain: ConversationMessage | None = None
    reasoning: str = ""

    @property
    def written(self) -> int:
        """Characters there are of it, its reasoning among them."""
        return len(self.content) + len(self.reasoning)

    @property
    def sides(self) -> tuple[ConversationMessage, ...]:
        """The answers that were asked for: this one and, of a comparison, the plain one."""
        return (self,) if self.plain is None else (self, self.plain)

    @property
    def ended_early(self) -> bool:
        """Whether there is an answer that can be continued: it was cut by a person, the length limit, an error or the
        program's end.
        """
        reason = self.details.get("finish_reason")
        return bool(self.content.strip() or self.reasoning) and reason in ("length", "stopped", "error", CUT_OFF)

    def copied(self) -> ConversationMessage:
        """A copy that stays as it is when this one goes on."""
        plain = None if self.plain is None else self.plain.copied()
        return ConversationMessage(self.role, self.content, dict(self.details), plain, self.reasoning)

    def stored(self) -> StoredMessage:
        """As the library keeps it."""
        details = dict(self.details)
        if self.plain is not None:
            plain = self.plain
            reasoning = {"reasoning": plain.reasoning} if plain.reasoning else {}
            details[PLAIN_SIDE] = {"content": plain.content, **reasoning, "details": dict(plain.details)}
        return StoredMessage(self.role, self.content, details, self.reasoning)

    @classmethod
    def from_stored(cls, stored: StoredMessage) -> ConversationMessage:
        """As the library gave it."""
        details = dict(stored.details)
        beside = details.pop(PLAIN_SIDE, None)
        plain = None
        if isinstance(beside, dict):
            given = beside.get("details")
            plain = cls(
                "assistant",
                str(beside.get("content", "")),
                dict(given) if isinstance(given, dict) else {},
                reasoning=str(beside.get("reasoning", "")),
            )
        return cls(stored.role, stored.content, details, plain, stored.reasoning)


def kept_piece(piece: Piece) -> list[object]:
    """A piece as an answer's details keep it: text, token ids and, where it is none of the content, its kind."""
    told: list[object] = [piece.text, [token.token_id for token in piece.tokens]]
    return told if piece.kind is Kind.CONTENT else [*told, piece.kind.value]


def build_request(
    model: str,
    messages: list[ConversationMessage],
    options: ChatOptions,
    *,
    plain: bool = False,
    noise_seed: int | None = None,
) -> GenerationRequest:
    """The engine's request for the next answer to ``messages``. Raises InvalidParameter.

    Args:
        plain: With nothing added, and with the plain answers of earlier comparisons as its past; else the request
            follows the live steering and the answers written under it.
        noise_seed: What both sides of a comparison draw from; it takes the place of the seed, which would have each
            written alone.
    """
    said = [message.plain if plain and message.plain is not None else message for message in messages]
    turns = [Message(message.role, side.content, side.reasoning) for message, side in zip(messages, said, strict=True)]
    if options.system_prompt.strip():
        turns.insert(0, Message("system", options.system_prompt))
    sampling = options.sampling()
    return GenerationRequest(
        model=model,
        input=ChatInput(tuple(turns)),
        sampling=sampling if noise_seed is None else replace(sampling, seed=None),
        max_tokens=options.max_tokens,
        steering=UNSTEERED if plain else FOLLOW_LIVE,
        noise_seed=noise_seed,
    )


def up_to_last_question(messages: list[ConversationMessage]) -> list[ConversationMessage]:
    """The messages the last answer was written from: everything up to the last message of the person."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "user":
            return messages[: index + 1]
    return []

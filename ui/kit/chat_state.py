"""What a conversation is while it is open in the window: plain values, and the way to and from the library's rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from engine.public.generation import ChatInput, GenerationRequest, Kind, Message, Piece
from engine.public.library import CUT_OFF, PLAIN_SIDE, StoredMessage
from engine.public.steering import FOLLOW_LIVE, DialWord, SteeringRequest
from ui.kit.chat_options import ChatOptions

UNSTEERED = SteeringRequest(dial=DialWord.OFF)
"""Nothing is added, whatever steers live."""


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
    sampling = options.sampling
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

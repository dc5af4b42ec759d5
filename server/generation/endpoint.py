"""What an API says of one of its endpoints that writes text; the way there is shared, see ``flow.py``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel
from quart import Response

from engine.errors import MillmError
from engine.public.generation import (
    Call,
    ChoiceFinished,
    GenerationRequest,
    Kind,
    Piece,
    PreparedRequest,
    RequestFinished,
    TokenInfo,
    text_of,
)
from engine.public.library import ModelRecord
from server import sse
from server.context import ServerContext
from server.fields import Column
from server.generation.running import Running
from server.generation.steering import Origin


@dataclass(frozen=True)
class Asked:
    """A body that passed its schema.

    Attributes:
        generation: What to write.
        unused: Declared fields that this very request has no use for.
        notes: What was read in another way than it was sent.
        blame: Where what did not come in its body came from, by the field of that meaning.
        lent: Template variables that the model's alias brought and the request did not.
        shorthands: Template variables that came in a field of their own, and where that is.
    """

    generation: GenerationRequest
    stream: bool
    unused: tuple[str, ...]
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    blame: Mapping[str, Origin] = field(default_factory=dict, kw_only=True)
    lent: frozenset[str] = field(default=frozenset(), kw_only=True)
    shorthands: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def steers(self) -> bool:
        """Whether what it asks for can be steered at all."""
        return True

    @property
    def has_form(self) -> bool:
        """Whether :meth:`constrained` has anything to look at."""
        return False

    def constrained(self) -> GenerationRequest:
        """The request with the form it asks for. Checking a large schema takes a while, so not on the loop.

        Raises :class:`ResponseFormatUnsupported`.
        """
        return self.generation

    def rewritten(self, generation: GenerationRequest) -> Self:
        """The same, with ``generation`` to be written."""
        return replace(self, generation=generation)


@dataclass(frozen=True)
class WrittenCall:
    """A call of an answer: what is called, and the arguments as they were written."""

    call: Call
    arguments: str


@dataclass
class Written:
    """A choice that was written, for an answer that is sent whole."""

    pieces: list[Piece] = field(default_factory=list)
    ended: ChoiceFinished | None = None

    @property
    def text(self) -> str:
        """The answer itself."""
        return text_of(self.pieces, Kind.CONTENT)

    @property
    def reasoning(self) -> str | None:
        """What came before the answer, where there is evidence of any."""
        return text_of(self.pieces, Kind.REASONING) if self.ended is not None and self.ended.reasoned else None

    @property
    def calls(self) -> list[WrittenCall]:
        """Its calls, in their order."""
        found: dict[Call, list[str]] = {}
        for piece in self.pieces:
            if piece.call is not None:
                found.setdefault(piece.call, []).append(piece.text)
        return [WrittenCall(call, "".join(texts)) for call, texts in found.items()]

    @property
    def tokens(self) -> list[TokenInfo]:
        """Every token, of the reasoning too."""
        return [token for piece in self.pieces for token in piece.tokens]

    @property
    def finish_reason(self) -> str:
        """Why it ended, in the engine's word."""
        return "" if self.ended is None else self.ended.reason.value


A = TypeVar("A", bound=Asked)


class Answer(ABC, Generic[A]):
    """One answer on its way, in the shapes of its API.

    Attributes:
        END: What follows the last event of a stream, also after a failure.
    """

    END: ClassVar[bytes] = b""

    def __init__(self, context: ServerContext, asked: A, prepared: PreparedRequest) -> None:
        self.settings = context.settings
        self.asked = asked
        self.prepared = prepared

    @property
    def choices(self) -> int:
        """Choices the answer has."""
        return len(self.prepared.prompts) * self.prepared.request.n

    @abstractmethod
    def whole(self, choices: Sequence[Written], finished: RequestFinished) -> dict[str, Any]:
        """The answer as one object."""

    @abstractmethod
    def events(self, running: Running) -> AsyncIterator[bytes]:
        """The answer as a stream: every frame in the API's order, from the first to the one before :attr:`END`.

        A delta that shows nothing gives an empty frame, so that frames held back before it are sent all the same.
        Raises as :meth:`Running.next`.
        """

    @abstractmethod
    def failure(self, error: MillmError | None) -> bytes:
        """The frame that tells of a failure inside a stream; None: one that nobody foresaw."""


class Endpoint(ABC, Generic[A]):
    """One endpoint.

    Attributes:
        column: What becomes of each field of its body.
        schema: The body it reads; a field is only honoured when it is declared there.
        stream_headers: Headers of a streamed answer.
    """

    column: ClassVar[Column]
    schema: ClassVar[type[BaseModel]]
    stream_headers: ClassVar[Mapping[str, str]] = sse.HEADERS

    @classmethod
    def declared(cls) -> frozenset[str]:
        """The fields its schema reads."""
        return frozenset(cls.schema.model_fields)

    @abstractmethod
    def parse(self, body: dict[str, Any]) -> A:
        """The body as a request. Raises ``InvalidParameter`` and ``SaeActivationsRefused``."""

    @abstractmethod
    def begin(self, context: ServerContext, asked: A, prepared: PreparedRequest) -> Answer[A]:
        """The answer that is about to be written."""

    async def instead(
        self, context: ServerContext, asked: A, record: ModelRecord, unused: tuple[str, ...]
    ) -> Response | None:
        """The answer to a request that was judged and that nothing is written for; None: there is text to write."""
        return None

"""What tells one endpoint of the dialect from another: names, parsing and the shape of a choice. The flow is shared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from engine.generation.request import Piece, TokenInfo
from server.fields import Endpoint
from server.openai.schema import Parsed


class Dialect(ABC):
    """One endpoint.

    Attributes:
        endpoint: Its column in the field table.
        schema: The body it reads; a field is only honoured when it is declared there.
        id_prefix, object_name, chunk_name: As in OpenAI's answers.
    """

    endpoint: ClassVar[Endpoint]
    schema: ClassVar[type[BaseModel]]
    id_prefix: ClassVar[str]
    object_name: ClassVar[str]
    chunk_name: ClassVar[str]

    @classmethod
    def declared(cls) -> frozenset[str]:
        """The fields its schema reads."""
        return frozenset(cls.schema.model_fields)

    @abstractmethod
    def parse(self, body: dict[str, Any]) -> Parsed:
        """The body as a request. Raises ``InvalidParameter`` and ``SaeActivationsRefused``."""

    @abstractmethod
    def choice(
        self,
        index: int,
        text: str,
        reasoning: str | None,
        tokens: Sequence[TokenInfo],
        finish_reason: str,
        *,
        logprobs: bool,
        as_ids: bool,
    ) -> dict[str, Any]:
        """A whole choice of an answer that is not streamed; ``reasoning`` is None where there was none."""

    @abstractmethod
    def opening(self, index: int) -> dict[str, Any] | None:
        """The choice of a stream's first chunk, or None where the endpoint has none."""

    @abstractmethod
    def piece(
        self, index: int, piece: Piece, tokens: Sequence[TokenInfo], *, logprobs: bool, as_ids: bool
    ) -> dict[str, Any]:
        """The choice of a chunk with new text."""

    @abstractmethod
    def closing(self, index: int, finish_reason: str) -> dict[str, Any]:
        """The choice of the chunk that ends choice ``index``."""

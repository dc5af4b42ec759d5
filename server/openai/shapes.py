"""What tells one endpoint of the dialect from another: names and the shape of a choice."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from engine.public.generation import Piece, TokenInfo
from server.generation.endpoint import WrittenCall


class Shapes(ABC):
    """The shapes of one endpoint.

    Attributes:
        id_prefix, object_name, chunk_name: As in OpenAI's answers.
    """

    id_prefix: ClassVar[str]
    object_name: ClassVar[str]
    chunk_name: ClassVar[str]

    @abstractmethod
    def choice(
        self,
        index: int,
        text: str,
        reasoning: str | None,
        calls: Sequence[WrittenCall],
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
    def pieces(
        self, index: int, piece: Piece, tokens: Sequence[TokenInfo], *, logprobs: bool, as_ids: bool
    ) -> list[dict[str, Any]]:
        """The choices of the chunks with new text; logprobs go with the first."""

    @abstractmethod
    def closing(self, index: int, finish_reason: str) -> dict[str, Any]:
        """The choice of the chunk that ends choice ``index``."""

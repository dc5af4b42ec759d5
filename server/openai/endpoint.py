"""An endpoint of OpenAI's that writes text, or scores the next token where that is asked."""

from __future__ import annotations

from quart import Response

from engine.public.generation import PreparedRequest
from engine.public.library import ModelRecord
from server.context import ServerContext
from server.generation.endpoint import Endpoint
from server.openai import scoring
from server.openai.chunks import Completion
from server.openai.schema import Parsed
from server.openai.shapes import Shapes


class OpenAIEndpoint(Shapes, Endpoint[Parsed]):
    """Chat or text completions."""

    def begin(self, context: ServerContext, asked: Parsed, prepared: PreparedRequest) -> Completion:
        """As in the base."""
        return Completion(context, self, asked, prepared)

    async def instead(
        self, context: ServerContext, asked: Parsed, record: ModelRecord, unused: tuple[str, ...]
    ) -> Response | None:
        """Scoring writes nothing."""
        if asked.scoring is None:
            return None
        return await scoring.answer(context, self, asked, asked.scoring, record, unused)

"""The dialect's routes."""

from __future__ import annotations

from quart import Quart, Response

from server import sse
from server.context import ServerContext
from server.openai import embeddings
from server.openai.chat import Chat
from server.openai.completions import Completions
from server.openai.flow import answer
from server.openai.models import get_model, list_models


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""
    chat, completions = Chat(), Completions()

    @app.post("/v1/chat/completions")
    async def chat_completions() -> Response:
        return await answer(context, chat)

    @app.post("/v1/completions")
    async def text_completions() -> Response:
        return await answer(context, completions)

    @app.post("/v1/embeddings")
    async def embed() -> Response:
        return await embeddings.answer(context)

    @app.get("/v1/models")
    async def models() -> Response:
        listed = await context.quick(lambda: list_models(context.engine.shelf))
        return Response(sse.dump(listed), 200, content_type="application/json")

    # A model's name may hold slashes.
    @app.get("/v1/models/<path:name>")
    async def model(name: str) -> Response:
        found = await context.quick(lambda: get_model(context.engine.shelf, name))
        return Response(sse.dump(found), 200, content_type="application/json")

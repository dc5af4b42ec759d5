"""The dialect's routes."""

from __future__ import annotations

from quart import Quart, Response

from server import sse
from server.context import ServerContext
from server.generation.flow import answer
from server.headers import (
    ANSWER_HEADERS,
    BACKEND,
    IGNORED_FIELDS,
    LOAD_POLICY,
    NOTES,
    PROFILE,
    STEERING_INTENSITY,
    STRICT,
)
from server.openai import answers, embeddings, memory, state, tokens
from server.openai.chat import Chat
from server.openai.completions import Completions
from server.openai.fill_rate import FillRate
from server.openai.models import ModelsQuery, get_model, list_models, read_models_query
from server.openai.schema import ChatBody, CompletionBody
from server.openapi.describe import describe

_GENERATION_ERRORS = (404, 409)


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""
    chat, completions = Chat(), Completions(FillRate(context.settings))

    @app.post("/v1/chat/completions")
    @describe(
        "Answer a conversation, or score the next token.",
        body=ChatBody,
        answer=answers.ChatCompletion,
        streams=answers.ChatChunk,
        errors=_GENERATION_ERRORS,
        headers=ANSWER_HEADERS,
        request_headers=(STRICT, LOAD_POLICY, PROFILE, STEERING_INTENSITY),
    )
    async def chat_completions() -> Response:
        return await answer(context, chat)

    @app.post("/v1/completions")
    @describe(
        "Continue a text, or score the next token.",
        body=CompletionBody,
        answer=answers.TextCompletion,
        streams=answers.TextCompletion,
        errors=(*_GENERATION_ERRORS, 429),
        headers=ANSWER_HEADERS,
        request_headers=(STRICT, LOAD_POLICY, PROFILE, STEERING_INTENSITY),
    )
    async def text_completions() -> Response:
        return await answer(context, completions)

    @app.post("/v1/embeddings")
    @describe(
        "One vector for each text.",
        body=embeddings.EmbeddingsBody,
        answer=answers.Embeddings,
        errors=_GENERATION_ERRORS,
        headers=(BACKEND, IGNORED_FIELDS, NOTES),
        request_headers=(STRICT, LOAD_POLICY),
    )
    async def embed() -> Response:
        return await embeddings.answer(context)

    @app.get("/v1/models")
    @describe("The models that answer.", query=ModelsQuery, answer=answers.ModelList, errors=(400,))
    async def models() -> Response:
        asked = read_models_query()
        listed = await context.quick(lambda: list_models(context, asked))
        return Response(sse.dump(listed), 200, content_type="application/json")

    # A model's name may hold slashes.
    @app.get("/v1/models/<path:name>")
    @describe("One of them.", answer=answers.Model, errors=(400, 404))
    async def model(name: str) -> Response:
        found = await context.quick(lambda: get_model(context, name))
        return Response(sse.dump(found), 200, content_type="application/json")

    memory.register(app, context)
    tokens.register(app, context)
    state.register(app, context)

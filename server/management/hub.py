"""``/api/hub``: searching the Hugging Face hub, and pairs of a model and an SAE that are fetched together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from quart import Quart, Response

from engine.public.downloads import LONGEST_QUERY, MOST_FOUND, PAIRS, UNTRIED, FetchedPair, KnownPair
from engine.public.models import HubFound
from server.context import ServerContext
from server.management.envelope import success
from server.management.sae_downloads import MAX_TOKEN
from server.management.validation import Body, NoQuery, Query, read_json, read_query
from server.openapi.describe import describe


class SearchQuery(Query):
    """What is searched for: models that generate text, or any repository that fits."""

    q: Annotated[str, Field(min_length=1, max_length=LONGEST_QUERY)]
    kind: Literal["models", "saes"] = "models"
    limit: Annotated[int, Field(ge=1, le=MOST_FOUND)] = 30


class FetchPairBody(Body):
    """A token, where the model is gated; it is not kept."""

    hf_token: Annotated[str, Field(min_length=1, max_length=MAX_TOKEN)] | None = None


@dataclass(frozen=True)
class FoundRepositories:
    """Repositories, those most often downloaded first."""

    repositories: Sequence[HubFound]
    total: int


@dataclass(frozen=True)
class KnownPairs:
    """Models and SAEs that belong together. ``note`` says how far this was tried."""

    pairs: Sequence[KnownPair]
    note: str


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""
    finder = context.engine.hub

    @app.get("/api/hub/search")
    @describe(
        "Search the hub for models that generate text, or for SAEs.",
        query=SearchQuery,
        data=FoundRepositories,
        errors=(400, 409, 502),
    )
    async def search_hub() -> Response:
        asked = read_query(SearchQuery)
        found = await context.load(lambda: finder.search(asked.q, kind=asked.kind, limit=asked.limit))
        return success(FoundRepositories(found, len(found)))

    @app.get("/api/hub/pairs")
    @describe("Models and SAEs that are known to belong together.", query=NoQuery, data=KnownPairs)
    async def known_pairs() -> Response:
        read_query(NoQuery)
        return success(KnownPairs(PAIRS, UNTRIED))

    @app.post("/api/hub/pairs/<key>/fetch")
    @describe(
        "Begin to download a model and the SAE that belongs to it.",
        query=NoQuery,
        body=FetchPairBody,
        data=FetchedPair,
        status=202,
        errors=(400, 404, 409, 502, 507),
    )
    async def fetch_pair(key: str) -> Response:
        read_query(NoQuery)
        asked = await read_json(context, FetchPairBody)
        return success(await context.load(lambda: finder.fetch_pair(key, token=asked.hf_token)), 202)

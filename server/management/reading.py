"""``/api/saes/read`` and ``/api/saes/contrast``: what an SAE sees in texts, unsteered; and labels as a file."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Annotated, Literal, TypeVar

from pydantic import Field
from quart import Quart, Response

from engine.errors import InvalidParameter
from engine.public.documents import MAX_MEMBERS
from engine.public.generation import ChatInput, Message
from engine.public.library import CLUSTER_NAME_LIMIT
from engine.public.saes import (
    CLUSTER_SHARE,
    DENSITY_CAP,
    MOST_FEATURES,
    MOST_TEXTS,
    Contrast,
    Differences,
    FoundCluster,
    LabelKind,
    LabelsResult,
    Side,
    Source,
    TextReading,
)
from server.context import ServerContext
from server.in_flight import current_exchange
from server.management.envelope import success
from server.management.validation import (
    Body,
    BodyPlace,
    Index,
    NoQuery,
    Query,
    read_json,
    read_query,
    read_upload,
)
from server.openapi.describe import Upload, describe

MOST_CHOSEN = 1000
"""Features whose value is asked at every token at most."""

LABEL_FILE = Upload("CSV, JSON, JSON lines or a Neuronpedia export, gzipped or not.")

Texts = Annotated[list[str], Field(min_length=1, max_length=MOST_TEXTS)]


class ReadMessage(Body):
    """One message of a conversation that is read."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str


class ReadBody(BodyPlace):
    """What is read: one of text, messages and token_ids. Without sae_id and layer, by the first attached SAE."""

    text: str | None = None
    messages: Annotated[list[ReadMessage], Field(min_length=1)] | None = None
    token_ids: Annotated[list[Index], Field(min_length=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] = 8
    features: Annotated[list[Index], Field(default_factory=list, max_length=MOST_CHOSEN)]

    def source(self) -> Source:
        """What is read, as the engine takes it. Raises :class:`InvalidParameter`."""
        given = [name for name in ("text", "messages", "token_ids") if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidParameter(
                f"Send exactly one of 'text', 'messages' and 'token_ids'; {len(given)} were sent.",
                param=given[1] if given else "text",
            )
        if self.messages is not None:
            return ChatInput(tuple(Message(each.role, each.content) for each in self.messages))
        return self.token_ids if self.token_ids is not None else self.text or ""


class ContrastCluster(Body):
    """A cluster of what was found: the named features of one side, or the first ``count`` of it.

    ``total`` is what their strengths sum to, each in lengths of its decoder row, as a share of the typical norm.
    """

    name: Annotated[str, Field(min_length=1, max_length=CLUSTER_NAME_LIMIT)]
    side: Side = "a"
    features: Annotated[list[Index], Field(min_length=1, max_length=MAX_MEMBERS)] | None = None
    count: Annotated[int, Field(ge=1, le=MAX_MEMBERS)] = 3
    total: Annotated[float, Field(gt=0, le=10)] = CLUSTER_SHARE
    save: bool = False


class ContrastBody(BodyPlace):
    """Two sets of texts. Without sae_id and layer they are read by the first attached SAE."""

    a: Texts
    b: Texts
    limit: Annotated[int, Field(ge=1, le=MOST_FEATURES)] = 30
    max_density: Annotated[float, Field(gt=0, le=1)] = DENSITY_CAP
    as_cluster: ContrastCluster | None = None


class _LabelQuery(Query):
    format: LabelKind | None = None


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""
    engine = context.engine

    @app.post("/api/saes/read")
    @describe(
        "Which features fire at each token of a text; never steered.",
        query=NoQuery,
        body=ReadBody,
        data=TextReading,
        errors=(400, 404, 409, 507),
    )
    async def read_text() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, ReadBody)
        source = asked.source()
        found = await result_of(
            context,
            lambda: engine.reading.read(
                source, sae_id=asked.sae_id, layer=asked.layer, top_k=asked.top_k, features=asked.features
            ),
        )
        # Many values make megabytes of JSON: not on the loop.
        return await context.quick(lambda: success(engine.reading.labelled(found)))

    @app.post("/api/saes/contrast")
    @describe(
        "The features in which two sets of texts differ most; never steered.",
        query=NoQuery,
        body=ContrastBody,
        data=Differences,
        errors=(400, 404, 409, 507),
    )
    async def contrast_texts() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, ContrastBody)
        found = await result_of(
            context,
            lambda: engine.contrasts.find(
                asked.a,
                asked.b,
                sae_id=asked.sae_id,
                layer=asked.layer,
                limit=asked.limit,
                density_cap=asked.max_density,
            ),
        )
        return success(await context.manage(lambda: _contrast(context, found, asked.as_cluster)))

    @app.post("/api/saes/<sae_id>/labels")
    @describe(
        "Store the labels in a file; each takes the place of the one there was.",
        query=_LabelQuery,
        body=LABEL_FILE,
        data=LabelsResult,
        errors=(404,),
    )
    async def import_labels(sae_id: str) -> Response:
        kind = read_query(_LabelQuery).format
        raw = await read_upload(context)
        return success(await context.manage(lambda: engine.saes.import_label_upload(sae_id, raw, kind)))


def _contrast(context: ServerContext, found: Contrast, wanted: ContrastCluster | None) -> Differences:
    engine = context.engine
    cluster = None
    if wanted is not None:
        document = engine.contrasts.cluster(
            found, wanted.name, side=wanted.side, features=wanted.features, count=wanted.count, total=wanted.total
        )
        stored = engine.clusters.import_document(json.dumps(document).encode()).results[0] if wanted.save else None
        told = document["budget"]["constants"]
        cluster = FoundCluster(document, stored, told["length"], told["length_over_median_norm"])
    indices = {each.index for each in (*found.toward_a, *found.toward_b)}
    return Differences.of(found, engine.library.labels.of(found.sae_id, indices), cluster)


T = TypeVar("T")


async def result_of(context: ServerContext, begin: Callable[[], Future[T]]) -> T:
    """Call ``begin`` (it may read files) off the loop and give the result of the future it returns.

    When the client leaves or the server stops, the future is cancelled, also where it is made only afterwards.
    """
    exchange = current_exchange()
    lock = threading.Lock()
    made: list[Future[T]] = []
    left = False

    def leave() -> None:
        nonlocal left
        with lock:
            left = True
            for future in made:
                future.cancel()

    def call() -> Future[T]:
        future = begin()
        with lock:
            made.append(future)
            if left:
                future.cancel()
        return future

    exchange.on_close(leave)
    future = await context.load(call)
    return await exchange.wait_for(asyncio.wrap_future(future))

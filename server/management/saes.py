"""``/api/saes``: the SAE library, attachments, and the strengths that a person sets by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from quart import Quart, Response

from engine.errors import InvalidParameter
from engine.library.records import AttachSetRecord, SaeRecord
from server.context import ServerContext
from server.management import monitoring
from server.management.envelope import success, wire
from server.management.validation import (
    MAX_INDEX,
    Body,
    BodyPlace,
    Index,
    NoQuery,
    Place,
    Query,
    SaeId,
    read_json,
    read_nothing,
    read_query,
)

_MAX_SET = 64
_MAX_BATCH = 1000
_MAX_LABELS = 1000
_SetName = Annotated[str, Field(min_length=1, max_length=100)]


class _Import(Body):
    path: Annotated[str, Field(min_length=1, max_length=4096)]
    sae_id: SaeId | None = None
    layer: Index | None = None
    # Not ``copy``: pydantic's models have a method of that name.
    as_copy: Annotated[bool, Field(alias="copy")] = False


class _Attach(Body):
    layer: Index | None = None


class _Item(Body):
    sae_id: SaeId
    layer: Index | None = None


class _PlacedItem(Body):
    sae_id: SaeId
    layer: Index


class _AttachSet(Body):
    saes: Annotated[list[_Item], Field(min_length=1, max_length=_MAX_SET)] | None = None
    name: _SetName | None = None


class _SavedSet(Body):
    name: _SetName
    saes: Annotated[list[_PlacedItem], Field(min_length=1, max_length=_MAX_SET)] | None = None


class _SetQuery(Query):
    name: _SetName


class _Strength(BodyPlace):
    feature_idx: Index
    value: float


class _Batch(BodyPlace):
    steering: Annotated[dict[str, float], Field(max_length=_MAX_BATCH)]


class _Layer(Query):
    layer: Index | None = None


class _Labels(Query):
    query: Annotated[str, Field(max_length=200)] = ""
    limit: Annotated[int, Field(ge=1, le=_MAX_LABELS)] = 50


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``; those with a name of their own stand before those with an id."""
    _library(app, context)
    _attachments(app, context)
    _steering(app, context)
    _one(app, context)


def _library(app: Quart, context: ServerContext) -> None:
    engine = context.engine

    @app.get("/api/saes")
    async def saes() -> Response:
        read_query(NoQuery)

        def look() -> dict[str, Any]:
            found = engine.saes.list()
            rows = [_row(context, record) for record in found]
            return {"saes": rows, "total": len(rows), "attachment": engine.saes.attachment_view()}

        return success(await context.quick(look))

    @app.post("/api/saes/import")
    async def import_sae() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, _Import)
        record, created = await context.manage(
            lambda: engine.saes.import_local(
                Path(asked.path), sae_id=asked.sae_id, layer=asked.layer, copy=asked.as_copy
            )
        )
        return success(_row(context, record), 201 if created else 200)

    @app.get("/api/saes/attach-sets")
    async def attach_sets() -> Response:
        read_query(NoQuery)
        found = await context.quick(engine.library.attach_sets.list)
        return success({"sets": [_saved_set(each) for each in found], "total": len(found)})

    @app.post("/api/saes/attach-sets")
    async def save_attach_set() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, _SavedSet)
        items = None if asked.saes is None else [(each.sae_id, each.layer) for each in asked.saes]
        saved = await context.manage(lambda: engine.saes.save_set(asked.name, items))
        return success(_saved_set(saved), 201)

    @app.delete("/api/saes/attach-sets")
    async def remove_attach_set() -> Response:
        name = read_query(_SetQuery).name
        await context.manage(lambda: engine.library.attach_sets.remove(name))
        return success({"name": name, "deleted": True})


def _attachments(app: Quart, context: ServerContext) -> None:
    engine = context.engine

    @app.post("/api/saes/attach-set")
    async def attach_set() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, _AttachSet)
        if (asked.saes is None) == (asked.name is None):
            raise InvalidParameter("Send either 'saes' or the 'name' of a saved set.", param="saes")
        if asked.name is not None:
            name = asked.name
            return success(await context.manage(lambda: engine.saes.attach_saved_set(name)))
        items = [(each.sae_id, each.layer) for each in asked.saes or ()]
        return success(await context.manage(lambda: engine.saes.attach_set(items)))

    @app.get("/api/saes/attachment")
    async def attachment() -> Response:
        read_query(NoQuery)
        return success(await context.quick(engine.saes.attachment_view))

    @app.get("/api/saes/attachments")
    async def attachments() -> Response:
        read_query(NoQuery)
        return success(await context.quick(engine.saes.attachments_view))

    @app.post("/api/saes/monitoring")
    async def saes_monitoring() -> Response:
        return await monitoring.configure(context)


def _steering(app: Quart, context: ServerContext) -> None:
    saes = context.engine.saes

    @app.get("/api/saes/steering")
    async def steering() -> Response:
        place = read_query(Place)
        return success(await context.quick(lambda: saes.steering_view(place.sae_id, place.layer)))

    @app.post("/api/saes/steering")
    async def set_steering() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, _Strength)
        return success(
            await context.manage(
                lambda: saes.set_steering(asked.feature_idx, asked.value, sae_id=asked.sae_id, layer=asked.layer)
            )
        )

    @app.post("/api/saes/steering/batch")
    async def set_steering_batch() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, _Batch)
        return success(
            await context.manage(
                lambda: saes.set_steering_batch(asked.steering, sae_id=asked.sae_id, layer=asked.layer)
            )
        )

    async def switch(enabled: bool) -> Response:
        read_query(NoQuery)
        place = await read_json(context, BodyPlace, optional=True)
        return success(
            await context.manage(lambda: saes.enable_steering(enabled, sae_id=place.sae_id, layer=place.layer))
        )

    @app.post("/api/saes/steering/enable")
    async def enable_steering() -> Response:
        return await switch(True)

    @app.post("/api/saes/steering/disable")
    async def disable_steering() -> Response:
        return await switch(False)

    @app.delete("/api/saes/steering/<index>")
    async def remove_steering(index: str) -> Response:
        place, feature = read_query(Place), _feature(index)
        return success(
            await context.manage(lambda: saes.remove_steering(feature, sae_id=place.sae_id, layer=place.layer))
        )

    @app.delete("/api/saes/steering")
    async def clear_steering() -> Response:
        place = read_query(Place)
        return success(await context.manage(lambda: saes.clear_steering(sae_id=place.sae_id, layer=place.layer)))


def _one(app: Quart, context: ServerContext) -> None:
    engine = context.engine

    @app.get("/api/saes/<sae_id>")
    async def sae(sae_id: str) -> Response:
        read_query(NoQuery)
        return success(await context.quick(lambda: _row(context, engine.saes.get(sae_id))))

    @app.delete("/api/saes/<sae_id>")
    async def delete_sae(sae_id: str) -> Response:
        read_query(NoQuery)
        return success(await context.manage(lambda: engine.saes.delete(sae_id)))

    @app.get("/api/saes/<sae_id>/compatibility")
    async def compatibility(sae_id: str) -> Response:
        layer = read_query(_Layer).layer
        return success(await context.manage(lambda: engine.saes.compatibility(sae_id, layer)))

    @app.post("/api/saes/<sae_id>/attach")
    async def attach(sae_id: str) -> Response:
        read_query(NoQuery)
        layer = (await read_json(context, _Attach, optional=True)).layer
        return success(await context.manage(lambda: engine.saes.attach(sae_id, layer)))

    @app.post("/api/saes/<sae_id>/detach")
    async def detach(sae_id: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)
        return success(await context.manage(lambda: engine.saes.detach(sae_id)))

    @app.post("/api/saes/<sae_id>/measure")
    async def measure(sae_id: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)
        return success(_row(context, await context.manage(lambda: engine.saes.measure(sae_id))))

    @app.get("/api/saes/<sae_id>/labels")
    async def labels(sae_id: str) -> Response:
        asked = read_query(_Labels)

        def look() -> dict[str, Any]:
            repository = engine.library.labels
            found = repository.search(engine.saes.get(sae_id).id, asked.query, limit=asked.limit)
            return {"sae_id": sae_id, "labels": found, "total": repository.count(sae_id)}

        return success(await context.quick(look))


def _row(context: ServerContext, record: SaeRecord) -> dict[str, Any]:
    """An SAE's row, with the layers it is attached at."""
    state = context.engine.desk.state
    row: dict[str, Any] = wire(record)
    return {**row, "attached_layers": [each.layer for each in state.attachments if each.sae_id == record.id]}


def _saved_set(record: AttachSetRecord) -> dict[str, Any]:
    return {"name": record.name, "saes": wire(record.items), "created_at": wire(record.created_at)}


def _feature(text: str) -> int:
    """A feature index in an address."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INDEX)) and int(text) <= MAX_INDEX:
        return int(text)
    raise InvalidParameter("A feature index is a whole number from 0.", param="feature_idx")

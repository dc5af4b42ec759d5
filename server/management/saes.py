"""``/api/saes``: the SAE library, attachments, and the strengths that a person sets by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field
from quart import Quart, Response

from engine.errors import InvalidParameter, described
from engine.public.documents import MAX_INDEX
from engine.public.library import SET_NAME_LIMIT, AttachItem, AttachSetRecord, FeatureLabel, SaeRecord
from engine.public.monitor import MonitoringState
from engine.public.saes import (
    AttachmentsView,
    AttachResult,
    AttachSetResult,
    Compatibility,
    DeleteResult,
    DetachResult,
    FirstAttachmentView,
    SteeringView,
)
from engine.wire import made_of
from server.context import ServerContext
from server.management import monitoring
from server.management.envelope import success
from server.management.validation import (
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
from server.openapi.describe import describe

_MAX_SET = 64
_MAX_BATCH = 1000
_MAX_LABELS = 1000
_SetName = Annotated[str, Field(min_length=1, max_length=SET_NAME_LIMIT)]


class ImportSaeBody(Body):
    """Where the SAE is, and what it is to be called."""

    path: Annotated[str, Field(min_length=1, max_length=4096)]
    sae_id: SaeId | None = None
    layer: Index | None = None
    # Not ``copy``: pydantic's models have a method of that name.
    as_copy: Annotated[bool, Field(alias="copy")] = False


class AttachBody(Body):
    """At which layer; left out, at the one it was trained for."""

    layer: Index | None = None


class SetItem(Body):
    """An SAE and its layer."""

    sae_id: SaeId
    layer: Index | None = None


class PlacedItem(Body):
    """An SAE at a layer."""

    sae_id: SaeId
    layer: Index


class AttachSetBody(Body):
    """SAEs to attach, or the name of a saved set."""

    saes: Annotated[list[SetItem], Field(min_length=1, max_length=_MAX_SET)] | None = None
    name: _SetName | None = None


class SaveSetBody(Body):
    """A name, and the SAEs; left out, those attached now."""

    name: _SetName
    saes: Annotated[list[PlacedItem], Field(min_length=1, max_length=_MAX_SET)] | None = None


class _SetQuery(Query):
    name: _SetName


class StrengthBody(BodyPlace):
    """One feature's strength, -200 to 200."""

    feature_idx: Index
    value: float


class StrengthsBody(BodyPlace):
    """Strengths by feature index as text, each -200 to 200."""

    steering: Annotated[dict[str, float], Field(max_length=_MAX_BATCH)]


class _Layer(Query):
    layer: Index | None = None


class _Labels(Query):
    query: Annotated[str, Field(max_length=200)] = ""
    limit: Annotated[int, Field(ge=1, le=_MAX_LABELS)] = 50


@dataclass(frozen=True, kw_only=True)
class SaeRow(SaeRecord):
    """An SAE's row, with the layers it is attached at, and how far its download is (0–100, else null)."""

    attached_layers: tuple[int, ...]
    download_progress: float | None


@dataclass(frozen=True)
class SaeList:
    """SAEs, and the first attachment."""

    saes: tuple[SaeRow, ...]
    total: int
    attachment: FirstAttachmentView


@dataclass(frozen=True)
class SavedSet:
    """A set of SAEs under a name."""

    name: str
    saes: Sequence[AttachItem]
    created_at: datetime


@dataclass(frozen=True)
class SavedSets:
    """All of them."""

    sets: tuple[SavedSet, ...]
    total: int


@dataclass(frozen=True)
class DeletedSet:
    """A saved set that is gone."""

    name: str
    deleted: bool = True


@dataclass(frozen=True)
class FoundLabels:
    """Labels of an SAE's features that fit; ``total`` counts all it has."""

    sae_id: str
    labels: Sequence[FeatureLabel]
    total: int


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``; those with a name of their own stand before those with an id."""
    _library(app, context)
    _attachments(app, context)
    _steering(app, context)
    _one(app, context)


def _library(app: Quart, context: ServerContext) -> None:
    engine = context.engine

    @app.get("/api/saes")
    @describe("List SAEs and what is attached.", query=NoQuery, data=SaeList)
    async def saes() -> Response:
        read_query(NoQuery)

        def look() -> SaeList:
            rows = tuple(_row(context, record) for record in engine.saes.list())
            return SaeList(rows, len(rows), engine.attachments.first())

        return success(await context.quick(look))

    @app.post("/api/saes/import")
    @describe(
        "Import an SAE from disk.",
        query=NoQuery,
        body=ImportSaeBody,
        data=SaeRow,
        status=201,
        also={200: SaeRow},
        errors=(400, 404, 409, 507),
    )
    async def import_sae() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, ImportSaeBody)
        record, created = await context.manage(
            lambda: engine.saes.import_local(
                Path(asked.path), sae_id=asked.sae_id, layer=asked.layer, copy=asked.as_copy
            )
        )
        return success(_row(context, record), 201 if created else 200)

    @app.get("/api/saes/attach-sets")
    @describe("List saved sets of SAEs.", query=NoQuery, data=SavedSets)
    async def attach_sets() -> Response:
        read_query(NoQuery)
        found = await context.quick(engine.library.attach_sets.list)
        return success(SavedSets(tuple(_saved_set(each) for each in found), len(found)))

    @app.post("/api/saes/attach-sets")
    @describe(
        "Keep a set of SAEs under a name; without saes, those attached now.",
        query=NoQuery,
        body=SaveSetBody,
        data=SavedSet,
        status=201,
        errors=(400, 404),
    )
    async def save_attach_set() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, SaveSetBody)
        items = None if asked.saes is None else [(each.sae_id, each.layer) for each in asked.saes]
        saved = await context.manage(lambda: engine.attachments.save_set(asked.name, items))
        return success(_saved_set(saved), 201)

    @app.delete("/api/saes/attach-sets")
    @describe("Delete a saved set.", query=_SetQuery, data=DeletedSet, errors=(404,))
    async def remove_attach_set() -> Response:
        name = read_query(_SetQuery).name
        await context.manage(lambda: engine.attachments.delete_set(name))
        return success(DeletedSet(name))


def _attachments(app: Quart, context: ServerContext) -> None:
    engine = context.engine

    @app.post("/api/saes/attach-set")
    @describe(
        "Attach several SAEs: a list, or a saved set by its name.",
        query=NoQuery,
        body=AttachSetBody,
        data=AttachSetResult,
        errors=(400, 404, 409, 507),
    )
    async def attach_set() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, AttachSetBody)
        if (asked.saes is None) == (asked.name is None):
            raise InvalidParameter("Send either 'saes' or the 'name' of a saved set.", param="saes")
        if asked.name is not None:
            name = asked.name
            return success(await context.manage(lambda: engine.attachments.attach_saved_set(name)))
        items = [(each.sae_id, each.layer) for each in asked.saes or ()]
        return success(await context.manage(lambda: engine.attachments.attach_set(items)))

    @app.get("/api/saes/attachment")
    @describe("The first attachment.", query=NoQuery, data=FirstAttachmentView)
    async def attachment() -> Response:
        read_query(NoQuery)
        return success(await context.quick(engine.attachments.first))

    @app.get("/api/saes/attachments")
    @describe("All attachments.", query=NoQuery, data=AttachmentsView)
    async def attachments() -> Response:
        read_query(NoQuery)
        return success(await context.quick(engine.attachments.all))

    @app.post("/api/saes/monitoring")
    @describe(
        "The same as /api/monitoring/configure.",
        query=NoQuery,
        body=monitoring.MonitorChoice,
        body_optional=True,
        data=MonitoringState,
        errors=(400,),
    )
    async def saes_monitoring() -> Response:
        return await monitoring.configure(context)


@dataclass(frozen=True)
class AddedLayer:
    """The vector that is added after one block: the sum of all that steers there, which is seldom as long as its
    strengths together. ``share`` is its length in layers' typical (median) norms, null where that was not measured.
    """

    layer: int
    length: float
    typical_norm: float | None
    share: float | None


@dataclass(frozen=True)
class AddedNow:
    """What is added to an answer without steering of its own, by rising layer."""

    layers: tuple[AddedLayer, ...]


def _steering(app: Quart, context: ServerContext) -> None:
    hand = context.engine.hand_steering

    @app.get("/api/saes/steering")
    @describe("The hand-set strengths of one attached SAE.", query=Place, data=SteeringView, errors=(400,))
    async def steering() -> Response:
        place = read_query(Place)
        return success(await context.quick(lambda: hand.view(place.sae_id, place.layer)))

    @app.get("/api/saes/steering/added")
    @describe("How long the vectors are that steer now, layer by layer.", query=NoQuery, data=AddedNow)
    async def added() -> Response:
        read_query(NoQuery)

        pushes = await context.quick(lambda: hand.pushes(context.engine.desk.live_plan.sets))
        return success(AddedNow(tuple(made_of(AddedLayer, each) for each in pushes)))

    @app.post("/api/saes/steering")
    @describe("Set one feature's strength.", query=NoQuery, body=StrengthBody, data=SteeringView, errors=(400, 409))
    async def set_steering() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, StrengthBody)
        return success(
            await context.manage(
                lambda: hand.set_value(asked.feature_idx, asked.value, sae_id=asked.sae_id, layer=asked.layer)
            )
        )

    @app.post("/api/saes/steering/batch")
    @describe("Set several strengths at once.", query=NoQuery, body=StrengthsBody, data=SteeringView, errors=(400, 409))
    async def set_steering_batch() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, StrengthsBody)
        return success(
            await context.manage(lambda: hand.set_values(asked.steering, sae_id=asked.sae_id, layer=asked.layer))
        )

    async def switch(enabled: bool) -> Response:
        read_query(NoQuery)
        place = await read_json(context, BodyPlace, optional=True)
        return success(await context.manage(lambda: hand.set_enabled(enabled, sae_id=place.sae_id, layer=place.layer)))

    @app.post("/api/saes/steering/enable")
    @describe(
        "Let the strengths count.",
        query=NoQuery,
        body=BodyPlace,
        body_optional=True,
        data=SteeringView,
        errors=(400, 409),
    )
    async def enable_steering() -> Response:
        return await switch(True)

    @app.post("/api/saes/steering/disable")
    @describe(
        "Keep the strengths and let them not count.",
        query=NoQuery,
        body=BodyPlace,
        body_optional=True,
        data=SteeringView,
        errors=(400, 409),
    )
    async def disable_steering() -> Response:
        return await switch(False)

    @app.delete("/api/saes/steering/<index>")
    @describe("Take one feature's strength away.", query=Place, data=SteeringView, errors=(400, 409))
    async def remove_steering(index: str) -> Response:
        place, feature = read_query(Place), _feature(index)
        return success(await context.manage(lambda: hand.remove_value(feature, sae_id=place.sae_id, layer=place.layer)))

    @app.delete("/api/saes/steering")
    @describe("Take all strengths away.", query=Place, data=SteeringView, errors=(400, 409))
    async def clear_steering() -> Response:
        place = read_query(Place)
        return success(await context.manage(lambda: hand.clear(sae_id=place.sae_id, layer=place.layer)))


def _one(app: Quart, context: ServerContext) -> None:
    engine = context.engine

    @app.get("/api/saes/<sae_id>")
    @describe("One SAE.", query=NoQuery, data=SaeRow, errors=(404,))
    async def sae(sae_id: str) -> Response:
        read_query(NoQuery)
        return success(await context.quick(lambda: _row(context, engine.saes.get(sae_id))))

    @app.delete("/api/saes/<sae_id>")
    @describe("Delete an SAE; files that are ours go with it.", query=NoQuery, data=DeleteResult, errors=(404, 409))
    async def delete_sae(sae_id: str) -> Response:
        read_query(NoQuery)
        return success(await context.manage(lambda: engine.saes.delete(sae_id)))

    @app.get("/api/saes/<sae_id>/compatibility")
    @describe("Whether an SAE fits the loaded model.", query=_Layer, data=Compatibility, errors=(400, 404))
    async def compatibility(sae_id: str) -> Response:
        layer = read_query(_Layer).layer
        return success(await context.manage(lambda: engine.attachments.compatibility(sae_id, layer)))

    @app.post("/api/saes/<sae_id>/attach")
    @describe(
        "Attach an SAE.",
        query=NoQuery,
        body=AttachBody,
        body_optional=True,
        data=AttachResult,
        errors=(400, 404, 409, 507),
    )
    async def attach(sae_id: str) -> Response:
        read_query(NoQuery)
        layer = (await read_json(context, AttachBody, optional=True)).layer
        return success(await context.manage(lambda: engine.attachments.attach(sae_id, layer)))

    @app.post("/api/saes/<sae_id>/detach")
    @describe("Detach an SAE from every layer.", query=NoQuery, data=DetachResult, errors=(400, 404))
    async def detach(sae_id: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)
        return success(await context.manage(lambda: engine.attachments.detach(sae_id)))

    @app.post("/api/saes/<sae_id>/measure")
    @describe("Measure an SAE on the loaded model.", query=NoQuery, data=SaeRow, errors=(400, 404, 409))
    async def measure(sae_id: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)
        return success(_row(context, await context.manage(lambda: engine.measurer.measure(sae_id))))

    @app.get("/api/saes/<sae_id>/labels")
    @describe("Labels of an SAE's features that contain a text.", query=_Labels, data=FoundLabels, errors=(404,))
    async def labels(sae_id: str) -> Response:
        asked = read_query(_Labels)

        def look() -> FoundLabels:
            repository = engine.library.labels
            found = repository.search(engine.saes.get(sae_id).id, asked.query, limit=asked.limit)
            return FoundLabels(sae_id, found, repository.count(sae_id))

        return success(await context.quick(look))


def _row(context: ServerContext, record: SaeRecord) -> SaeRow:
    state = context.engine.desk.state
    layers = tuple(each.layer for each in state.attachments if each.sae_id == record.id)
    download = context.engine.sae_downloads.state(record.id)
    return made_of(
        SaeRow, record, attached_layers=layers, download_progress=None if download is None else download.percent
    )


def _saved_set(record: AttachSetRecord) -> SavedSet:
    return made_of(SavedSet, record, saes=record.items)


def _feature(text: str) -> int:
    """A feature index in an address."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INDEX)) and int(text) <= MAX_INDEX:
        return int(text)
    raise InvalidParameter(
        f"A feature index is a whole number from 0; received {described(text)}.", param="feature_idx"
    )

"""``/api/circuits``: features on several layers with their evidence. Exports are the author's document, bare."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from quart import Quart, Response

from engine.public.documents import MAX_INDEX, TOP_RUNG
from engine.public.library import ID_LIMIT
from engine.public.steering import (
    MAX_PAGE,
    ActivatedCircuit,
    CircuitList,
    CircuitSummary,
    Claim,
    DeactivatedCircuit,
    DeletedCircuit,
    DialledCircuit,
    ImportedCircuit,
    ReleasedClaims,
)
from server.context import ServerContext
from server.management.crud_routes import AlikeRoutes
from server.management.envelope import success
from server.management.validation import (
    Body,
    NoQuery,
    Query,
    read_document,
    read_nothing,
    read_query,
)
from server.openapi.describe import Document, describe

CIRCUIT_DOCUMENT = Document("A circuit definition.")


class _List(Query):
    min_rung: Annotated[int, Field(ge=0, le=TOP_RUNG)] = 0
    serveable: bool | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50
    offset: Annotated[int, Field(ge=0, le=MAX_INDEX)] = 0


class _Active(Query):
    single: bool = False


class _ImportQuery(Query):
    on_conflict: Literal["rename", "fail"] = "rename"


class _Activate(Query):
    acknowledge_unvalidated: bool = False
    allow_layer_overlap: bool = False
    intensity: float | None = None


class _Release(Query):
    circuit_id: Annotated[str, Field(min_length=1, max_length=ID_LIMIT)]


class CircuitDialBody(Body):
    """A circuit's dial."""

    intensity: float
    reapply: bool = True
    acknowledge_unvalidated: bool = False


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""
    actions = context.engine.circuits

    def turn(asked: CircuitDialBody, circuit_id: str | None = None) -> DialledCircuit:
        return actions.set_intensity(
            asked.intensity,
            reapply=asked.reapply,
            acknowledge_unvalidated=asked.acknowledge_unvalidated,
            circuit_id=circuit_id,
        )

    alike = AlikeRoutes(app, context, "circuit", actions)
    alike.one(CircuitSummary)
    alike.delete(DeletedCircuit, errors=(404, 409))
    alike.deactivate(DeactivatedCircuit)
    alike.export()
    alike.active_dial(CircuitDialBody, DialledCircuit, turn)
    alike.dial(CircuitDialBody, DialledCircuit, lambda key, asked: turn(asked, key))

    @app.get("/api/circuits")
    @describe("List circuits, newest first.", query=_List, data=CircuitList)
    async def circuits() -> Response:
        asked = read_query(_List)
        return success(await context.quick(lambda: actions.list(**dict(asked))))

    @app.get("/api/circuits/active")
    @describe(
        "The circuits that serve; with single, the one that does.",
        query=_Active,
        data=list[CircuitSummary] | CircuitSummary | None,
        errors=(409,),
    )
    async def active_circuits() -> Response:
        look: Any = actions.active_single if read_query(_Active).single else actions.active
        return success(await context.quick(look))

    @app.get("/api/circuits/claims")
    @describe("Which circuit holds which layer.", query=NoQuery, data=list[Claim])
    async def claims() -> Response:
        read_query(NoQuery)
        return success(await context.quick(actions.claims))

    @app.post("/api/circuits/claims/release")
    @describe("Let go of a circuit's layers.", query=_Release, data=ReleasedClaims, errors=(404, 409))
    async def release_claims() -> Response:
        circuit_id = read_query(_Release).circuit_id
        await read_nothing(context)
        return success(await context.manage(lambda: actions.release_claims(circuit_id)))

    @app.post("/api/circuits/import")
    @describe(
        "Import a circuit document.",
        query=_ImportQuery,
        body=CIRCUIT_DOCUMENT,
        data=ImportedCircuit,
        errors=(400, 409),
    )
    async def import_circuit() -> Response:
        on_conflict = read_query(_ImportQuery).on_conflict
        raw = await read_document(context)
        return success(await context.manage(lambda: actions.import_document(raw, on_conflict=on_conflict)))

    @app.post("/api/circuits/<circuit_id>/activate")
    @describe("Serve a circuit.", query=_Activate, data=ActivatedCircuit, errors=(400, 404, 409))
    async def activate_circuit(circuit_id: str) -> Response:
        asked = read_query(_Activate)
        await read_nothing(context)
        return success(await context.manage(lambda: actions.activate(circuit_id, **dict(asked))))

"""``/api/circuits``: features on several layers with their evidence. Exports are the author's document, bare."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from quart import Quart, Response

from engine.actions.steering.circuits import MAX_PAGE
from engine.documents.evidence import TOP_RUNG
from server.context import ServerContext
from server.management.envelope import bare, success
from server.management.validation import (
    MAX_INDEX,
    Body,
    NoQuery,
    Query,
    read_document,
    read_json,
    read_nothing,
    read_query,
)


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
    circuit_id: Annotated[str, Field(min_length=1, max_length=100)]


class _Dial(Body):
    intensity: float
    reapply: bool = True
    acknowledge_unvalidated: bool = False


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""
    actions = context.engine.circuits

    @app.get("/api/circuits")
    async def circuits() -> Response:
        asked = read_query(_List)
        return success(await context.quick(lambda: actions.list(**dict(asked))))

    @app.get("/api/circuits/active")
    async def active_circuits() -> Response:
        look: Any = actions.active_single if read_query(_Active).single else actions.active
        return success(await context.quick(look))

    @app.get("/api/circuits/claims")
    async def claims() -> Response:
        read_query(NoQuery)
        return success(await context.quick(actions.claims))

    @app.post("/api/circuits/claims/release")
    async def release_claims() -> Response:
        circuit_id = read_query(_Release).circuit_id
        await read_nothing(context)
        return success(await context.manage(lambda: actions.release_claims(circuit_id)))

    @app.post("/api/circuits/import")
    async def import_circuit() -> Response:
        on_conflict = read_query(_ImportQuery).on_conflict
        raw = await read_document(context)
        return success(await context.manage(lambda: actions.import_document(raw, on_conflict=on_conflict)))

    @app.put("/api/circuits/active/intensity")
    async def set_circuit_intensity() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, _Dial)
        return success(
            await context.manage(
                lambda: actions.set_intensity(
                    asked.intensity,
                    reapply=asked.reapply,
                    acknowledge_unvalidated=asked.acknowledge_unvalidated,
                )
            )
        )

    @app.get("/api/circuits/<circuit_id>")
    async def circuit(circuit_id: str) -> Response:
        read_query(NoQuery)
        return success(await context.quick(lambda: actions.get(circuit_id)))

    @app.delete("/api/circuits/<circuit_id>")
    async def delete_circuit(circuit_id: str) -> Response:
        read_query(NoQuery)
        return success(await context.manage(lambda: actions.delete(circuit_id)))

    @app.post("/api/circuits/<circuit_id>/activate")
    async def activate_circuit(circuit_id: str) -> Response:
        asked = read_query(_Activate)
        await read_nothing(context)
        return success(await context.manage(lambda: actions.activate(circuit_id, **dict(asked))))

    @app.post("/api/circuits/<circuit_id>/deactivate")
    async def deactivate_circuit(circuit_id: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)
        return success(await context.manage(lambda: actions.deactivate(circuit_id)))

    @app.get("/api/circuits/<circuit_id>/export")
    async def export_circuit(circuit_id: str) -> Response:
        read_query(NoQuery)
        return bare(await context.quick(lambda: actions.export(circuit_id)))

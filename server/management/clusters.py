"""``/api/clusters``: steering that came as documents, with a dial. Exports are the author's document, bare."""

from __future__ import annotations

from typing import Any, Literal

from quart import Quart, Response

from server.context import ServerContext
from server.management import answers
from server.management.envelope import bare, success
from server.management.validation import (
    Body,
    NoQuery,
    Query,
    read_document,
    read_json,
    read_nothing,
    read_query,
)
from server.openapi.describe import Document, describe

CLUSTER_DOCUMENT = Document("A cluster definition, or a bundle of them.")


class _ImportQuery(Query):
    on_conflict: Literal["rename", "fail"] = "rename"
    activate: bool = False


class ClusterDialBody(Body):
    """A cluster's dial."""

    # The engine knows the range that the cluster declares, 0 included, and names it.
    intensity: float
    reapply: bool = True


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""
    actions = context.engine.clusters

    @app.get("/api/clusters")
    @describe("List clusters.", query=NoQuery, data=answers.ClustersAnswer)
    async def clusters() -> Response:
        read_query(NoQuery)
        return success(await context.quick(actions.list))

    @app.post("/api/clusters/import")
    @describe(
        "Import a cluster document, or a bundle of them.",
        query=_ImportQuery,
        body=CLUSTER_DOCUMENT,
        data=answers.ImportAnswer,
        errors=(400, 409),
    )
    async def import_clusters() -> Response:
        asked = read_query(_ImportQuery)
        raw = await read_document(context)
        return success(
            await context.manage(
                lambda: actions.import_document(raw, on_conflict=asked.on_conflict, activate=asked.activate)
            )
        )

    @app.put("/api/clusters/active/intensity")
    @describe(
        "Set the active cluster's dial.",
        query=NoQuery,
        body=ClusterDialBody,
        data=answers.DialledClusterAnswer,
        errors=(400, 404, 409),
    )
    async def set_active_cluster_intensity() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, ClusterDialBody)
        return success(
            await context.manage(lambda: actions.set_active_intensity(asked.intensity, reapply=asked.reapply))
        )

    @app.put("/api/clusters/<cluster_id>/intensity")
    @describe(
        "Set a cluster's dial.",
        query=NoQuery,
        body=ClusterDialBody,
        data=answers.DialledClusterAnswer,
        errors=(400, 404, 409),
    )
    async def set_cluster_intensity(cluster_id: str) -> Response:
        read_query(NoQuery)
        asked = await read_json(context, ClusterDialBody)
        return success(
            await context.manage(lambda: actions.set_intensity(cluster_id, asked.intensity, reapply=asked.reapply))
        )

    @app.get("/api/clusters/<cluster_id>")
    @describe("One cluster.", query=NoQuery, data=answers.ClusterAnswer, errors=(404,))
    async def cluster(cluster_id: str) -> Response:
        read_query(NoQuery)
        return success(await context.quick(lambda: actions.get(cluster_id)))

    @app.delete("/api/clusters/<cluster_id>")
    @describe(
        "Delete a cluster; an active one is deactivated first.",
        query=NoQuery,
        data=answers.DeletedAnswer,
        errors=(404,),
    )
    async def delete_cluster(cluster_id: str) -> Response:
        read_query(NoQuery)
        return success(await context.manage(lambda: actions.delete(cluster_id)))

    @app.post("/api/clusters/<cluster_id>/activate")
    @describe("Put a cluster in force.", query=NoQuery, data=answers.ActivatedAnswer, errors=(400, 404, 409))
    async def activate_cluster(cluster_id: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)
        return success(await context.manage(lambda: actions.activate(cluster_id)))

    @app.post("/api/clusters/<cluster_id>/deactivate")
    @describe("Take a cluster out of force.", query=NoQuery, data=answers.DeactivatedAnswer, errors=(404, 409))
    async def deactivate_cluster(cluster_id: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)
        return success(await context.manage(lambda: actions.deactivate(cluster_id)))

    @app.get("/api/clusters/<cluster_id>/export")
    @describe("The author's document, as it came.", query=NoQuery, answer=dict[str, Any], errors=(404,))
    async def export_cluster(cluster_id: str) -> Response:
        read_query(NoQuery)
        return bare(await context.quick(lambda: actions.export(cluster_id)))

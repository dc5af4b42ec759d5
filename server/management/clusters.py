"""``/api/clusters``: steering that came as documents, with a dial. Exports are the author's document, bare."""

from __future__ import annotations

from typing import Literal

from quart import Quart, Response

from engine.public.steering import (
    ActivatedProfile,
    ClusterList,
    ClusterSummary,
    DeactivatedProfile,
    DeletedProfile,
    DialledCluster,
    ImportOutcome,
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
    alike = AlikeRoutes(app, context, "cluster", actions)
    alike.one(ClusterSummary)
    alike.delete(DeletedProfile)
    alike.deactivate(DeactivatedProfile)
    alike.export()
    alike.active_dial(
        ClusterDialBody,
        DialledCluster,
        lambda asked: actions.set_active_intensity(asked.intensity, reapply=asked.reapply),
    )
    alike.dial(
        ClusterDialBody,
        DialledCluster,
        lambda key, asked: actions.set_intensity(key, asked.intensity, reapply=asked.reapply),
    )

    @app.get("/api/clusters")
    @describe("List clusters.", query=NoQuery, data=ClusterList)
    async def clusters() -> Response:
        read_query(NoQuery)
        return success(await context.quick(actions.list))

    @app.post("/api/clusters/import")
    @describe(
        "Import a cluster document, or a bundle of them.",
        query=_ImportQuery,
        body=CLUSTER_DOCUMENT,
        data=ImportOutcome,
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

    @app.post("/api/clusters/<cluster_id>/activate")
    @describe("Put a cluster in force.", query=NoQuery, data=ActivatedProfile, errors=(400, 404, 409))
    async def activate_cluster(cluster_id: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)
        return success(await context.manage(lambda: actions.activate(cluster_id)))

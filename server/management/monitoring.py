"""``/api/monitoring``: what the live monitor watches, what it has seen."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from quart import Quart, Response

from engine.monitor.live import MAX_HISTORY, MAX_TOP_FEATURES, MAX_TOP_K
from engine.monitor.records import Metric
from server.context import ServerContext
from server.management.envelope import success
from server.management.validation import Body, Index, NoQuery, Place, Query, SaeId, read_json, read_query

_MAX_FEATURES = 10_000
_FEATURE_LIST = r"\d{1,10}(,\d{1,10})*"


class MonitorChoice(Body):
    """What is watched; a field left out has its default."""

    enabled: bool = True
    features: Annotated[list[Index], Field(min_length=1, max_length=_MAX_FEATURES)] | None = None
    history_size: Annotated[int, Field(ge=1, le=MAX_HISTORY)] = 100
    top_k: Annotated[int, Field(ge=1, le=MAX_TOP_K)] = 10
    sae_id: SaeId | None = None
    layer: Index | None = None


class _Switch(Body):
    enabled: bool = True


class _History(Query):
    limit: Annotated[int, Field(ge=1, le=MAX_HISTORY)] = 50
    request_id: Annotated[str, Field(max_length=200)] | None = None


class _Statistics(Place):
    features: Annotated[str, Field(pattern=f"^{_FEATURE_LIST}$", max_length=11 * _MAX_FEATURES)] | None = None

    @property
    def indices(self) -> list[int] | None:
        """The features asked for, None for all."""
        return None if self.features is None else [int(index) for index in self.features.split(",")]


class _Top(Body):
    k: Annotated[int, Field(ge=1, le=MAX_TOP_FEATURES)] = 10
    # Strict models take no text for an enum, and JSON has nothing else.
    metric: Annotated[Metric, Field(strict=False)] = Metric.MEAN
    sae_id: SaeId | None = None
    layer: Index | None = None


async def configure(context: ServerContext) -> Response:
    """Take over a :class:`MonitorChoice`; also the answer of the route beside the SAEs'."""
    read_query(NoQuery)
    choice = await read_json(context, MonitorChoice, optional=True)
    state = await context.quick(lambda: context.engine.monitor.configure(**dict(choice)))
    return success(state.as_dict())


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""
    monitor = context.engine.monitor

    @app.get("/api/monitoring")
    async def monitoring_state() -> Response:
        read_query(NoQuery)
        return success(monitor.state().as_dict())

    @app.post("/api/monitoring/configure")
    async def monitoring_configure() -> Response:
        return await configure(context)

    @app.post("/api/monitoring/enable")
    async def monitoring_enable() -> Response:
        read_query(NoQuery)
        switch = await read_json(context, _Switch, optional=True)
        state = await context.quick(lambda: monitor.set_enabled(switch.enabled))
        return success(state.as_dict())

    @app.get("/api/monitoring/history")
    async def monitoring_history() -> Response:
        query = read_query(_History)
        records = await context.quick(lambda: monitor.history(query.limit, query.request_id))
        state = monitor.state()
        return success(
            {
                "records": [record.as_dict() for record in records],
                "total": state.history_count,
                "history_size": state.history_size,
            }
        )

    @app.delete("/api/monitoring/history")
    async def monitoring_clear_history() -> Response:
        read_query(NoQuery)
        return success({"cleared": await context.quick(monitor.clear_history)})

    @app.get("/api/monitoring/statistics")
    async def monitoring_statistics() -> Response:
        query = read_query(_Statistics)
        found = await context.quick(lambda: monitor.statistics(query.indices, sae_id=query.sae_id, layer=query.layer))
        return success(found)

    @app.delete("/api/monitoring/statistics")
    async def monitoring_clear_statistics() -> Response:
        read_query(NoQuery)
        await context.quick(monitor.clear_statistics)
        return success({"cleared": True})

    @app.post("/api/monitoring/statistics/top")
    async def monitoring_top() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, _Top, optional=True)
        found = await context.quick(lambda: monitor.top(asked.k, asked.metric, sae_id=asked.sae_id, layer=asked.layer))
        answer: dict[str, Any] = {"features": found, "metric": asked.metric, "k": asked.k}
        return success(answer)

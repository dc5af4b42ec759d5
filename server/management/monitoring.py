"""``/api/monitoring``: what the live monitor watches, what it has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from quart import Quart, Response

from engine.engine import Engine
from engine.public.monitor import (
    MAX_HISTORY,
    MAX_TOP_FEATURES,
    MAX_TOP_K,
    ActivationRecord,
    FeatureStatistics,
    Metric,
    MonitoringCost,
    MonitoringState,
    MonitoringStatistics,
    Peak,
)
from engine.public.saes import check_features
from engine.wire import made_of
from server.context import ServerContext
from server.management.envelope import success
from server.management.validation import Body, Index, NoQuery, Place, Query, SaeId, read_json, read_query
from server.openapi.describe import describe

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


class MonitorSwitchBody(Body):
    """On or off."""

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


class _Peaks(Place):
    limit: Annotated[int, Field(ge=1, le=MAX_HISTORY)] = 50
    feature: Index | None = None


class TopFeaturesBody(Body):
    """How many features, by which metric."""

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
    return success(state)


@dataclass(frozen=True)
class ActivationHistory:
    """What the monitor saw, newest first; ``total`` counts what it keeps."""

    records: Sequence[ActivationRecord]
    total: int
    history_size: int


@dataclass(frozen=True)
class Cleared:
    """How many records were thrown away."""

    cleared: int


@dataclass(frozen=True)
class StatisticsCleared:
    """The statistics begin anew."""

    cleared: bool = True


@dataclass(frozen=True)
class TopFeatures:
    """Features by a metric, highest first."""

    features: Sequence[FeatureStatistics]
    metric: Metric
    k: int


@dataclass(frozen=True)
class ToldPeak:
    """A token at which a feature fired, the last of ``token_ids``, and the text before it."""

    value: float
    position: int
    request_id: str
    token_ids: tuple[int, ...]
    token: str
    before: str


@dataclass(frozen=True)
class ToldPeaks:
    """A feature's strongest tokens, strongest first."""

    feature_idx: int
    label: str | None
    peaks: tuple[ToldPeak, ...]


@dataclass(frozen=True)
class StrongestTokens:
    """Features of one SAE by their strongest token since the peaks were cleared."""

    sae_id: str
    layer: int
    features: tuple[ToldPeaks, ...]


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""
    monitor = context.engine.monitor

    @app.get("/api/monitoring")
    @describe("What the live monitor is set to.", query=NoQuery, data=MonitoringState)
    async def monitoring_state() -> Response:
        read_query(NoQuery)
        return success(monitor.state())

    @app.post("/api/monitoring/configure")
    @describe(
        "Choose what the live monitor watches.",
        query=NoQuery,
        body=MonitorChoice,
        body_optional=True,
        data=MonitoringState,
        errors=(400,),
    )
    async def monitoring_configure() -> Response:
        return await configure(context)

    @app.post("/api/monitoring/enable")
    @describe(
        "Switch the live monitor.",
        query=NoQuery,
        body=MonitorSwitchBody,
        body_optional=True,
        data=MonitoringState,
        errors=(400,),
    )
    async def monitoring_enable() -> Response:
        read_query(NoQuery)
        switch = await read_json(context, MonitorSwitchBody, optional=True)
        state = await context.quick(lambda: monitor.set_enabled(switch.enabled))
        return success(state)

    @app.get("/api/monitoring/history")
    @describe("What the monitor saw, newest first.", query=_History, data=ActivationHistory)
    async def monitoring_history() -> Response:
        query = read_query(_History)
        records = await context.quick(lambda: monitor.history(query.limit, query.request_id))
        state = monitor.state()
        return success(ActivationHistory(records, state.history_count, state.history_size))

    @app.delete("/api/monitoring/history")
    @describe("Throw the history away.", query=NoQuery, data=Cleared)
    async def monitoring_clear_history() -> Response:
        read_query(NoQuery)
        return success(Cleared(await context.quick(monitor.clear_history)))

    @app.get("/api/monitoring/statistics")
    @describe("Figures of features over all tokens read.", query=_Statistics, data=MonitoringStatistics, errors=(400,))
    async def monitoring_statistics() -> Response:
        query = read_query(_Statistics)
        found = await context.quick(lambda: monitor.statistics(query.indices, sae_id=query.sae_id, layer=query.layer))
        return success(found)

    @app.delete("/api/monitoring/statistics")
    @describe("Begin the statistics anew.", query=NoQuery, data=StatisticsCleared)
    async def monitoring_clear_statistics() -> Response:
        read_query(NoQuery)
        await context.quick(monitor.clear_statistics)
        return success(StatisticsCleared())

    @app.get("/api/monitoring/cost")
    @describe("What reading along has cost.", query=NoQuery, data=MonitoringCost)
    async def monitoring_cost() -> Response:
        read_query(NoQuery)
        return success(await context.quick(monitor.cost))

    @app.get("/api/monitoring/peaks")
    @describe(
        "The tokens at which features of an attached SAE fired most, with the text before each.",
        query=_Peaks,
        data=StrongestTokens,
        errors=(400,),
    )
    async def monitoring_peaks() -> Response:
        query = read_query(_Peaks)
        return success(await context.quick(lambda: _peaks(context.engine, query)))

    @app.delete("/api/monitoring/peaks")
    @describe("Forget the strongest tokens of all features.", query=NoQuery, data=Cleared)
    async def monitoring_clear_peaks() -> Response:
        read_query(NoQuery)
        return success(Cleared(await context.quick(monitor.clear_peaks)))

    @app.post("/api/monitoring/statistics/top")
    @describe(
        "Features by a metric, highest first.",
        query=NoQuery,
        body=TopFeaturesBody,
        body_optional=True,
        data=TopFeatures,
        errors=(400,),
    )
    async def monitoring_top() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, TopFeaturesBody, optional=True)
        found = await context.quick(lambda: monitor.top(asked.k, asked.metric, sae_id=asked.sae_id, layer=asked.layer))
        return success(TopFeatures(found, asked.metric, asked.k))


def _peaks(engine: Engine, query: _Peaks) -> StrongestTokens:
    place = engine.desk.attachment(query.sae_id, query.layer)
    if query.feature is None:
        found = engine.monitor.peaks(place.sae_id, place.layer, limit=query.limit)
    else:
        check_features([query.feature], place.sae)
        found = (engine.monitor.peaks_of(place.sae_id, place.layer, query.feature),)
    labels = engine.library.labels.of(place.sae_id, [each.feature_idx for each in found])
    features = tuple(
        ToldPeaks(
            each.feature_idx,
            labels[each.feature_idx].label if each.feature_idx in labels else None,
            tuple(_peak(engine, peak) for peak in each.peaks),
        )
        for each in found
    )
    return StrongestTokens(place.sae_id, place.layer, features)


def _peak(engine: Engine, peak: Peak) -> ToldPeak:
    resident = engine.shelf.resident
    # The ids mean nothing once the model is gone whose tokens they are.
    tokenizer = None if resident is None else resident.backend.tokenizer
    return made_of(
        ToldPeak,
        peak,
        token="" if tokenizer is None else tokenizer.token_text(peak.token_ids[-1]),
        before="" if tokenizer is None else tokenizer.decode(peak.token_ids[:-1], skip_special=False),
    )

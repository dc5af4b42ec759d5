"""The routes. Answers come bare, as probes read them; errors have the management envelope."""

from __future__ import annotations

import time

from quart import Quart, Response, request

from engine.errors import NotFound
from engine.public.models import BreakerFigures
from engine.wire import wire
from server import sse
from server.context import ServerContext, version
from server.health import answers, reports
from server.health.machine import read_machine
from server.management.envelope import success
from server.management.validation import NoQuery, read_nothing, read_query
from server.metrics import Metrics
from server.openapi.describe import TEXT, describe

READINESS_RETRY_AFTER_S = 5


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""

    @app.get("/api/health")
    @describe("Say that the server is up. Needs no key.", answer=answers.Alive, open_to_all=True)
    async def alive() -> Response:
        return _json(answers.Alive("healthy", version(), reports.now(), time.monotonic() - context.started))

    @app.get("/health")
    @describe("Say that the server is up, in few words. Needs no key.", answer=answers.Up, open_to_all=True)
    async def health() -> Response:
        return _json(answers.Up("ok"))

    @app.get("/healthz")
    @describe("The same as /health. Needs no key.", answer=answers.Up, open_to_all=True)
    async def healthz() -> Response:
        return _json(answers.Up("ok"))

    async def readiness() -> Response:
        body = await reports.ready(context)
        if body.ready:
            return _json(body)
        response = _json(body, 503)
        response.headers["Retry-After"] = str(READINESS_RETRY_AFTER_S)
        return response

    @app.get("/api/health/ready")
    @describe("Say whether requests are answered.", answer=answers.Ready, also={503: answers.Ready})
    async def ready() -> Response:
        return await readiness()

    @app.get("/readyz")
    @describe("The same as /api/health/ready.", answer=answers.Ready, also={503: answers.Ready})
    async def readyz() -> Response:
        return await readiness()

    @app.get("/api/health/inference")
    @describe("How answers are written, and the queue.", answer=answers.Inference)
    async def inference() -> Response:
        return _json(reports.inference(context))

    @app.get("/api/health/detailed")
    @describe("Every part of the program and the queue's figures.", answer=answers.Detailed)
    async def detailed() -> Response:
        return _json(await reports.detailed(context))

    @app.get("/api/health/gpus")
    @describe("The NVIDIA cards as their driver sees them. Opens no CUDA context.", answer=answers.Gpus)
    async def gpus() -> Response:
        return _json(await context.manage(reports.gpus))

    @app.get("/api/health/version")
    @describe("Versions of the program and of its libraries.", answer=answers.Version)
    async def versions() -> Response:
        return _json(await context.quick(reports.versions))

    _metrics(app, context)
    _breakers(app, context)


def _metrics(app: Quart, context: ServerContext) -> None:
    async def text() -> Response:
        accept = ",".join(request.headers.getlist("Accept"))
        payload, content_type = await context.manage(lambda: context.metrics.text(accept))
        return Response(payload, 200, content_type=content_type)

    @app.get("/metrics")
    @describe("Every metric in Prometheus' text format.", answer=TEXT)
    async def prometheus_metrics() -> Response:
        return await text()

    @app.get("/v1/metrics")
    @describe("The same as /metrics.", answer=TEXT)
    async def v1_prometheus_metrics() -> Response:
        return await text()

    @app.get("/api/health/metrics/prometheus")
    @describe("The same as /metrics.", answer=TEXT)
    async def health_prometheus_metrics() -> Response:
        return await text()

    @app.get("/api/health/metrics")
    @describe("Every metric as JSON.", answer=answers.Metrics)
    async def json_metrics() -> Response:
        return _json(await context.manage(lambda: _all(context.metrics)))


def _breakers(app: Quart, context: ServerContext) -> None:
    @app.get("/api/health/circuits")
    @describe(
        "The circuit breakers before remote services. They have nothing to do with SAE circuits.",
        answer=answers.Breakers,
    )
    async def breakers() -> Response:
        return _json(answers.Breakers(reports.breakers(context)))

    @app.post("/api/health/circuits/<name>/reset")
    @describe("Let calls to a remote service through again.", query=NoQuery, data=BreakerFigures, errors=(404,))
    async def reset_breaker(name: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)
        found = context.engine.breakers.get(name)
        if found is None:
            known = ", ".join(sorted(context.engine.breakers))
            raise NotFound("There is no circuit breaker of that name.", param="name", remedy=f"There is: {known}.")
        found.reset()
        return success(found.figures())


def _all(metrics: Metrics) -> answers.Metrics:
    return answers.Metrics(
        timestamp=reports.now(),
        machine=read_machine().data(),
        metrics=tuple(
            answers.MetricFamily(
                family.name,
                family.type,
                family.documentation,
                tuple(answers.MetricSample(each.name, dict(each.labels), each.value) for each in family.samples),
            )
            for family in metrics.families()
        ),
    )


def _json(body: object, status: int = 200) -> Response:
    return Response(sse.dump(wire(body)), status, content_type="application/json")

"""``/api/sweeps``: the same prompts at several intensities of one dial, measured. Kept in memory, one at a time."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import Field
from quart import Quart, Response

from engine.errors import InvalidParameter
from engine.public.documents import GREATEST_INTENSITY, LEAST_INTENSITY
from engine.public.experiments import record_of_sweep
from engine.public.library import ExperimentRecord
from engine.public.sweeps import (
    MOST_COLUMNS,
    MOST_PROMPTS,
    MOST_TOKENS,
    PLAIN,
    SWEEP_SAMPLING,
    BaseChoice,
    BaseKind,
    SweepError,
    SweepRun,
    SweepSettings,
    SweepSummary,
    ToldSweep,
    as_csv,
    as_markdown,
    topic_words,
)
from server.context import ServerContext, version
from server.management.dialect import api_envelope
from server.management.envelope import success
from server.management.validation import Body, NoQuery, Query, read_json, read_nothing, read_query
from server.openapi.describe import Text, describe
from server.sampling import sampling_of, strict_fields, with_fields

PROGRAM = "miLLM Desktop"
FILES = {"csv": ("text/csv", as_csv), "markdown": ("text/markdown", as_markdown)}
MOST_WORDS = 1000

S = TypeVar("S", bound=SweepSummary)

Intensity = Annotated[float, Field(ge=LEAST_INTENSITY, le=GREATEST_INTENSITY)]


class SweepBaseBody(Body):
    """Whose dial is turned: a cluster, a profile or a circuit by its id, or what steers now (live, without id)."""

    # Strict models take no text for an enum, and JSON has nothing else.
    kind: Annotated[BaseKind, Field(strict=False)]
    id: Annotated[str, Field(max_length=100)] = ""


class _Opening(Body):
    """What stands before the sampling fields."""

    base: SweepBaseBody
    prompts: Annotated[list[str], Field(min_length=1, max_length=MOST_PROMPTS)]
    intensities: Annotated[list[Intensity], Field(min_length=1, max_length=MOST_COLUMNS)]
    plain: bool = True
    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 48


if TYPE_CHECKING:
    _Sampled = _Opening
else:
    _Sampled = with_fields("_Sampled", _Opening, strict_fields(SWEEP_SAMPLING))


class SweepBody(_Sampled):
    """A sweep. ``plain`` adds a column without steering; ``topic`` left out is made of the features' labels."""

    topic: Annotated[list[str], Field(max_length=MOST_WORDS)] | None = None
    system: str = ""

    def settings(self, topic: frozenset[str]) -> SweepSettings:
        """As the engine takes it. Raises :class:`InvalidParameter`."""
        columns = (*self.intensities, PLAIN) if self.plain else tuple(self.intensities)
        # Each prompt draws the noise of the seed behind the one before it.
        # Without one they draw by chance, and the sweep says by which.
        drawn = replace(SWEEP_SAMPLING, seed=secrets.randbits(32))
        return SweepSettings(
            tuple(self.prompts), columns, self.max_tokens, sampling_of(self, drawn), topic, self.system
        )


@dataclass(frozen=True)
class SweepList:
    """The sweeps of this session that are kept, newest first."""

    sweeps: tuple[SweepSummary, ...]
    total: int


@dataclass(frozen=True)
class SweepChoices:
    """What a sweep can turn the dial of."""

    choices: Sequence[BaseChoice]


@dataclass(frozen=True)
class DeletedSweep:
    """A sweep that is forgotten."""

    id: str
    deleted: bool = True


class _ExportQuery(Query):
    format: Literal["csv", "markdown"] = "csv"


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""
    sweeps = context.engine.sweeps

    @app.post("/api/sweeps")
    @describe(
        "Begin a sweep of a dial; events tell how it goes on.",
        query=NoQuery,
        body=SweepBody,
        data=ToldSweep,
        status=202,
        errors=(400, 404, 409),
    )
    async def start_sweep() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, SweepBody)
        if (asked.base.kind is BaseKind.LIVE) == bool(asked.base.id):
            raise InvalidParameter(
                "A cluster, profile or circuit is named by its id; what steers now has none.", param="base.id"
            )

        def start() -> ToldSweep:
            asked.settings(frozenset())
            base = sweeps.resolve(asked.base.kind, asked.base.id)
            words = sweeps.suggested_words(base) if asked.topic is None else asked.topic
            return _told(ToldSweep, sweeps.start(asked.settings(topic_words(" ".join(words))), base))

        return success(await context.manage(start), 202)

    @app.get("/api/sweeps")
    @describe("List the sweeps of this session, newest first.", query=NoQuery, data=SweepList)
    async def list_sweeps() -> Response:
        read_query(NoQuery)
        found = await context.quick(sweeps.runs.list)
        return success(SweepList(tuple(_told(SweepSummary, each) for each in found), len(found)))

    @app.get("/api/sweeps/choices")
    @describe("What a sweep can turn the dial of.", query=NoQuery, data=SweepChoices)
    async def sweep_choices() -> Response:
        read_query(NoQuery)
        return success(SweepChoices(await context.quick(sweeps.choices)))

    @app.get("/api/sweeps/<sweep_id>")
    @describe("A sweep as far as it has come, with its means.", query=NoQuery, data=ToldSweep, errors=(404,))
    async def one_sweep(sweep_id: str) -> Response:
        read_query(NoQuery)
        return success(await context.quick(lambda: _told(ToldSweep, sweeps.runs.get(sweep_id))))

    @app.get("/api/sweeps/<sweep_id>/export")
    @describe(
        "A sweep as a file: CSV with a row for each answer, or Markdown with what it ran on.",
        query=_ExportQuery,
        answer=Text("text/csv"),
        also_as=("text/markdown",),
        errors=(404,),
    )
    async def export_sweep(sweep_id: str) -> Response:
        kind, form = FILES[read_query(_ExportQuery).format]
        text = await context.quick(lambda: form(sweeps.runs.get(sweep_id).outcome(), {PROGRAM: version()}))
        return Response(text, 200, content_type=f"{kind}; charset=utf-8")

    @app.post("/api/sweeps/<sweep_id>/cancel")
    @describe("End a sweep; what is written stays.", query=NoQuery, data=SweepSummary, errors=(404, 409))
    async def cancel_sweep(sweep_id: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)
        return success(_told(SweepSummary, await context.quick(lambda: sweeps.runs.cancel(sweep_id))))

    @app.post("/api/sweeps/<sweep_id>/keep")
    @describe(
        "Keep a sweep as a record, as far as it has come.",
        query=NoQuery,
        data=ExperimentRecord,
        status=201,
        errors=(404,),
    )
    async def keep_sweep(sweep_id: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)

        def keep() -> ExperimentRecord:
            outcome = sweeps.runs.get(sweep_id).outcome()
            return context.engine.experiments.add(record_of_sweep(outcome, {PROGRAM: version()}))

        return success(await context.manage(keep), 201)

    @app.delete("/api/sweeps/<sweep_id>")
    @describe("Forget a sweep; one that runs is ended first.", query=NoQuery, data=DeletedSweep, errors=(404,))
    async def delete_sweep(sweep_id: str) -> Response:
        read_query(NoQuery)
        gone = await context.manage(lambda: sweeps.runs.remove(sweep_id))
        return success(DeletedSweep(gone.id))


def _told(kind: type[S], run: SweepRun) -> S:
    error = None
    if run.error is not None:
        told = api_envelope(run.error)["error"]
        error = SweepError(told["code"], told["message"])
    return kind.of(run, error)

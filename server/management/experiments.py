"""``/api/experiments``: the window's Records. Comparisons of a plain and a steered answer, sweeps, contrasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, model_validator
from quart import Quart, Response

from engine.public.documents import TOP_RUNG, rung_language
from engine.public.experiments import KIND, KINDS, NO_CLAIM, as_csv, as_json, as_markdown
from engine.public.library import ExperimentRecord, ExperimentSummary
from server.context import ServerContext
from server.management.envelope import success
from server.management.validation import Body, NoQuery, Query, read_json, read_query
from server.openapi.describe import describe
from server.validators import Seed

MOST_TITLE = 200
MOST_TEXT = 1_000_000
MOST_ITEMS = 256
MOST_TURNS = 1000
MOST_STRENGTHS = 10_000
MOST_VERSIONS = 100


def _index_text(value: str) -> str:
    if not (value.isascii() and value.isdigit() and len(value) <= 10):
        raise ValueError("a feature index is a whole number from 0")
    return value


Line = Annotated[str, Field(min_length=1, max_length=MOST_TITLE)]
LongText = Annotated[str, Field(max_length=MOST_TEXT)]
FeatureKey = Annotated[str, AfterValidator(_index_text)]


class KeptPart(Body):
    """A part of a comparison: what it names is checked, what else it says is kept."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, allow_inf_nan=False)
    __pydantic_extra__: dict[str, JsonValue]


class KeptTurn(KeptPart):
    """A message before the prompt."""

    role: Annotated[str, Field(max_length=40)]
    content: LongText


class KeptSettings(KeptPart):
    """How both answers were written."""

    temperature: float | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: Seed = None
    noise_seed: Seed = None
    system_prompt: LongText = ""
    earlier_turns: Annotated[list[KeptTurn], Field(default_factory=list, max_length=MOST_TURNS)]


class KeptSteering(KeptPart):
    """A part of a steering report; ``strengths`` are by feature index as text."""

    kind: Literal["manual", "inline", "profile", "circuit", "unknown", "none"]
    features: Annotated[int, Field(ge=0)] = 0
    strengths: Annotated[dict[FeatureKey, float], Field(max_length=MOST_STRENGTHS)] | None = None


class KeptStep(KeptPart):
    """A steering of an answer that was turned while it was written, and the token it began at (0: the prompt)."""

    token: Annotated[int, Field(ge=0)]
    text: Annotated[str, Field(max_length=MOST_TEXT)] = ""
    items: Annotated[list[KeptSteering], Field(max_length=MOST_ITEMS)]


class KeptReport(KeptPart):
    """The steering report of the steered answer."""

    text: Annotated[str, Field(max_length=MOST_TEXT)] = ""
    changed: bool = False
    items: Annotated[list[KeptSteering], Field(default_factory=list, max_length=MOST_ITEMS)]
    path: Annotated[list[KeptStep], Field(max_length=MOST_TURNS)] | None = None
    path_left_out: Annotated[int, Field(ge=0)] | None = None

    @property
    def turned(self) -> bool:
        """Whether the answer was written under more than one steering."""
        return self.changed or (self.path is not None and len(self.path) > 1)

    @property
    def by_circuit(self) -> bool:
        """Whether a circuit steered any part of it."""
        items = [*self.items, *(item for step in self.path or () for item in step.items)]
        return any(each.kind == "circuit" for each in items)


class KeptEvidence(Body):
    """What could be claimed; the phrase follows from the rung, and is refused where it does not."""

    rung: Annotated[int, Field(ge=0, le=TOP_RUNG)] | None = None
    language: str | None = None

    @model_validator(mode="after")
    def _check_language(self) -> KeptEvidence:
        said = ("", NO_CLAIM) if self.rung is None else (rung_language(self.rung),)
        if self.language is not None and self.language not in said:
            raise ValueError(f"the phrase of this rung is '{said[-1]}'")
        return self

    def kept(self, by_circuit: bool) -> dict[str, Any]:
        """As a record holds it."""
        if self.rung is not None:
            return {"rung": self.rung, "language": rung_language(self.rung)}
        return {"rung": None, "language": NO_CLAIM if by_circuit else ""}


class ExperimentBody(Body):
    """A record to keep. An export can be sent back as it is; it gets an id and a time of its own.

    ``content`` is for sweeps and contrasts, as their exports hold it; ``settings`` are then theirs.
    """

    title: Line
    model: Line
    prompt: LongText
    plain: LongText
    steered: LongText
    settings: Annotated[KeptSettings, Field(default_factory=KeptSettings)]
    steering: Annotated[KeptReport, Field(default_factory=KeptReport)]
    evidence: Annotated[KeptEvidence, Field(default_factory=KeptEvidence)]
    versions: Annotated[dict[str, str], Field(default_factory=dict, max_length=MOST_VERSIONS)]
    plain_details: Annotated[dict[str, JsonValue], Field(default_factory=dict)]
    steered_details: Annotated[dict[str, JsonValue], Field(default_factory=dict)]
    content: Annotated[dict[str, JsonValue], Field(default_factory=dict)]
    kind: Literal["millm.comparison", "millm.sweep", "millm.contrast"] = KIND
    schema_version: Literal["1"] = "1"
    id: int | None = None
    created_at: str | None = None

    @model_validator(mode="after")
    def _check_content(self) -> ExperimentBody:
        if self.kind == KIND and self.content:
            raise ValueError("a comparison has no content beside its fields")
        if self.evidence.rung is not None and self.steering.turned:
            raise ValueError("an answer whose steering changed while it was written claims no rung")
        return self

    def new(self) -> ExperimentRecord:
        """As the library takes it."""
        steering = self.steering.model_dump(exclude_unset=True)
        return ExperimentRecord(
            self.title,
            self.model,
            self.prompt,
            self.plain,
            self.steered,
            self.settings.model_dump(exclude_unset=True),
            steering,
            self.evidence.kept(self.steering.by_circuit),
            self.versions,
            self.plain_details,
            self.steered_details,
            next(kind for kind, name in KINDS.items() if name == self.kind),
            self.content,
        )


class RenameExperimentBody(Body):
    """Another title."""

    title: Line


@dataclass(frozen=True)
class ExperimentList:
    """The records, newest first."""

    experiments: Sequence[ExperimentSummary]
    total: int


@dataclass(frozen=True)
class DeletedExperiment:
    """A record that is gone."""

    id: int
    deleted: bool = True


class _Search(Query):
    search: Annotated[str, Field(max_length=200)] = ""


class _ExportQuery(Query):
    format: Literal["markdown", "json", "csv"] = "markdown"


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""
    experiments = context.engine.experiments

    @app.get("/api/experiments")
    @describe("List the records, newest first.", query=_Search, data=ExperimentList)
    async def list_experiments() -> Response:
        search = read_query(_Search).search
        found = await context.quick(lambda: experiments.list(search))
        return success(ExperimentList(found, len(found)))

    @app.post("/api/experiments")
    @describe("Keep a record.", query=NoQuery, body=ExperimentBody, data=ExperimentRecord, status=201)
    async def keep_experiment() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, ExperimentBody)
        return success(await context.manage(lambda: experiments.add(asked.new())), 201)

    @app.get("/api/experiments/<int:experiment_id>")
    @describe("One record.", query=NoQuery, data=ExperimentRecord, errors=(404,))
    async def one_experiment(experiment_id: int) -> Response:
        read_query(NoQuery)
        return success(await context.quick(lambda: experiments.get(experiment_id)))

    @app.patch("/api/experiments/<int:experiment_id>")
    @describe(
        "Give a record another title.",
        query=NoQuery,
        body=RenameExperimentBody,
        data=ExperimentRecord,
        errors=(404,),
    )
    async def rename_experiment(experiment_id: int) -> Response:
        read_query(NoQuery)
        title = (await read_json(context, RenameExperimentBody)).title
        return success(await context.manage(lambda: experiments.rename(experiment_id, title)))

    @app.delete("/api/experiments/<int:experiment_id>")
    @describe("Delete a record.", query=NoQuery, data=DeletedExperiment, errors=(404,))
    async def delete_experiment(experiment_id: int) -> Response:
        read_query(NoQuery)
        gone = await context.manage(lambda: experiments.remove(experiment_id))
        return success(DeletedExperiment(gone.id))

    @app.get("/api/experiments/<int:experiment_id>/export")
    @describe(
        "A record as Markdown, as JSON, bare, or a sweep or contrast as CSV.",
        query=_ExportQuery,
        answer=dict[str, Any],
        also_as=("text/markdown", "text/csv"),
        errors=(404,),
    )
    async def export_experiment(experiment_id: int) -> Response:
        kind = read_query(_ExportQuery).format
        record = await context.quick(lambda: experiments.get(experiment_id))
        if kind == "json":
            return Response(as_json(record), 200, content_type="application/json")
        if kind == "csv":
            return Response(as_csv(record), 200, content_type="text/csv; charset=utf-8")
        return Response(as_markdown(record), 200, content_type="text/markdown; charset=utf-8")

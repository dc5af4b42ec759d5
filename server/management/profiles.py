"""``/api/profiles``: steering under a name. Clusters are profiles too, and are listed here with the others."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from quart import Quart, Response

from engine.errors import InvalidParameter
from engine.public.library import (
    CLUSTER_NAME_LIMIT,
    DESCRIPTION_LIMIT,
    NARRATIVE_LIMIT,
    PROFILE_NAME_LIMIT,
    ProfileKind,
)
from engine.public.steering import (
    ActivatedProfile,
    DeactivatedProfile,
    DeletedProfile,
    DialledCluster,
    ProfileList,
    ProfileSummary,
)
from server.context import ServerContext
from server.management.crud_routes import AlikeRoutes
from server.management.envelope import success
from server.management.validation import (
    Body,
    Index,
    NoQuery,
    Query,
    SaeId,
    read_document,
    read_json,
    read_nothing,
    read_query,
)
from server.openapi.describe import Document, describe

_MAX_VALUES = 10_000
_Name = Annotated[str, Field(min_length=1, max_length=PROFILE_NAME_LIMIT)]
_Description = Annotated[str, Field(max_length=DESCRIPTION_LIMIT)]
_ModelId = Annotated[str, Field(max_length=255)]
_Steering = Annotated[dict[str, float], Field(max_length=_MAX_VALUES)]

PROFILE_DOCUMENT = Document("A profile document, as the export gives it.")


class NewProfileBody(Body):
    """A profile to be made; strengths are by feature index as text."""

    name: _Name
    description: _Description | None = None
    steering: _Steering | None = None
    model_id: _ModelId | None = None
    sae_id: SaeId | None = None
    layer: Index | None = None


class ProfileChangesBody(NewProfileBody):
    """Fields to change; those left out stay."""

    # A cluster's name and narrative may be longer than a profile's: the library knows each kind's limits.
    name: Annotated[str, Field(min_length=1, max_length=CLUSTER_NAME_LIMIT)] = ""
    description: Annotated[str, Field(max_length=NARRATIVE_LIMIT)] | None = None
    steering: _Steering = Field(default_factory=dict)


class SaveCurrentBody(Body):
    """What the profile is to be called; whose strengths it keeps."""

    name: _Name
    description: _Description | None = None
    sae_id: SaeId | None = None
    layer: Index | None = None


class ActivateProfileBody(Body):
    """Whether its strengths become live."""

    apply_steering: bool = True


class ProfileDialBody(Body):
    """A profile's dial."""

    # The engine knows the range, and names it.
    intensity: float
    reapply: bool = True


class _Deactivate(Query):
    clear_steering: bool = True


class _List(Query):
    kind: ProfileKind | None = None


class _ImportQuery(Query):
    on_conflict: Literal["rename", "fail"] = "fail"


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""
    actions = context.engine.profiles
    alike = AlikeRoutes(app, context, "profile", actions)
    alike.one(ProfileSummary)
    alike.delete(DeletedProfile)
    alike.dial(
        ProfileDialBody,
        DialledCluster,
        lambda key, asked: actions.set_intensity(key, asked.intensity, reapply=asked.reapply),
    )

    @app.get("/api/profiles")
    @describe("List profiles; clusters are among them.", query=_List, data=ProfileList)
    async def profiles() -> Response:
        kind = read_query(_List).kind
        return success(await context.quick(lambda: actions.list(kind)))

    @app.post("/api/profiles")
    @describe("Make a profile.", query=NoQuery, body=NewProfileBody, data=ProfileSummary, errors=(400, 404, 409))
    async def create_profile() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, NewProfileBody)
        fields = {name: value for name, value in asked if name != "name"}
        return success(await context.manage(lambda: actions.create(asked.name, **fields)))

    @app.post("/api/profiles/save-current")
    @describe(
        "Keep what is set by hand as a profile.",
        query=NoQuery,
        body=SaveCurrentBody,
        data=ProfileSummary,
        errors=(400, 404, 409),
    )
    async def save_current() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, SaveCurrentBody)
        return success(
            await context.manage(
                lambda: actions.save_current(asked.name, asked.description, sae_id=asked.sae_id, layer=asked.layer)
            )
        )

    @app.get("/api/profiles/active")
    @describe("The active profile, or null.", query=NoQuery, data=ProfileSummary | None)
    async def active_profile() -> Response:
        read_query(NoQuery)
        return success(await context.quick(actions.active))

    @app.post("/api/profiles/import")
    @describe(
        "Import a profile document.",
        query=_ImportQuery,
        body=PROFILE_DOCUMENT,
        data=ProfileSummary,
        errors=(400, 409),
    )
    async def import_profile() -> Response:
        on_conflict = read_query(_ImportQuery).on_conflict
        raw = await read_document(context)
        return success(await context.manage(lambda: actions.import_document(raw, on_conflict=on_conflict)))

    @app.route("/api/profiles/<profile_id>", methods=["PATCH", "PUT"])
    @describe(
        "Change fields of a profile.",
        query=NoQuery,
        body=ProfileChangesBody,
        data=ProfileSummary,
        errors=(400, 404, 409),
    )
    async def change_profile(profile_id: str) -> Response:
        read_query(NoQuery)
        asked = await read_json(context, ProfileChangesBody)
        changes = {name: value for name, value in asked if name in asked.model_fields_set}
        if not changes:
            raise InvalidParameter("There is nothing to change.", remedy="Send at least one field.")
        return success(await context.manage(lambda: actions.update(profile_id, changes)))

    @app.post("/api/profiles/<profile_id>/activate")
    @describe(
        "Put a profile in force.",
        query=NoQuery,
        body=ActivateProfileBody,
        body_optional=True,
        data=ActivatedProfile,
        errors=(400, 404, 409),
    )
    async def activate_profile(profile_id: str) -> Response:
        read_query(NoQuery)
        apply = (await read_json(context, ActivateProfileBody, optional=True)).apply_steering
        return success(await context.manage(lambda: actions.activate(profile_id, apply_steering=apply)))

    @app.post("/api/profiles/<profile_id>/deactivate")
    @describe("Take a profile out of force.", query=_Deactivate, data=DeactivatedProfile, errors=(404, 409))
    async def deactivate_profile(profile_id: str) -> Response:
        clear = read_query(_Deactivate).clear_steering
        await read_nothing(context)
        return success(await context.manage(lambda: actions.deactivate(profile_id, clear_steering=clear)))

    @app.get("/api/profiles/<profile_id>/export")
    @describe("A profile as a document.", query=NoQuery, data=dict[str, Any], errors=(400, 404))
    async def export_profile(profile_id: str) -> Response:
        read_query(NoQuery)
        return success(await context.quick(lambda: actions.export(profile_id)))

"""Models into memory and out of it: ``/v1/models/load``, ``/v1/models/unload`` and ``DELETE /v1/models/{id}``.

Files stay where they are, whatever a client calls it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, TypedDict

from pydantic import BaseModel, ConfigDict
from quart import Quart, Response

from engine.errors import InvalidParameter, ModelNotLoaded, NothingToUnload, described
from engine.public.library import ModelRecord
from server.context import ServerContext
from server.errors import UnsupportedRuntime
from server.fields import Column
from server.generation.admission import loaded
from server.headers import IGNORED_FIELDS, LOAD_POLICY, STRICT
from server.openai import answers
from server.openai.models import model_item
from server.openai.plain import HONOURED, answered, judge, read
from server.openapi.describe import describe


class UnloadBody(BaseModel):
    """Which model, by one of the names that clients have for it."""

    model_config = ConfigDict(strict=True)
    id: str | None = None
    model: str | None = None
    name: str | None = None

    def named(self) -> str:
        """The model's name. Raises :class:`InvalidParameter`."""
        given = {key: value for key in ("id", "model", "name") if (value := getattr(self, key)) is not None}
        key = next(iter(given), "id")
        if not given.get(key):
            received = f"; received {described(given[key])}" if given else ""
            raise InvalidParameter(f"Invalid value for '{key}': the name of a model is expected{received}.", param=key)
        if len(set(given.values())) > 1:
            raise InvalidParameter(
                f"{' and '.join(map(repr, given))} mean the same and have different values; send one of them."
            )
        return given[key]


class LoadBody(UnloadBody):
    """Which model, and by what it is run; it must be what its files are for."""

    runtime: str | None = None


class Unloaded(TypedDict):
    """A model that is in memory no more; its files stay."""

    id: str
    object: str
    deleted: bool
    unloaded: bool


_NAMES = dict.fromkeys(("id", "model", "name"), HONOURED)
LOAD = Column("load", "loading a model", MappingProxyType({**_NAMES, "runtime": HONOURED}), writes=False)
UNLOAD = Column("unload", "unloading a model", MappingProxyType(_NAMES), writes=False)


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""

    @app.post("/v1/models/load")
    @describe(
        "Load a model, and wait until it is in memory.",
        body=LoadBody,
        answer=answers.Model,
        errors=(404, 409),
        headers=(IGNORED_FIELDS,),
        request_headers=(STRICT, LOAD_POLICY),
    )
    async def load_model_and_wait() -> Response:
        body, asked = await read(context, LoadBody)
        name = asked.named()
        record = await context.quick(lambda: context.engine.shelf.resolve(name))
        out = judge(context, LOAD, LoadBody, body, record)
        _check_runtime(record, asked.runtime)
        await loaded(context, record.name)
        engine = context.engine
        return answered(await context.quick(lambda: model_item(engine, engine.shelf.get(record.id))), out)

    @app.post("/v1/models/unload")
    @describe(
        "Let answers finish, then free the model. Its files stay.",
        body=UnloadBody,
        answer=Unloaded,
        errors=(404, 409),
        headers=(IGNORED_FIELDS,),
        request_headers=(STRICT, LOAD_POLICY),
    )
    async def unload_model_by_name() -> Response:
        body, asked = await read(context, UnloadBody)
        name = asked.named()
        record = await context.quick(lambda: context.engine.shelf.resolve(name))
        out = judge(context, UNLOAD, UnloadBody, body, record)
        return answered(await _unload(context, record), out)

    # A model's name may hold slashes.
    @app.delete("/v1/models/<path:name>")
    @describe("The same as /v1/models/unload: nothing is deleted.", answer=Unloaded, errors=(400, 404, 409))
    async def delete_model_by_name(name: str) -> Response:
        record = await context.quick(lambda: context.engine.shelf.resolve(name))
        return answered(await _unload(context, record))


def _check_runtime(record: ModelRecord, asked: str | None) -> None:
    if asked is not None and asked != record.engine.value:
        raise UnsupportedRuntime(
            f"The model {record.name!r} is run by {record.engine.value}, not by {described(asked, 'runtime')}.",
            param="runtime",
            details={"runtime": record.engine.value},
            remedy=f"Leave runtime out, or send {record.engine.value}.",
        )


async def _unload(context: ServerContext, record: ModelRecord) -> dict[str, Any]:
    try:
        await context.load(lambda: context.engine.models.unload(record.id, on_demand=True))
    except ModelNotLoaded as error:
        raise NothingToUnload(f"The model {record.name!r} is not loaded.", param="model") from error
    return {"id": record.name, "object": "model", "deleted": True, "unloaded": True}

"""``GET /v1/models`` and ``GET /v1/models/{id}``: one item for OpenAI's and for Anthropic's clients."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from functools import cache
from importlib import metadata
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from quart import request

from engine.engine import Engine
from engine.errors import AmbiguousModelName, InvalidParameter, ModelNotFound, shortened
from engine.public.library import EngineKind, ModelRecord, ModelStatus
from engine.public.models import can_run, capabilities_of, window_of
from engine.wire import wire
from server.body import invalid_parameter
from server.context import ServerContext
from server.generation.admission import named

SERVABLE = (ModelStatus.READY, ModelStatus.LOADING, ModelStatus.LOADED)
"""States in which a model can be asked for. Rows whose engine is not installed are not listed either."""

MAX_PAGE = 1000
_LIBRARIES = {EngineKind.TRANSFORMERS: "transformers", EngineKind.LLAMACPP: "llama-cpp-python"}


class ModelsQuery(BaseModel):
    """Which part of the list. What other servers' clients add to it asks for nothing here."""

    model_config = ConfigDict(frozen=True)
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] | None = None
    after_id: str | None = None
    before_id: str | None = None
    client_version: str | None = None


def read_models_query() -> ModelsQuery:
    """The query of the current request. Raises :class:`InvalidParameter`."""
    given: dict[str, str] = {}
    for name, values in request.args.lists():
        if name in ModelsQuery.model_fields and len(values) > 1:
            raise InvalidParameter(f"The parameter {shortened(name)} is given {len(values)} times.", param=name)
        given[name] = values[0]
    try:
        return ModelsQuery.model_validate(given)
    except ValidationError as error:
        raise invalid_parameter(error) from None


def list_models(context: ServerContext, asked: ModelsQuery) -> dict[str, Any]:
    """The loaded model first, then by name, and behind them the aliases that are names of their own; only the locked
    one and its aliases where a model is locked.
    """
    records = listed_models(context.engine)
    entries = [(record.name, record) for record in records]
    entries += _aliases(context, {record.id for record in records})
    window = entries
    if asked.after_id is not None:
        window = window[_place(entries, asked.after_id, "after_id") + 1 :]
    if asked.before_id is not None:
        end = entries[_place(entries, asked.before_id, "before_id")]
        window = window[: window.index(end)] if end in window else []
    limit = len(window) if asked.limit is None else asked.limit
    # Who goes backwards gets what stands nearest before.
    backwards = asked.before_id is not None and asked.after_id is None
    page = window[max(0, len(window) - limit) :] if backwards else window[:limit]
    items = [_entry(context, name, record) for name, record in page]
    listed = {
        "object": "list",
        "data": items,
        "has_more": len(window) > len(page),
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
    }
    if asked.client_version is not None:
        # Codex looks here for a catalogue of its own kind; finding none, it goes by its configuration.
        listed["models"] = []
    return listed


def get_model(context: ServerContext, name: str) -> dict[str, Any]:
    """One model of that list, or what a name means that an alias makes one. Raises :class:`ModelNotFound` or
    :class:`AmbiguousModelName`.
    """
    record, alias = named(context, name)
    _check_listed(context.engine, record, name)
    return _entry(context, record.name if alias is None else name, record)


def find_model(engine: Engine, name: str) -> ModelRecord:
    """The model of that list which ``name`` means. Raises as :func:`get_model`."""
    record = engine.shelf.resolve(name)
    _check_listed(engine, record, name)
    return record


def _check_listed(engine: Engine, record: ModelRecord, name: str) -> None:
    if record.id not in {other.id for other in listed_models(engine)}:
        raise ModelNotFound(f"The model {shortened(name)} is not available now.", param="model")


def _aliases(context: ServerContext, listed: set[int]) -> list[tuple[str, ModelRecord]]:
    """Those by which a listed model can be asked for."""
    found = []
    for alias in context.aliases.listed():
        try:
            record, by = named(context, alias.name)
        except (ModelNotFound, AmbiguousModelName):
            continue
        if by is not None and record.id in listed:
            found.append((alias.name, record))
    return found


def _entry(context: ServerContext, name: str, record: ModelRecord) -> dict[str, Any]:
    """The model, under its own name or as an alias of it."""
    item = model_item(context.engine, record)
    return item if name == record.name else {**item, "id": name, "owned_by": f"alias:{record.name}"}


def listed_models(engine: Engine) -> list[ModelRecord]:
    """The models that can be asked for, in the list's order."""
    records = [r for r in engine.shelf.list() if r.status in SERVABLE and can_run(r.engine)]
    # A lock counts only while its model is loaded: one left behind must not hide the others.
    locked = [r for r in records if r.locked and r.status is ModelStatus.LOADED]
    return locked or records


def _place(entries: Sequence[tuple[str, ModelRecord]], name: str, param: str) -> int:
    for place, (listed, _) in enumerate(entries):
        if listed == name:
            return place
    raise InvalidParameter(
        f"Invalid value for '{param}': {shortened(name)} is not in the list.",
        param=param,
        remedy="Send the id of a model that the list has, or leave it out.",
    )


def model_item(engine: Engine, record: ModelRecord) -> dict[str, Any]:
    """A model as the list has it."""
    resident = engine.shelf.resident
    created = record.loaded_at or record.created_at
    window = window_of(record, resident, engine.settings)
    return {
        "id": record.name,
        "object": "model",
        "type": "model",
        "display_name": record.name,
        "created": int(created.timestamp()),
        "created_at": created.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "owned_by": record.repo_id or "miLLM",
        "loaded": resident is not None and resident.record.id == record.id,
        "max_input_tokens": window,
        "meta": {"n_ctx": window},
        "architecture": {"input_modalities": ["text"]},
        "runtime": {"id": record.engine.value, "version": _version_of(record.engine)},
        "capabilities": wire(capabilities_of(record, resident)),
    }


@cache
def _version_of(engine: EngineKind) -> str | None:
    try:
        return metadata.version(_LIBRARIES[engine])
    except metadata.PackageNotFoundError:
        return None

"""``GET /v1/models`` and ``GET /v1/models/{id}``."""

from __future__ import annotations

from typing import Any

from engine.errors import AmbiguousModelName, ModelNotFound, shortened
from engine.public.library import ModelRecord, ModelStatus
from engine.public.models import ModelShelf, can_run
from server.context import ServerContext
from server.generation.admission import named

SERVABLE = (ModelStatus.READY, ModelStatus.LOADING, ModelStatus.LOADED)
"""States in which a model can be asked for. Rows whose engine is not installed are not listed either."""


def list_models(context: ServerContext) -> dict[str, Any]:
    """OpenAI's list: the loaded model first, then by name, and each with the aliases that are names of their own; only
    the locked one where a model is locked.
    """
    listed = _listed(context.engine.shelf)
    return {"object": "list", "data": [*map(_item, listed), *_aliases(context, {record.id for record in listed})]}


def get_model(context: ServerContext, name: str) -> dict[str, Any]:
    """One model of that list, or what a name means that an alias makes one. Raises :class:`ModelNotFound` or
    :class:`AmbiguousModelName`.
    """
    record, alias = named(context, name)
    if record.id not in {other.id for other in _listed(context.engine.shelf)}:
        raise ModelNotFound(f"The model {shortened(name)} is not available now.", param="model")
    return _item(record) if alias is None else _alias_item(name, record)


def _aliases(context: ServerContext, listed: set[int]) -> list[dict[str, Any]]:
    """Those by which a listed model can be asked for."""
    found = []
    for alias in context.aliases.listed():
        try:
            record, by = named(context, alias.name)
        except (ModelNotFound, AmbiguousModelName):
            continue
        if by is not None and record.id in listed:
            found.append(_alias_item(alias.name, record))
    return found


def _alias_item(name: str, record: ModelRecord) -> dict[str, Any]:
    return {**_item(record), "id": name, "owned_by": f"alias:{record.name}"}


def _listed(shelf: ModelShelf) -> list[ModelRecord]:
    records = [r for r in shelf.list() if r.status in SERVABLE and can_run(r.engine)]
    # A lock counts only while its model is loaded: one left behind must not hide the others.
    locked = [r for r in records if r.locked and r.status is ModelStatus.LOADED]
    return locked or records


def _item(record: ModelRecord) -> dict[str, Any]:
    return {
        "id": record.name,
        "object": "model",
        "created": int((record.loaded_at or record.created_at).timestamp()),
        "owned_by": record.repo_id or "miLLM",
    }

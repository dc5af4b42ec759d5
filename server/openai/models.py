"""``GET /v1/models`` and ``GET /v1/models/{id}``."""

from __future__ import annotations

from typing import Any

from engine.errors import ModelNotFound, shortened
from engine.public.library import ModelRecord, ModelStatus
from engine.public.models import ModelShelf, can_run

SERVABLE = (ModelStatus.READY, ModelStatus.LOADING, ModelStatus.LOADED)
"""States in which a model can be asked for. Rows whose engine is not installed are not listed either."""


def list_models(shelf: ModelShelf) -> dict[str, Any]:
    """OpenAI's list: the loaded model first, then by name; only the locked one where a model is locked."""
    return {"object": "list", "data": [_item(record) for record in _listed(shelf)]}


def get_model(shelf: ModelShelf, name: str) -> dict[str, Any]:
    """One model of that list. Raises :class:`ModelNotFound` or :class:`AmbiguousModelName`."""
    record = shelf.resolve(name)
    if record.id not in {other.id for other in _listed(shelf)}:
        raise ModelNotFound(f"The model {shortened(name)} is not available now.", param="model")
    return _item(record)


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

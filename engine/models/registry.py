"""The shelf: which models there are, which one is resident, which one is being loaded."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from engine.errors import ModelNotFound
from engine.library.models import ModelRepository
from engine.library.records import ModelRecord, ModelStatus
from engine.models.backends.backend import Backend, ModelInfo
from engine.models.inspection.names import resolve_name


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """The resident model: its row when it was loaded, facts about it, the backend that runs it, and the form in which
    it writes calls.
    """

    record: ModelRecord
    info: ModelInfo
    backend: Backend
    tool_wire: str | None = None


@dataclass(frozen=True)
class LoadingState:
    """The load under way: ``progress`` 0–100, ``stage`` in words."""

    model_id: int
    model_name: str
    progress: float
    stage: str


class ModelShelf:
    """Thread-safe view of the model library plus what is in memory. Only the loader changes the latter."""

    def __init__(self, models: ModelRepository) -> None:
        self._models = models
        self._lock = threading.Lock()
        self._resident: LoadedModel | None = None
        self._loading: LoadingState | None = None

    def list(self) -> list[ModelRecord]:
        """All models: the loaded one first, then by name."""
        records = self._models.list()
        return sorted(records, key=lambda r: (r.status is not ModelStatus.LOADED, r.name.casefold(), r.name))

    def get(self, model_id: int) -> ModelRecord:
        """The model of that id. Raises :class:`ModelNotFound`."""
        record = self._models.get(model_id)
        if record is None:
            raise ModelNotFound(f"No model has the id {model_id}.", param="model", details={"model_id": model_id})
        return record

    def resolve(self, name: str) -> ModelRecord:
        """The model that ``name`` means. Raises :class:`ModelNotFound` or :class:`AmbiguousModelName`."""
        return resolve_name(name, self._models.list())

    @property
    def resident(self) -> LoadedModel | None:
        """The model in memory, or None."""
        with self._lock:
            return self._resident

    @property
    def loading(self) -> LoadingState | None:
        """The load under way, or None."""
        with self._lock:
            return self._loading

    @property
    def lease(self) -> None:
        """Who keeps the model in memory for themselves: nobody can yet."""
        return None

    def set_resident(self, loaded: LoadedModel | None) -> None:
        """For the loader: what is in memory now."""
        with self._lock:
            self._resident = loaded

    def set_loading(self, state: LoadingState | None) -> None:
        """For the loader: what is being loaded now."""
        with self._lock:
            self._loading = state

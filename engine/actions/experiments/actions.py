"""Managing records: each change is told, so that a face shows what the other did."""

from __future__ import annotations

from engine.actions.experiments.contrasts import contrast_of
from engine.actions.experiments.sweeps import sweep_of
from engine.errors import NotFound
from engine.events import EventBus, ExperimentsChanged
from engine.library.database import Library
from engine.library.records import ExperimentRecord, ExperimentSummary, RecordKind


class ExperimentActions:
    """What can be done with records. Any thread but the engine's; one that is missing: :class:`NotFound`."""

    def __init__(self, library: Library, events: EventBus) -> None:
        self._rows = library.experiments
        self._events = events

    def list(self, search: str | None = None) -> list[ExperimentSummary]:
        """Every record, newest first; with ``search`` those whose title, prompt or answers hold that text."""
        return self._rows.list(search)

    def get(self, experiment_id: int) -> ExperimentRecord:
        """One record."""
        found = self._rows.get(experiment_id)
        if found is None:
            raise NotFound(
                f"There is no saved comparison with the id {experiment_id}.", remedy="It may have been deleted already."
            )
        return found

    def add(self, new: ExperimentRecord) -> ExperimentRecord:
        """Keep a record. Raises :class:`InvalidParameter` for details that are not JSON values, and for content that is
        not what its kind holds.
        """
        if new.kind is RecordKind.SWEEP:
            sweep_of(new)
        elif new.kind is RecordKind.CONTRAST:
            contrast_of(new)
        record = self._rows.add(new)
        self._events.publish(ExperimentsChanged())
        return record

    def rename(self, experiment_id: int, title: str) -> ExperimentRecord:
        """Give a record another title."""
        record = self._rows.rename(experiment_id, title)
        self._events.publish(ExperimentsChanged())
        return record

    def remove(self, experiment_id: int) -> ExperimentRecord:
        """Delete a record; returns what it was."""
        record = self._rows.remove(experiment_id)
        self._events.publish(ExperimentsChanged())
        return record

    def restore(self, record: ExperimentRecord) -> ExperimentRecord:
        """Bring a deleted record back under its old id."""
        restored = self._rows.restore(record)
        self._events.publish(ExperimentsChanged())
        return restored

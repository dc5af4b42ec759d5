"""What a load of a model would take, term by term, against the memory that is there: asked before anything is loaded.

The very figures a load is held to. The first question brings in the heavy libraries, since they say which devices there
are; not for a window's thread.
"""

from __future__ import annotations

from engine.config import EngineSettings
from engine.library.records import EngineKind, ModelRecord
from engine.models.backends.engines import require_installed
from engine.models.hardware.memory import MemoryEstimate
from engine.models.load_plan import inspect, open_model


def estimate(record: ModelRecord, settings: EngineSettings, *, freed: int = 0) -> MemoryEstimate:
    """Estimate a load of ``record``; ``freed`` bytes are those of the model that would make room.

    Raises :class:`CheckpointInvalid` and the like for files that cannot be loaded, :class:`EngineUnsupported`,
    :class:`UnsupportedQuantization`.
    """
    found = inspect(record)
    if record.engine is EngineKind.LLAMACPP:
        require_installed(record.name)
    return open_model(record, found, settings).estimate(freed)

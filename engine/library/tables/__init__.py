"""The tables, one file per aggregate, as SQLAlchemy typed declarative classes.

May import: ``engine.library.records``. Rows never leave ``engine/library``: the repositories turn them into frozen
records. A change here needs a new file in ``engine/library/migrations/versions``; a test compares the two.
"""

from engine.library.tables.base import Base, UtcDateTime, utc_now
from engine.library.tables.circuits import CircuitRow, ClaimRow
from engine.library.tables.experiments import ExperimentRow
from engine.library.tables.models import ModelRow
from engine.library.tables.profiles import ProfileRow
from engine.library.tables.saes import AttachSetRow, LabelRow, SaeRow
from engine.library.tables.state import StateRow

__all__ = [
    "AttachSetRow",
    "Base",
    "CircuitRow",
    "ClaimRow",
    "ExperimentRow",
    "LabelRow",
    "ModelRow",
    "ProfileRow",
    "SaeRow",
    "StateRow",
    "UtcDateTime",
    "utc_now",
]

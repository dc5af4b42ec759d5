"""Records (comparisons, sweeps, contrasts): kept, found, removed, and written out for people and programs.

May import: every room of the engine. Data comes in as calls from a face and goes out as library rows, texts and events.
"""

from __future__ import annotations

from engine.actions.experiments.actions import ExperimentActions

__all__ = ["ExperimentActions"]

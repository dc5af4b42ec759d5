"""What a sweep may be refused with, beside the errors of the rooms below."""

from __future__ import annotations

from engine.errors import MillmError


class SweepRunning(MillmError):
    """A sweep is under way, and one runs at a time."""

    code = "sweep_running"

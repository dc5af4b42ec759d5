"""Sweeping the dial: the same prompts at several intensities, with measures of topic and fluency.

May import: every room of the engine below ``actions``, and ``actions.saes`` for its readings. Settings come in and
results go out as frozen values; what steers live is never touched.
"""

from __future__ import annotations

from engine.actions.sweeping.actions import SweepActions

__all__ = ["SweepActions"]

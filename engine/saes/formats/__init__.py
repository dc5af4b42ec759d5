"""Source formats: one file each, told apart by the tensors and settings in the files, never by their names.

May import: ``engine.saes`` and ``engine.errors``. Paths come in; :class:`Detected` and :class:`engine.saes.sae.Sae`
go out. A new format is a module with ``FORMAT``, ``LABEL``, ``sniff`` and ``describe``, and a line in
``detection.FORMATS``.
"""

from __future__ import annotations

from engine.saes.formats.detection import FORMATS, Detected, detect, estimate_bytes
from engine.saes.formats.loading import load_detected, load_sae

__all__ = ["FORMATS", "Detected", "detect", "estimate_bytes", "load_detected", "load_sae"]

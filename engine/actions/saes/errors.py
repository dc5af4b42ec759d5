"""Typed errors of what is done with SAEs. Codes are protocol; the server maps them to statuses."""

from __future__ import annotations

from engine.errors import MillmError
from engine.saes.errors import SaeLoadFailed


class SaeFilesDamaged(SaeLoadFailed):
    """The files given to an import are damaged, cut or hostile. The same code as a failed load, but the caller's."""


class SaeAlreadyAttached(MillmError):
    """The SAE is attached: at that layer already, or it was to be removed. ``details['layers']`` says where."""

    code = "sae_already_attached"

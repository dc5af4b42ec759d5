"""Typed errors of the SAE library. Codes are protocol; the server maps them to statuses."""

from __future__ import annotations

from engine.errors import MillmError


class SaeFormatUnknown(MillmError):
    """No known format fits the files; ``details`` list the files looked at and what is missing."""

    code = "sae_format_unknown"


class SaeLoadFailed(MillmError):
    """The format is known, but a file is damaged, incomplete, unsafe or contradicts itself."""

    code = "sae_load_failed"


class SaeNotSteerable(MillmError):
    """What the files hold is recognised, but it cannot steer or read a block's output; the message names it."""

    code = "sae_not_steerable"


class SaeIncompatible(MillmError):
    """The SAE does not fit the model or the layer it is to be attached to; ``details`` hold errors and warnings."""

    code = "sae_incompatible"


class InvalidFeatureIndex(MillmError):
    """A feature index is outside the SAE; ``details`` hold the index and the number of features."""

    code = "invalid_feature_index"

"""Typed errors of what the steering work keeps on disk. Codes are protocol; the server maps them to statuses."""

from __future__ import annotations

from engine.errors import MillmError


class SaeNotFound(MillmError):
    """No SAE of that id is in the library."""

    code = "sae_not_found"


class SaeAlreadyExists(MillmError):
    """The library has an SAE under that id; ``details['existing_sae_id']`` names it."""

    code = "sae_already_exists"


class ProfileNotFound(MillmError):
    """No profile of that name or id is in the library."""

    code = "profile_not_found"


class ProfileAlreadyExists(MillmError):
    """A profile or cluster has that name, and renaming was not asked for or found no free name."""

    code = "profile_already_exists"


class CircuitNotFound(MillmError):
    """No circuit of that id is in the library."""

    code = "circuit_not_found"


class CircuitAlreadyExists(MillmError):
    """A circuit has that name, and renaming was not asked for or found no free name."""

    code = "circuit_already_exists"


class ClaimConflict(MillmError):
    """Another circuit holds a layer that this one needs.

    ``details``: ``contended_layers``, ``incumbent`` and ``all_incumbents`` (``{id, name}``), ``requested``,
    ``colliding_keys`` (``{layer, feature_idx, incumbent}``, an id there) and ``overridable``, which is False where
    both steer the same feature.
    """

    code = "circuit_layer_contention"

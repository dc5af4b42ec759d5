"""How long names and texts may be, and which names are tried when one is taken. Knows no database."""

from __future__ import annotations

PROFILE_NAME_LIMIT = 100
CLUSTER_NAME_LIMIT = 120
CIRCUIT_NAME_LIMIT = 200
SET_NAME_LIMIT = 100
DESCRIPTION_LIMIT = 500
"""Characters of a profile's description."""
NARRATIVE_LIMIT = 10_000
"""Characters of what a cluster or a circuit says of itself."""
ID_LIMIT = 100
"""Characters of the id of an SAE or a circuit."""

MAX_RENAMES = 50
"""Other names tried for one that is taken."""
LONGEST_SUFFIX = len(f" ({MAX_RENAMES + 1})")
"""Characters that a rename may add."""


def candidate_names(wanted: str, *, limit: int) -> list[str]:
    """``wanted`` itself, then with " (2)", " (3)" … behind it: 51 names in the order they are tried.

    A name too long for its suffix is cut, so that none has more than ``limit`` characters.
    """
    names = [wanted]
    for number in range(2, MAX_RENAMES + 2):
        suffix = f" ({number})"
        names.append(wanted[: limit - len(suffix)].rstrip() + suffix)
    return names

"""How long names may be, and which ones are tried when one is taken. Knows no database."""

from __future__ import annotations

PROFILE_NAME_LIMIT = 100
CLUSTER_NAME_LIMIT = 120
CIRCUIT_NAME_LIMIT = 200

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

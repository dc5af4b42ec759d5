"""One repository per aggregate: the only code that reads and writes rows.

May import: ``engine.library.tables`` and below. Frozen values come in, frozen records go out; each call is one short
transaction.
"""

from __future__ import annotations

LARGEST_ID = 2**63 - 1
"""SQLite's largest integer; a larger id from the wire is simply not there."""


def may_exist(row_id: int) -> bool:
    """Whether an id of this size can be in the database at all."""
    return 0 < row_id <= LARGEST_ID


def is_storable(text: str) -> bool:
    """Whether SQLite can hold ``text``: lone surrogates, as broken JSON escapes give them, have no UTF-8 form."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def storable(text: str) -> str:
    """``text`` with lone surrogates replaced by U+FFFD."""
    # Written out as UTF-16 a pair split over two escapes becomes one character again; what is left alone is replaced.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

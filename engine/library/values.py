"""What the repositories ask of values before they store them, and what they make of text no database can hold."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import InstrumentedAttribute, Session

from engine.errors import InvalidParameter
from engine.library.names import candidate_names
from engine.library.rows import Base

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


def values_of(of: object, names: Collection[str]) -> dict[str, Any]:
    """The attributes of a row or record that are called so."""
    return {name: getattr(of, name) for name in names}


def fresh_id(session: Session, row: type[Base], prefix: str) -> str:
    """An id that no row has: ``prefix`` and twelve hex digits. Ask inside the transaction that inserts it."""
    while True:
        candidate = f"{prefix}{secrets.token_hex(6)}"
        if session.get(row, candidate) is None:
            return candidate


def free_name(session: Session, column: InstrumentedAttribute[str], wanted: str, *, limit: int) -> str | None:
    """The first of :func:`candidate_names` that no row has in ``column``, or None. Ask inside the transaction that
    takes it.
    """
    candidates = candidate_names(wanted, limit=limit)
    taken = set(session.scalars(select(column).where(column.in_(candidates))))
    return next((name for name in candidates if name not in taken), None)


def refuse_unknown(changes: Collection[str], allowed: Collection[str], what: str) -> None:
    """TypeError when ``changes`` names a field that does not exist or is not the caller's to set."""
    unknown = sorted(set(changes) - set(allowed))
    if unknown:
        raise TypeError(f"{what} has no field to set called {', '.join(unknown)}")


def columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` as columns take them: lone surrogates replaced, tuples as lists, figures that are not finite as None.

    TypeError for a list or mapping that is not JSON.
    """
    return {name: _column(value) for name, value in values.items()}


def _column(value: Any) -> Any:
    if type(value) is str:  # not the words of an enum
        return storable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, tuple):
        value = [dict(item) if isinstance(item, Mapping) else item for item in value]
    elif isinstance(value, Mapping):
        value = dict(value)
    if isinstance(value, list | dict):
        json.dumps(value)  # so that what cannot be stored fails here, as itself
    return value


def check_text(value: object, param: str, *, most: int, least: int = 0) -> None:
    """Refuse what is no text of ``least`` to ``most`` characters with :class:`InvalidParameter`."""
    if not isinstance(value, str) or not least <= len(value) <= most or (least and not value.strip()):
        wanted = f"{least} to {most}" if least else f"at most {most}"
        raise InvalidParameter(f"{param} is a text of {wanted} characters.", param=param)


def check_verbatim(value: object, param: str) -> None:
    """Refuse a text that cannot be stored exactly as it is with :class:`InvalidParameter`."""
    if not isinstance(value, str) or not is_storable(value):
        raise InvalidParameter(f"{param} holds characters that are not Unicode text.", param=param)


def check_whole(value: object, param: str) -> None:
    """Refuse what is no whole number from 0 that the database can hold with :class:`InvalidParameter`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST_ID:
        raise InvalidParameter(f"{param} is a whole number from 0, not {str(value)[:40]}.", param=param)


def finite(value: object, param: str) -> float:
    """``value`` as a float; :class:`InvalidParameter` when it is no finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise InvalidParameter(f"{param} is a finite number, not {str(value)[:40]}.", param=param)

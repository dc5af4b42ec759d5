"""The management API under ``/api``, and what belongs to no other: paths and errors in ``{success, data, error}``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.errors import MillmError
from engine.public.documents import DocumentRefused
from engine.public.library import ClaimConflict
from engine.public.saes import SaeFilesDamaged
from engine.public.steering import (
    AmbiguousActiveCircuit,
    CircuitLayerContention,
    NoActiveCircuit,
    NoActiveCluster,
    UnvalidatedCircuit,
)
from server.dialect import Dialect
from server.errors import ErrorSpec, message_of, spec_of

if TYPE_CHECKING:
    from quart import Quart

    from server.context import ServerContext

WELL_FORMED_REFUSALS: tuple[type[MillmError], ...] = (
    DocumentRefused,
    UnvalidatedCircuit,
    CircuitLayerContention,
    ClaimConflict,
    NoActiveCluster,
    NoActiveCircuit,
    AmbiguousActiveCircuit,
)
"""What is answered with status 200 and ``success: false``: the call was right, and what it asks is refused.

Types, not codes: a document's ``validation_error`` is one, that of a request's own field is not.
"""


class Management(Dialect):
    """Everything the program can do."""

    roots = ("/api",)
    error_schema = "ApiError"
    lists_reading = False
    unreadable_is_422 = True

    def register(self, app: Quart, context: ServerContext) -> None:
        """As in the base."""
        from server.management.routes import register

        register(app, context)

    def status(self, error: MillmError, spec: ErrorSpec) -> int:
        """As in the base; some codes have another one here."""
        if isinstance(error, WELL_FORMED_REFUSALS):
            return 200
        if isinstance(error, SaeFilesDamaged):
            # Reading an attached SAE that fails is our failure; a file somebody asked us to import is theirs.
            return 400
        return spec.status if spec.api_status is None else spec.api_status

    def code(self, error: MillmError) -> str:
        """As in the base; some codes are another here, in the header as in the body."""
        return spec_of(error).api_code or error.code

    def envelope(self, error: MillmError, *, while_generating: bool = False) -> dict[str, Any]:
        """As in the base."""
        return api_envelope(error)


def api_envelope(error: MillmError) -> dict[str, Any]:
    """The management error object; codes are upper-case there. A ``VALIDATION_ERROR`` always lists its errors."""
    details = json_safe(error.details)
    code = spec_of(error).api_code or error.code
    if code == "validation_error":
        details.setdefault("errors", [{"param": error.param, "message": error.message}])
    if error.param is not None:
        details.setdefault("param", error.param)
    if error.remedy is not None:
        details.setdefault("remedy", error.remedy)
    return {
        "success": False,
        "data": None,
        "error": {"code": code.upper(), "message": message_of(error), "details": details},
    }


def json_safe(details: Mapping[str, Any]) -> dict[str, Any]:
    """``details`` with anything JSON cannot hold written as text: NaN and infinities too, which Python would write."""
    safe: dict[str, Any] = json.loads(json.dumps(dict(details), default=str), parse_constant=str)
    return safe

"""An API as its clients know it: which paths are its own, and the shape in which it says no."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from engine.errors import MillmError
from server.errors import ErrorSpec, InvalidApiKey, retry_after_of, spec_of
from server.headers import ERROR_CODE

if TYPE_CHECKING:
    from quart import Quart

    from server.context import ServerContext


@dataclass(frozen=True)
class ErrorAnswer:
    """An error ready to be sent: status, JSON body and the headers that go with it."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]


class Dialect(ABC):
    """One API. Its errors are those of the one table; status, body and headers are made here.

    Attributes:
        roots: Paths that are its own, with all below them; of several dialects' the longest counts. So a path belongs
            to one by its name alone, whatever is wrong with the request.
        error_schema: The name of its error in the API's description.
        tag: What the API's description files its routes under; None: by their path.
        lists_reading: Whether requests that only read are listed among the requests of late.
        unreadable_is_422: Whether a body or query that is not as declared can be answered with 422.
    """

    roots: ClassVar[tuple[str, ...]]
    error_schema: ClassVar[str]
    tag: ClassVar[str | None] = None
    lists_reading: ClassVar[bool] = True
    unreadable_is_422: ClassVar[bool] = False

    @abstractmethod
    def register(self, app: Quart, context: ServerContext) -> None:
        """Add its routes to ``app``."""

    @abstractmethod
    def envelope(self, error: MillmError, *, while_generating: bool = False) -> dict[str, Any]:
        """The body that tells of ``error``."""

    def status(self, error: MillmError, spec: ErrorSpec) -> int:
        """The status that goes with it; ``spec`` is its row of the table."""
        return spec.status

    def code(self, error: MillmError) -> str:
        """What a header calls it, in lower case; not every API's body has room for a code."""
        return error.code

    def answer(self, error: MillmError, *, while_generating: bool = False) -> ErrorAnswer:
        """``error``, ready to be sent."""
        status = self.status(error, spec_of(error))
        headers = {ERROR_CODE: self.code(error)}
        retry_after = retry_after_of(error, status)
        if retry_after is not None:
            headers["Retry-After"] = str(retry_after)
        if error.code == InvalidApiKey.code:
            # Of our own key only: a hub that wants a token is no reason for a client to show ours anew.
            headers["WWW-Authenticate"] = "Bearer"
        return ErrorAnswer(status, self.envelope(error, while_generating=while_generating), headers)

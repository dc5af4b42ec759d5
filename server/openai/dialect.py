"""OpenAI's API under ``/v1``, and what belongs to it: its paths and its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.errors import MillmError
from server.dialect import Dialect
from server.errors import GENERIC_MESSAGE, error_type, message_of, retry_after_of, spec_of

if TYPE_CHECKING:
    from quart import Quart

    from server.context import ServerContext

STREAMING_ERROR = {"error": {"message": GENERIC_MESSAGE, "type": "server_error", "code": "streaming_error"}}
"""The event that tells of a failure nobody foresaw."""


class OpenAI(Dialect):
    """Chat and text completions, embeddings, models and tokens, and what llama.cpp's server tells of its state."""

    roots = ("/v1", "/props", "/slots")
    error_schema = "OpenAIError"
    tag = "Models and answers"

    def register(self, app: Quart, context: ServerContext) -> None:
        """As in the base."""
        from server.openai.routes import register

        register(app, context)

    def envelope(self, error: MillmError, *, while_generating: bool = False) -> dict[str, Any]:
        """OpenAI's error object; all four keys are always there."""
        return {
            "error": {
                "message": message_of(error),
                "type": error_type(error, while_generating=while_generating),
                "param": error.param,
                "code": error.code,
            }
        }


def stream_error_event(error: MillmError) -> dict[str, Any]:
    """The error object of an event inside a stream that has begun; a would-be 503 says when to come back."""
    event: dict[str, Any] = {
        "message": message_of(error),
        "type": error_type(error, while_generating=True),
        "code": error.code,
    }
    retry_after = retry_after_of(error, spec_of(error).status)
    if retry_after is not None:
        event["retry_after"] = retry_after
    return {"error": event}

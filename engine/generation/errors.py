"""Refusals and failures of scoring, embeddings and structured output, and what an unforeseen failure becomes."""

from __future__ import annotations

import logging

from engine.errors import GenerationFailed, MillmError

log = logging.getLogger(__name__)


class InvalidScoringRequest(MillmError):
    """A scoring request names a token outside the vocabulary, or a prompt with no token in it."""

    code = "invalid_scoring_request"


class EmbeddingVectorInvalid(MillmError):
    """An embedding has no finite values or no length, so it says nothing about its text."""

    code = "embedding_vector_invalid"


class ResponseFormatUnsupported(MillmError):
    """The form asked for cannot be enforced; ``details['keywords']`` lists keywords with their JSON pointers."""

    code = "response_format_unsupported"


class ToolSchemaUnsupported(MillmError):
    """A strict tool's schema cannot be enforced whole; ``details['keywords']`` lists keywords and their pointers."""

    code = "tool_schema_unsupported"


class UnsupportedTool(MillmError):
    """A tool that a server would have to run, where nothing else can be called."""

    code = "unsupported_tool"


class FimUnsupported(MillmError):
    """The model's vocabulary has no marks for a gap in a text, so that none can be filled in."""

    code = "fim_unsupported"


class ConstrainedOutputInvalid(MillmError):
    """A document the model completed under a constraint is not what was asked for."""

    code = "constrained_output_invalid"


def as_failure(error: Exception, doing: str) -> MillmError:
    """``error`` itself where it was raised on purpose; else a failure of ``doing``, with its words, and logged."""
    if isinstance(error, MillmError):
        return error
    log.error("a request failed", exc_info=error)
    return GenerationFailed(
        f"{doing} failed: {type(error).__name__}: {error}",
        remedy="The log file has the full report.",
    )

"""Refusals and failures of scoring, embeddings and structured output."""

from __future__ import annotations

from engine.errors import MillmError


class InvalidScoringRequest(MillmError):
    """A scoring request names a token outside the vocabulary, or a prompt with no token in it."""

    code = "invalid_scoring_request"


class EmbeddingVectorInvalid(MillmError):
    """An embedding has no finite values or no length, so it says nothing about its text."""

    code = "embedding_vector_invalid"


class ResponseFormatUnsupported(MillmError):
    """The form asked for cannot be enforced; ``details['keywords']`` lists keywords with their JSON pointers."""

    code = "response_format_unsupported"


class ConstrainedOutputInvalid(MillmError):
    """A document the model completed under a constraint is not what was asked for."""

    code = "constrained_output_invalid"

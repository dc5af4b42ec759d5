"""Refusals of documents.

Everything under :class:`DocumentRefused` is a well-formed call with an unusable document: the management API answers it
with status 200 and ``success: false``.
"""

from __future__ import annotations

from engine.errors import MillmError


class DocumentRefused(MillmError):
    """Base of what an import says about a document; ``details['errors']`` holds ``{pointer, message}`` objects."""

    code = "validation_error"


class DocumentInvalid(DocumentRefused):
    """The document is no JSON, or breaks the schema; at most ten problems are listed, the first is in the message."""

    code = "validation_error"


class DocumentTooLarge(DocumentRefused):
    """The document is longer than an import reads."""

    code = "payload_too_large"


class UnknownKind(DocumentRefused):
    """The document's ``kind`` is missing or is not one this import reads."""

    code = "unknown_kind"


class IsClusterDocument(DocumentRefused):
    """A cluster or a bundle was given to the profile import."""

    code = "is_cluster_document"


class ClusterNotFound(MillmError):
    """No cluster of that name or id is in the library."""

    code = "cluster_not_found"

"""Profile, cluster and circuit documents as the faces meet them: evidence in words, verdicts, limits."""

from engine.documents.binding import Verdict
from engine.documents.circuit import CircuitDocument, Edge, Node
from engine.documents.errors import DocumentRefused
from engine.documents.evidence import (
    PERSISTENCE_SENTENCE,
    TESTED_ELSEWHERE,
    TOP_RUNG,
    evidence_words,
    is_validated,
    rung_language,
    rung_next_step,
    short_evidence_words,
)
from engine.documents.fields import GREATEST_INTENSITY, LEAST_INTENSITY, MAX_INDEX
from engine.documents.loading import MAX_DOCUMENT_BYTES, DocumentKind, check_size, decode, kind_of, require_kind
from engine.documents.members import MAX_MEMBERS, Member
from engine.documents.ranges import STEERING_RANGE, Envelope, Range
from engine.documents.verdicts import ImportStatus, LayerVerdict

__all__ = [
    "GREATEST_INTENSITY",
    "LEAST_INTENSITY",
    "MAX_DOCUMENT_BYTES",
    "MAX_INDEX",
    "MAX_MEMBERS",
    "PERSISTENCE_SENTENCE",
    "STEERING_RANGE",
    "TESTED_ELSEWHERE",
    "TOP_RUNG",
    "CircuitDocument",
    "DocumentKind",
    "DocumentRefused",
    "Edge",
    "Envelope",
    "ImportStatus",
    "LayerVerdict",
    "Member",
    "Node",
    "Range",
    "Verdict",
    "check_size",
    "decode",
    "evidence_words",
    "is_validated",
    "kind_of",
    "require_kind",
    "rung_language",
    "rung_next_step",
    "short_evidence_words",
]

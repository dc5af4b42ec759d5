"""Fetching models and SAEs: what is looked at before, and what is under way."""

from engine.actions.downloading.finding import LONGEST_QUERY, MOST_FOUND, PAIRS, UNTRIED, FetchedPair, KnownPair
from engine.actions.downloading.models import DownloadRequest
from engine.actions.downloading.preview import MemoryTerms, ModelPreview
from engine.actions.downloading.saes import MAX_FILE_PATH, HubSaeFile, SaePreview, SaeStart
from engine.actions.downloading.transfer import CANCELLED

__all__ = [
    "CANCELLED",
    "LONGEST_QUERY",
    "MAX_FILE_PATH",
    "MOST_FOUND",
    "PAIRS",
    "UNTRIED",
    "DownloadRequest",
    "FetchedPair",
    "HubSaeFile",
    "KnownPair",
    "MemoryTerms",
    "ModelPreview",
    "SaePreview",
    "SaeStart",
]

"""What the management routes answer, where the engine's own types do not say it by their fields.

Each type here has the keys that the ``as_dict`` of the engine's type of the same purpose gives. The routes do not use
them: the API's description is made from them, and the tests hold every answer to it.
"""

from __future__ import annotations

from typing import TypedDict

from engine.library.records import AttachItem, FeatureLabel

# --- SAEs -------------------------------------------------------------------------------------------------------------


class LabelsAnswer(TypedDict):
    """Labels of an SAE's features that fit; ``total`` counts all it has."""

    sae_id: str
    labels: list[FeatureLabel]
    total: int


class SavedSetAnswer(TypedDict):
    """A set of SAEs under a name."""

    name: str
    saes: list[AttachItem]
    created_at: str


class SavedSetsAnswer(TypedDict):
    """All of them."""

    sets: list[SavedSetAnswer]
    total: int


class DeletedSetAnswer(TypedDict):
    """A saved set that is gone."""

    name: str
    deleted: bool

"""Profile documents: both shapes in circulation are read, one is written, and unknown keys come back out.

The flat shape has ``model_id``, ``sae_id``, ``layer`` and ``steering``; the nested one ``model``, ``sae`` and
``features``. A document may carry both, as long as they say the same.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from engine.documents.binding import SaeReference
from engine.documents.errors import IsClusterDocument, UnknownKind
from engine.documents.fields import MAX_INDEX, Anything, Index, Open, as_number, as_whole
from engine.documents.loading import DocumentKind, kind_of
from engine.documents.problems import DocumentProblem, json_pointer, refusal, validation_problems
from engine.library.names import DESCRIPTION_LIMIT, PROFILE_NAME_LIMIT
from engine.library.records import PROFILE_FIELDS, ProfileFields

VERSION = "1.0"
_WRITTEN = ("version", *PROFILE_FIELDS, "created_at", "updated_at")
_INDEX = re.compile(r"[0-9]{1,10}")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def _model_name(value: object) -> object:
    number = as_whole(value)
    return value if number is None else str(number)


def _version(value: object) -> object:
    if value != VERSION:
        raise PydanticCustomError("version", f"must be '{VERSION}'")
    return value


_Text = Annotated[str, Field(max_length=255)]


class _ModelPart(Open):
    repo_id: _Text | None = None


class _SaePart(Open):
    repo_id: _Text | None = None
    layer: Index | None = None


class _Profile(Open):
    version: Annotated[str, BeforeValidator(_version)] | None = None
    name: Annotated[str, Field(min_length=1, max_length=PROFILE_NAME_LIMIT)]
    description: Annotated[str, Field(max_length=DESCRIPTION_LIMIT)] | None = None
    model_id: Annotated[_Text, BeforeValidator(_model_name)] | None = None
    sae_id: _Text | None = None
    layer: Index | None = None
    steering: dict[str, Anything] | None = None
    model: _ModelPart | None = None
    sae: _SaePart | None = None
    features: list[Anything] | None = None


@dataclass(frozen=True)
class ProfileDocument(ProfileFields):
    """A valid profile; the indices of ``steering`` rise.

    ``extras`` are the keys an export has no field for; store them and give them back to :func:`profile_document`.
    """

    extras: dict[str, Any] = field(default_factory=dict)

    @property
    def reference(self) -> SaeReference:
        """The SAE it was made with."""
        return SaeReference(self.sae_id, self.layer)


def read_profile(raw: dict[str, Any]) -> ProfileDocument:
    """The profile that ``raw`` holds.

    Raises :class:`IsClusterDocument` for clusters and bundles, :class:`UnknownKind` for circuits and
    :class:`DocumentInvalid`; entries that are no index and strength are in ``details['invalid_keys']``.
    """
    _refuse_other_kinds(raw)
    try:
        profile = _Profile.model_validate(raw)
    except ValidationError as error:
        raise refusal("profile document", validation_problems(error)) from None
    if profile.steering is None and profile.features is None:
        raise refusal("profile document", [DocumentProblem("/steering", "is required")])
    flat = _strengths([((key,), key, value) for key, value in (profile.steering or {}).items()], "steering")
    listed = _strengths(_feature_entries(profile.features or []), "features")
    if profile.steering is not None and profile.features is not None and flat != listed:
        raise refusal("profile document", [DocumentProblem("/features", "says something else than /steering")])
    nested_sae = profile.sae or _SaePart()
    in_either_shape = {
        "model_id": profile.model_id or (profile.model.repo_id if profile.model else None),
        "sae_id": profile.sae_id or (nested_sae.repo_id.replace("/", "--") if nested_sae.repo_id else None),
        "layer": profile.layer if profile.layer is not None else nested_sae.layer,
        "steering": flat if profile.steering is not None else listed,
    }
    return ProfileDocument(
        **{name: getattr(profile, name) for name in PROFILE_FIELDS} | in_either_shape,
        extras={key: copy.deepcopy(value) for key, value in raw.items() if key not in _WRITTEN},
    )


def profile_document(
    profile: ProfileFields,
    *,
    created_at: str | None,
    updated_at: str | None,
    extras: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The export of a profile; times are ISO 8601. ``extras`` are what its import kept, brought up to date."""
    kept = copy.deepcopy(dict(extras or {}))
    if isinstance(kept.get("features"), list):
        kept["features"] = _refreshed(kept["features"], profile.steering)
    return {
        "version": VERSION,
        **{name: getattr(profile, name) for name in PROFILE_FIELDS},
        "steering": {str(index): profile.steering[index] for index in sorted(profile.steering)},
        "created_at": created_at,
        "updated_at": updated_at,
        **{key: value for key, value in kept.items() if key not in _WRITTEN},
    }


def _refuse_other_kinds(raw: dict[str, Any]) -> None:
    kind = kind_of(raw)
    if kind in (DocumentKind.CLUSTER, DocumentKind.BUNDLE):
        raise IsClusterDocument(
            "This is a cluster document; the profile import reads profiles.",
            details={"errors": [{"pointer": "/kind", "message": "names a cluster document"}]},
            remedy="Import it as a cluster.",
        )
    named = raw.get("kind")
    if isinstance(named, str) and named.startswith("mistudio."):
        raise UnknownKind(
            f"This document has the kind {json.dumps(named)[:80]}; the profile import reads profiles.",
            details={"errors": [{"pointer": "/kind", "message": "does not name a profile"}]},
            remedy="Import it with the import for its own kind.",
        )


def _feature_entries(features: list[Any]) -> list[tuple[tuple[str | int, ...], Any, Any]]:
    entries: list[tuple[tuple[str | int, ...], Any, Any]] = []
    for position, entry in enumerate(features):
        if isinstance(entry, dict) and "index" in entry and "strength" in entry:
            entries.append(((position,), entry["index"], entry["strength"]))
        else:
            entries.append(((position,), entry, None))
    return entries


def _strengths(entries: list[tuple[tuple[str | int, ...], Any, Any]], under: str) -> dict[int, float]:
    """Each entry is (place, index, strength) as they came; all that cannot be read are refused together."""
    found: dict[int, float] = {}
    problems, invalid_keys = [], []
    for place, key, value in entries:
        index, strength = _as_index(key), _as_strength(value)
        if index is not None and strength is not None and index not in found:
            found[index] = strength
            continue
        invalid_keys.append(key if isinstance(key, str) else json.dumps(key)[:80])
        message = "must be a feature index with a finite strength"
        if index is not None and index in found:
            message = f"names feature {index} a second time"
        problems.append(DocumentProblem(json_pointer([under, *place]), message))
    if problems:
        raise refusal("profile document", problems, details={"invalid_keys": invalid_keys})
    return dict(sorted(found.items()))


def _as_index(key: object) -> int | None:
    index = int(key) if isinstance(key, str) and _INDEX.fullmatch(key) else as_whole(key)
    return index if index is not None and 0 <= index <= MAX_INDEX else None


def _as_strength(value: object) -> float | None:
    if isinstance(value, str):
        return as_number(float(value)) if _DECIMAL.fullmatch(value.strip()) else None
    return as_number(value)


def _refreshed(features: list[Any], steering: Mapping[int, float]) -> list[dict[str, Any]]:
    """The list an import had, with the strengths of now: gone features left out, new ones behind."""
    rest = dict(steering)
    fresh = []
    for entry in features:
        index = _as_index(entry.get("index")) if isinstance(entry, dict) else None
        if index is not None and index in rest:
            fresh.append({**entry, "strength": rest.pop(index)})
    return fresh + [{"index": index, "strength": rest[index]} for index in sorted(rest)]

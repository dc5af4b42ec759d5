"""Bundles: up to fifty cluster definitions in one document, each read on its own so that one bad one stops no other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from engine.documents.cluster import ClusterDocument, read_cluster
from engine.documents.errors import DocumentRefused
from engine.documents.fields import Anything, Open
from engine.documents.loading import DocumentKind, require_kind
from engine.documents.members import SchemaVersion
from engine.documents.problems import DocumentProblem, json_pointer, refusal, validation_problems

MAX_DEFINITIONS = 50


class _Bundle(Open):
    kind: Literal["mistudio.cluster-bundle"]
    schema_version: SchemaVersion = "1"
    definitions: Annotated[list[Anything], Field(min_length=1, max_length=MAX_DEFINITIONS)]


@dataclass(frozen=True)
class BundleItem:
    """One definition: what it is called, and either the document or why it was refused."""

    name: str
    document: ClusterDocument | None
    error: DocumentRefused | None = None


def read_bundle(raw: dict[str, Any]) -> tuple[BundleItem, ...]:
    """The definitions of the bundle ``raw``, in order; raises :class:`DocumentInvalid` when the whole is bad."""
    try:
        bundle = _Bundle.model_validate(raw)
    except ValidationError as error:
        raise refusal("cluster bundle", validation_problems(error)) from None
    return tuple(_read_item(position, each) for position, each in enumerate(bundle.definitions))


def _read_item(position: int, raw: Any) -> BundleItem:
    place = ("definitions", position)
    name = raw.get("name") if isinstance(raw, dict) else None
    shown = name if isinstance(name, str) and name else f"definition {position + 1}"
    try:
        if not isinstance(raw, dict):
            raise refusal("cluster document", [DocumentProblem(json_pointer(place), "must be an object")])
        if "kind" in raw:
            require_kind(raw, DocumentKind.CLUSTER, pointer=json_pointer([*place, "kind"]))
        return BundleItem(shown, read_cluster(raw, prefix=place))
    except DocumentRefused as error:
        return BundleItem(shown, None, error)

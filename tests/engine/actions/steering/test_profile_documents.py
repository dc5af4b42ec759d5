"""Profiles as documents: both shapes come in, one goes out, nothing is lost on the way."""

from __future__ import annotations

import pytest

from engine.documents.errors import DocumentInvalid, DocumentTooLarge, IsClusterDocument, UnknownKind
from engine.errors import InvalidParameter, MillmError
from engine.library.database import Library
from engine.library.errors import ProfileAlreadyExists
from tests.engine.actions.steering.stage import SIX, Stage, circuit, cluster, make_stage, raw


@pytest.fixture
def stage(library: Library) -> Stage:
    return make_stage(library, SIX)


def test_an_export_comes_back_in(stage: Stage) -> None:
    profile = stage.profiles.create(
        "calm", steering={42: -3.0, 7: 1.5}, description="Slow.", sae_id="sae_a", layer=6, model_id="tiny"
    ).record.id
    document = stage.profiles.export(profile)
    record = stage.profiles.get(profile).record
    assert document == {
        "version": "1.0",
        "name": "calm",
        "description": "Slow.",
        "model_id": "tiny",
        "sae_id": "sae_a",
        "layer": 6,
        "steering": {"7": 1.5, "42": -3.0},
        "created_at": record.created_at.isoformat(),
        "updated_at": record.updated_at.isoformat(),
    }
    with pytest.raises(ProfileAlreadyExists):
        stage.profiles.import_document(raw(document))
    again = stage.profiles.import_document(raw(document), on_conflict="rename").record
    assert again.name == "calm (2)"
    assert {**stage.profiles.export(again.id), "name": "calm", "created_at": 0, "updated_at": 0} == {
        **document,
        "created_at": 0,
        "updated_at": 0,
    }


def test_the_nested_shape_is_read_and_what_has_no_field_comes_back_out(stage: Stage) -> None:
    document = {
        "name": "calm",
        "model": {"repo_id": "acme/tiny", "quantization": "Q8"},
        "sae": {"repo_id": "acme/saes", "layer": 6},
        "features": [{"index": 7, "strength": 1.5, "note": "x"}, {"index": 3, "strength": "2"}],
        "exported_at": "2026-01-02",
        "x": {"deep": [None]},
    }
    record = stage.profiles.import_document(raw(document)).record
    assert (record.model_id, record.sae_id, record.layer) == ("acme/tiny", "acme--saes", 6)
    assert dict(record.steering) == {7: 1.5, 3: 2.0}
    exported = stage.profiles.export(record.id)
    assert exported["steering"] == {"3": 2.0, "7": 1.5}
    assert exported["features"] == [{"index": 7, "strength": 1.5, "note": "x"}, {"index": 3, "strength": 2.0}]
    assert (exported["model"], exported["x"]) == (document["model"], document["x"])


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (raw(cluster()), IsClusterDocument),
        (raw(circuit()), UnknownKind),
        (raw({"name": "calm"}), DocumentInvalid),
        (b"{", DocumentInvalid),
        (raw({"name": "x" * 1_100_000, "steering": {}}), DocumentTooLarge),
    ],
)
def test_what_is_no_profile_is_refused(stage: Stage, body: bytes, error: type[MillmError]) -> None:
    with pytest.raises(error):
        stage.profiles.import_document(body)
    assert stage.profiles.list().profiles == ()


def test_unreadable_strengths_are_named(stage: Stage) -> None:
    with pytest.raises(DocumentInvalid) as caught:
        stage.profiles.import_document(raw({"name": "calm", "steering": {"7": 1, "x": 2, "8": True}}))
    assert caught.value.details["invalid_keys"] == ["x", "8"]
    with pytest.raises(InvalidParameter):
        stage.profiles.import_document(raw({"name": "calm", "steering": {}}), on_conflict="replace")


def test_a_cluster_is_exported_as_a_cluster(stage: Stage) -> None:
    item = stage.clusters.import_document(raw(cluster())).results[0]
    assert item.profile_id is not None
    with pytest.raises(IsClusterDocument):
        stage.profiles.export(item.profile_id)

"""Reading stored profiles: an index never means a feature of an SAE of another size."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from engine.documents.binding import AttachedSae
from engine.library.records import ProfileKind, ProfileRecord
from engine.saes.errors import InvalidFeatureIndex
from engine.steering.stored import read_stored
from engine.steering.targets import bound_for_request

NOW = datetime(2026, 11, 29, tzinfo=UTC)


def record(sae_id: str | None = "made-with") -> ProfileRecord:
    return ProfileRecord(
        id="prof_000000000000",
        name="calm",
        description=None,
        model_id=None,
        sae_id=sae_id,
        layer=6,
        steering={3: 5.0},
        is_active=False,
        source_kind=ProfileKind.MANUAL,
        intensity=1.0,
        sensing_enabled=False,
        cluster_meta=None,
        bound=True,
        warnings=(),
        hub_ref=None,
        extras={},
        created_at=NOW,
        updated_at=NOW,
    )


def test_a_profile_knows_the_size_of_the_sae_it_names() -> None:
    counts = {"made-with": 65536}
    assert read_stored(record(), counts.get).reference.n_features == 65536
    assert read_stored(record("gone"), counts.get).reference.n_features is None
    assert read_stored(record(None), counts.get).reference.n_features is None


def test_an_sae_of_another_size_at_the_layer_is_no_substitute() -> None:
    stored = read_stored(record(), {"made-with": 65536}.get)
    other = AttachedSae("other", 6, d_sae=16384, d_in=32)
    with pytest.raises(InvalidFeatureIndex):
        bound_for_request(stored.reference, [other], what="the profile 'calm'", param="profile")
    same_size = AttachedSae("other", 6, d_sae=65536, d_in=32)
    assert bound_for_request(stored.reference, [same_size], what="the profile 'calm'", param="profile") == same_size

"""Profiles and clusters."""

from __future__ import annotations

import re
from datetime import UTC

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from engine.errors import InvalidParameter
from engine.library.database import Library
from engine.library.errors import ProfileAlreadyExists, ProfileNotFound
from engine.library.profiles import ProfileRow
from engine.library.records import ProfileKind, ProfileRecord
from tests.engine.library.test_durability import together

DOCUMENT = (
    '{"kind": "mistudio.cluster-definition", "n": 1.50, "big": 123456789012345678901234567890,\n "ä": "\\ud83d"}  '
)


def cluster(name: str, **fields: object) -> ProfileRecord:
    return ProfileRecord(name, source_kind=ProfileKind.CLUSTER, cluster_meta=DOCUMENT, **fields)  # type: ignore[arg-type]


def test_a_profile_comes_back_as_it_was_stored(library: Library) -> None:
    stored = library.profiles.add(
        ProfileRecord(
            name="Hafen 🚢",
            description="Nautical wording.",
            model_id="3",
            sae_id="s" * 100,
            layer=9,
            steering={900: 0.1, 5: -12.5, 0: -0.0, 7: 3},
            intensity=0.4375,
            sensing_enabled=True,
            warnings=("one", "two"),
            extras={"author": {"name": "ä"}},
        )
    )
    assert re.fullmatch(r"prof_[0-9a-f]{12}", stored.id)
    found = library.profiles.get(stored.id)
    assert found == stored == library.profiles.by_name("Hafen 🚢")
    assert (found.name, found.description, found.model_id, found.layer) == ("Hafen 🚢", "Nautical wording.", "3", 9)
    assert found.sae_id == "s" * 100
    assert [f"{index}:{strength!r}" for index, strength in found.steering.items()] == [
        "900:0.1",
        "5:-12.5",
        "0:-0.0",
        "7:3.0",
    ]
    assert (found.source_kind, found.intensity, found.sensing_enabled) == (ProfileKind.MANUAL, 0.4375, True)
    assert (found.is_active, found.bound, found.cluster_meta, found.hub_ref) == (False, True, None, None)
    assert (found.warnings, found.extras) == (("one", "two"), {"author": {"name": "ä"}})
    assert found.created_at.tzinfo is UTC and found.created_at == found.updated_at


def test_a_clusters_document_is_kept_to_the_letter(library: Library) -> None:
    reference = {"repo_id": "acme/pack", "revision": None, "path": "a.cluster.json"}
    stored = library.profiles.add(cluster("c", bound=False, hub_ref=reference))
    found = library.profiles.get(stored.id)
    assert found is not None
    assert found.cluster_meta == DOCUMENT
    assert (found.source_kind, found.bound, found.hub_ref) == (ProfileKind.CLUSTER, False, reference)


def test_the_list_is_by_name_and_can_be_of_one_kind(library: Library) -> None:
    for name in ("b", "Äpfel", "C", "a"):
        library.profiles.add(ProfileRecord(name))
    library.profiles.add(cluster("B"))
    assert [profile.name for profile in library.profiles.list()] == ["a", "B", "b", "C", "Äpfel"]
    assert [profile.name for profile in library.profiles.list(ProfileKind.CLUSTER)] == ["B"]
    assert [profile.name for profile in library.profiles.list(ProfileKind.MANUAL)] == ["a", "b", "C", "Äpfel"]


def test_a_taken_name_is_refused(library: Library) -> None:
    first = library.profiles.add(ProfileRecord("a"))
    with pytest.raises(ProfileAlreadyExists) as caught:
        library.profiles.add(ProfileRecord("a", steering={1: 1.0}))
    assert caught.value.code == "profile_already_exists"
    assert caught.value.details == {"existing_profile_id": first.id, "existing_name": "a"}
    assert library.profiles.list() == [first]
    assert library.profiles.add(ProfileRecord("A")).name == "A"


def test_a_taken_name_gets_a_number_when_asked(library: Library) -> None:
    names = [library.profiles.add(ProfileRecord("a"), rename=True).name for _ in range(3)]
    assert names == ["a", "a (2)", "a (3)"]
    library.profiles.remove(library.profiles.by_name("a (2)").id)  # type: ignore[union-attr]
    assert library.profiles.add(cluster("a"), rename=True).name == "a (2)"
    # Cut, so that it keeps within the limit of its kind: 100 for profiles, 120 for clusters.
    long = "x" * 95 + "yyyyy"
    library.profiles.add(ProfileRecord(long))
    assert library.profiles.add(ProfileRecord(long), rename=True).name == "x" * 95 + "y (2)"
    library.profiles.add(cluster("z" * 120))
    assert library.profiles.add(cluster("z" * 120), rename=True).name == "z" * 116 + " (2)"


def test_fifty_other_names_are_tried(library: Library) -> None:
    for _ in range(51):
        last = library.profiles.add(ProfileRecord("a"), rename=True)
    assert last.name == "a (51)"
    with pytest.raises(ProfileAlreadyExists, match="50 names made from it"):
        library.profiles.add(ProfileRecord("a"), rename=True)
    assert len(library.profiles.list()) == 51


def test_profiles_added_at_once_get_different_names(library: Library) -> None:
    assert together(8, lambda _number: library.profiles.add(ProfileRecord("a"), rename=True)) == [None] * 8
    assert {profile.name for profile in library.profiles.list()} == {"a", *(f"a ({n})" for n in range(2, 9))}
    raised = together(8, lambda _number: library.profiles.add(ProfileRecord("b")))
    assert raised.count(None) == 1
    assert {type(error) for error in raised if error is not None} == {ProfileAlreadyExists}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"name": ""}, "name"),
        ({"name": " \n"}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": 5}, "name"),
        ({"description": "x" * 501}, "description"),
        ({"layer": -1}, "layer"),
        ({"layer": 2**63}, "layer"),
        ({"intensity": float("nan")}, "intensity"),
        ({"intensity": True}, "intensity"),
        ({"steering": {-1: 1.0}}, "steering"),
        ({"steering": {"1": 1.0}}, "steering"),
        ({"steering": {1: float("inf")}}, "steering.1"),
        ({"steering": {1: True}}, "steering.1"),
        ({"steering": {1: 10**400}}, "steering.1"),
        ({"steering": {1: "2"}}, "steering.1"),
    ],
)
def test_values_no_profile_can_have(library: Library, fields: dict[str, object], param: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        library.profiles.add(ProfileRecord(**{"name": "a", **fields}))  # type: ignore[arg-type]
    assert caught.value.param == param
    assert library.profiles.list() == []
    stored = library.profiles.add(ProfileRecord("a"))
    with pytest.raises(InvalidParameter):
        library.profiles.update(stored.id, **fields)
    assert library.profiles.get(stored.id) == stored


def test_a_document_that_cannot_be_kept_to_the_letter_is_refused(library: Library) -> None:
    with pytest.raises(InvalidParameter) as caught:
        library.profiles.add(ProfileRecord("c", source_kind=ProfileKind.CLUSTER, cluster_meta='{"a": "\ud800"}'))
    assert caught.value.param == "cluster_meta"


def test_a_clusters_name_and_narrative_may_be_longer(library: Library) -> None:
    stored = library.profiles.add(cluster("x" * 120, description="y" * 10_000))
    assert (len(stored.name), len(stored.description or "")) == (120, 10_000)
    with pytest.raises(InvalidParameter):
        library.profiles.add(cluster("x" * 121))


def test_updating_keeps_what_is_not_named(library: Library) -> None:
    stored = library.profiles.add(ProfileRecord("a", description="d", steering={1: 1.0}, layer=3))
    changed = library.profiles.update(stored.id, name="b", steering={2: 5.0}, description=None)
    assert (changed.name, changed.description, changed.steering, changed.layer) == ("b", None, {2: 5.0}, 3)
    assert changed.created_at == stored.created_at and changed.updated_at >= stored.updated_at
    assert library.profiles.get(stored.id) == changed
    assert library.profiles.update(stored.id) == changed
    assert library.profiles.update(stored.id, name="b", warnings=("w",)).warnings == ("w",)
    library.profiles.add(ProfileRecord("taken"))
    with pytest.raises(ProfileAlreadyExists):
        library.profiles.update(stored.id, name="taken", layer=8)
    with pytest.raises(TypeError, match="called cluster_meta, is_active"):
        library.profiles.update(stored.id, is_active=True, cluster_meta="{}")
    assert library.profiles.get(stored.id).layer == 3  # type: ignore[union-attr]


def test_the_strengths_of_a_cluster_cannot_be_edited(library: Library) -> None:
    stored = library.profiles.add(cluster("c", steering={1: 1.0}))
    with pytest.raises(InvalidParameter) as caught:
        library.profiles.update(stored.id, name="d", steering={1: 2.0})
    assert caught.value.param == "steering"
    assert library.profiles.get(stored.id) == stored
    assert library.profiles.update(stored.id, intensity=0).intensity == 0.0


def test_at_most_one_is_active(library: Library) -> None:
    a, b = library.profiles.add(ProfileRecord("a")), library.profiles.add(ProfileRecord("b"))
    assert library.profiles.active() is None
    active = library.profiles.set_active(a.id)
    assert active is not None and active.is_active
    assert library.profiles.active() == active
    assert active.updated_at == a.updated_at  # an activation is no edit
    library.profiles.set_active(b.id)
    library.profiles.set_active(b.id)
    assert [(profile.name, profile.is_active) for profile in library.profiles.list()] == [("a", False), ("b", True)]
    assert library.profiles.set_active(None) is None
    assert library.profiles.active() is None


def test_an_activation_binds_in_the_same_step(library: Library) -> None:
    old = library.profiles.add(ProfileRecord("old"))
    library.profiles.set_active(old.id)
    unbound = library.profiles.add(cluster("c", bound=False))
    with pytest.raises(InvalidParameter):
        library.profiles.set_active(unbound.id, bound=True, layer=-1)
    assert library.profiles.active().id == old.id  # type: ignore[union-attr]
    bound = library.profiles.set_active(unbound.id, bound=True, sae_id="sea", layer=3, warnings=())
    assert bound is not None
    assert (bound.is_active, bound.bound, bound.sae_id, bound.layer) == (True, True, "sea", 3)
    with pytest.raises(TypeError):
        library.profiles.set_active(None, bound=True)
    assert library.profiles.active() == bound


def test_a_missing_profile_takes_nobodys_place(library: Library) -> None:
    a = library.profiles.add(ProfileRecord("a"))
    library.profiles.set_active(a.id)
    with pytest.raises(ProfileNotFound):
        library.profiles.set_active("prof_000000000000")
    assert library.profiles.active().id == a.id  # type: ignore[union-attr]


def test_the_database_itself_holds_a_single_active_one(library: Library) -> None:
    for name in ("a", "b"):
        library.profiles.add(ProfileRecord(name))
    with pytest.raises(IntegrityError):
        with library._sessions.write() as session:
            session.execute(update(ProfileRow).values(is_active=True))


def test_many_activations_at_once_leave_one(library: Library) -> None:
    ids = [library.profiles.add(ProfileRecord(f"p{number}")).id for number in range(8)]
    assert together(8, lambda number: library.profiles.set_active(ids[number])) == [None] * 8
    assert sum(profile.is_active for profile in library.profiles.list()) == 1


def test_deactivating_says_whether_it_was_active(library: Library) -> None:
    a, b = library.profiles.add(ProfileRecord("a")), library.profiles.add(ProfileRecord("b"))
    library.profiles.set_active(a.id)
    assert library.profiles.deactivate(b.id) is False
    assert library.profiles.active().id == a.id  # type: ignore[union-attr]
    assert library.profiles.deactivate(a.id) is True
    assert library.profiles.deactivate(a.id) is False


def test_removing_gives_back_what_was_there(library: Library) -> None:
    a = library.profiles.add(ProfileRecord("a"))
    library.profiles.set_active(a.id)
    removed = library.profiles.remove(a.id)
    assert (removed.id, removed.is_active) == (a.id, True)
    assert library.profiles.list() == []
    assert library.profiles.active() is None


@pytest.mark.parametrize("profile_id", ["", "prof_000000000000", "\ud800"])
def test_profiles_that_are_not_there(library: Library, profile_id: str) -> None:
    assert library.profiles.get(profile_id) is None
    assert library.profiles.by_name(profile_id) is None
    for change in (
        lambda: library.profiles.remove(profile_id),
        lambda: library.profiles.deactivate(profile_id),
        lambda: library.profiles.set_active(profile_id),
        lambda: library.profiles.update(profile_id, name="x"),
    ):
        with pytest.raises(ProfileNotFound) as caught:
            change()
        assert caught.value.code == "profile_not_found"

"""SAEs and saved sets of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy.exc import IntegrityError

from engine.errors import InvalidParameter, NotFound
from engine.library.database import Library
from engine.library.errors import SaeAlreadyExists, SaeNotFound
from engine.library.records import AttachItem, FeatureLabel, SaeRecord, SaeSource, SaeStatus
from engine.library.rows import utc_now
from engine.library.saes import SaeRow


def new(sae_id: str, **fields: object) -> SaeRecord:
    return SaeRecord(id=sae_id, name=sae_id, source=SaeSource.LOCAL, **fields)  # type: ignore[arg-type]


def test_an_sae_comes_back_as_it_was_stored(library: Library) -> None:
    stored = library.saes.add(
        SaeRecord(
            id="acme--saes@v2--layer_9--width_16k",
            name="Hafen 🚢",
            source=SaeSource.HUGGINGFACE,
            repository_id="acme/saes",
            revision="v2",
            format="saelens",
            architecture="jumprelu",
            d_in=2304,
            d_sae=16384,
            k=None,
            trained_on="acme/tiny-1b",
            trained_layer=9,
            hook_name="blocks.9.hook_resid_post",
            width="16k",
            average_l0=71.0,
            source_l0=70.5,
            source_variance_explained=0.81,
            file_size_bytes=302_130_944,
            local_path="/data/saes/hafen",
            copied=True,
            files_sha256="ab" * 32,
            dtype="bfloat16",
            normalize_activations="none",
            apply_b_dec_to_input=False,
            assumed=("The layer is taken from the folder's name.",),
            config={"d_in": 2304, "metadata": {"l1": [0.1, None]}},
        )
    )
    found = library.saes.get("acme--saes@v2--layer_9--width_16k")
    assert found == stored
    assert (found.name, found.source, found.repository_id, found.revision) == (
        "Hafen 🚢",
        SaeSource.HUGGINGFACE,
        "acme/saes",
        "v2",
    )
    assert (found.d_in, found.d_sae, found.k, found.trained_layer) == (2304, 16384, None, 9)
    assert (found.average_l0, found.source_l0, found.measured_l0, found.measured_at) == (71.0, 70.5, None, None)
    assert (found.copied, found.apply_b_dec_to_input) == (True, False)
    assert found.assumed == ("The layer is taken from the folder's name.",)
    assert found.config == {"d_in": 2304, "metadata": {"l1": [0.1, None]}}
    assert (found.status, found.error_message) == (SaeStatus.CACHED, None)
    assert found.created_at.tzinfo is UTC and found.created_at == found.updated_at


@pytest.mark.parametrize("sae_id", ["", "a/b", "a b", "ä", ".", "..", "a" * 101, "a\n", "\ud800", "50%"])
def test_ids_that_are_not_allowed(library: Library, sae_id: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        library.saes.add(new(sae_id))
    assert caught.value.param == "sae_id"
    assert library.saes.list() == []


@pytest.mark.parametrize("sae_id", ["a", "org--repo@v1.2--layer_7", "-._@", "a" * 100, "..."])
def test_ids_that_are_allowed(library: Library, sae_id: str) -> None:
    assert library.saes.add(new(sae_id)).id == sae_id


@pytest.mark.parametrize("sae_id", ["", "a/b", "ä", "a" * 101])
def test_the_database_itself_refuses_such_ids(library: Library, sae_id: str) -> None:
    now = utc_now()
    with pytest.raises(IntegrityError, match="ck_saes_id"):
        with library._sessions.write() as session:
            session.add(
                SaeRow(
                    id=sae_id,
                    name="x",
                    source=SaeSource.LOCAL,
                    copied=False,
                    assumed=[],
                    config={},
                    status=SaeStatus.CACHED,
                    created_at=now,
                    updated_at=now,
                )
            )


def test_a_taken_id_is_refused(library: Library) -> None:
    first = library.saes.add(new("sea"))
    with pytest.raises(SaeAlreadyExists) as caught:
        library.saes.add(new("sea", d_in=3))
    assert (caught.value.code, caught.value.details) == ("sae_already_exists", {"existing_sae_id": "sea"})
    assert library.saes.list() == [first]
    assert library.saes.add(new("Sea")).id == "Sea"


def test_only_a_failed_row_gives_way_and_only_when_asked(library: Library) -> None:
    library.saes.add(new("sea", d_sae=4))
    library.labels.upsert("sea", [FeatureLabel(1, "old")])
    with pytest.raises(SaeAlreadyExists):
        library.saes.add(new("sea"), replace_failed=True)
    library.saes.set_status("sea", SaeStatus.ERROR, error_message="no network")
    with pytest.raises(SaeAlreadyExists):
        library.saes.add(new("sea"))
    again = library.saes.add(new("sea", d_sae=8, status=SaeStatus.DOWNLOADING), replace_failed=True)
    assert (again.d_sae, again.status, again.error_message) == (8, SaeStatus.DOWNLOADING, None)
    assert library.labels.count("sea") == 0


def test_the_same_files_are_recognised(library: Library) -> None:
    first, made = library.saes.add_or_find(new("sea", files_sha256="aa"))
    assert made
    assert library.saes.add_or_find(new("elsewhere", files_sha256="aa")) == (first, False)
    assert library.saes.by_files_hash("aa") == first
    assert library.saes.by_files_hash("bb") is None
    assert library.saes.by_files_hash("\ud800") is None
    # Files that are not known cannot be the same, and a failed import is no reason not to try again.
    assert library.saes.add_or_find(new("one"))[1] and library.saes.add_or_find(new("two"))[1]
    library.saes.set_status("sea", SaeStatus.ERROR)
    assert library.saes.by_files_hash("aa") is None
    assert library.saes.add_or_find(new("again", files_sha256="aa"))[1]
    library.saes.set_status("sea", SaeStatus.ATTACHED)
    assert library.saes.by_files_hash("aa").id == "sea"  # type: ignore[union-attr]


def test_newest_first(library: Library) -> None:
    for sae_id in ("b", "a", "c"):
        library.saes.add(new(sae_id))
    assert [sae.id for sae in library.saes.list()] == ["c", "a", "b"]


def test_what_was_measured_is_added(library: Library) -> None:
    stored = library.saes.add(new("sea"))
    at = datetime(2026, 5, 1, 9, 30, tzinfo=UTC)
    changed = library.saes.update("sea", measured_l0=64.25, measured_variance_explained=float("nan"), measured_at=at)
    assert (changed.measured_l0, changed.measured_variance_explained, changed.measured_at) == (64.25, None, at)
    assert changed.created_at == stored.created_at and changed.updated_at >= stored.updated_at
    assert library.saes.get("sea") == changed
    assert library.saes.update("sea", assumed=("a", "b"), config={"k": 1}).assumed == ("a", "b")
    with pytest.raises(TypeError, match="called id, nonsense"):
        library.saes.update("sea", id="lake", nonsense=1)
    with pytest.raises(TypeError):
        library.saes.update("sea", config={"k": object()})
    assert library.saes.get("sea").config == {"k": 1}  # type: ignore[union-attr]


def test_statuses_change_together_or_not_at_all(library: Library) -> None:
    library.saes.add(new("a"))
    library.saes.add(new("b"))
    changed = library.saes.set_statuses(["b", "a"], SaeStatus.ATTACHED)
    assert [(sae.id, sae.status) for sae in changed] == [("b", SaeStatus.ATTACHED), ("a", SaeStatus.ATTACHED)]
    with pytest.raises(SaeNotFound):
        library.saes.set_statuses(["a", "missing"], SaeStatus.CACHED)
    assert {sae.status for sae in library.saes.list()} == {SaeStatus.ATTACHED}
    assert library.saes.set_status("a", SaeStatus.ERROR, error_message="broken \ud800").error_message == "broken \ufffd"
    assert library.saes.set_status("a", SaeStatus.CACHED).error_message is None


@pytest.mark.parametrize("sae_id", ["", "missing", "SEA", "\ud800"])
def test_saes_that_are_not_there(library: Library, sae_id: str) -> None:
    library.saes.add(new("sea"))
    assert library.saes.get(sae_id) is None
    for change in (
        lambda: library.saes.remove(sae_id),
        lambda: library.saes.set_status(sae_id, SaeStatus.CACHED),
        lambda: library.saes.update(sae_id, name="x"),
    ):
        with pytest.raises(SaeNotFound) as caught:
            change()
        assert caught.value.code == "sae_not_found"


def test_removing_gives_back_what_was_there(library: Library) -> None:
    stored = library.saes.add(new("sea", local_path="/data/saes/sea", copied=True))
    library.labels.upsert("sea", [FeatureLabel(0, "ships")])
    assert library.saes.remove("sea") == stored
    assert library.saes.list() == []
    library.saes.add(new("sea"))
    assert library.labels.count("sea") == 0


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"d_sae": -1}, "d_sae"),
        ({"d_in": True}, "d_in"),
        ({"file_size_bytes": 2**63}, "file_size_bytes"),
        ({"trained_layer": 1.5}, "trained_layer"),
        ({"local_path": "/\udcff"}, "local_path"),
    ],
)
def test_values_no_sae_can_have(library: Library, fields: dict[str, object], param: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        library.saes.add(new("sea", **fields))
    assert caught.value.param == param
    library.saes.add(new("sea"))
    with pytest.raises(InvalidParameter):
        library.saes.update("sea", **fields)


def test_a_set_is_saved_under_its_name(library: Library) -> None:
    first = library.attach_sets.save("Häfen", [AttachItem("sea", 3), AttachItem("land", 7), AttachItem("sea", 9)])
    assert first.items == (AttachItem("sea", 3), AttachItem("land", 7), AttachItem("sea", 9))
    assert library.attach_sets.get("Häfen") == first
    second = library.attach_sets.save("Häfen", [AttachItem("land", 7)])
    assert library.attach_sets.list() == [second]
    library.attach_sets.save("b", [AttachItem("sea", 0)])
    library.attach_sets.save("A", [AttachItem("sea", 0)])
    assert [saved.name for saved in library.attach_sets.list()] == ["A", "b", "Häfen"]
    library.attach_sets.remove("b")
    assert [saved.name for saved in library.attach_sets.list()] == ["A", "Häfen"]
    for missing in ("b", "häfen", "\ud800"):
        assert library.attach_sets.get(missing) is None
        with pytest.raises(NotFound):
            library.attach_sets.remove(missing)


@pytest.mark.parametrize(
    ("name", "items", "param"),
    [
        ("", [AttachItem("sea", 3)], "name"),
        ("   ", [AttachItem("sea", 3)], "name"),
        ("x" * 101, [AttachItem("sea", 3)], "name"),
        ("x", [], "saes"),
        ("x", [AttachItem("sea", 3), AttachItem("sea", 3)], "saes"),
        ("x", [AttachItem("sea", 3), AttachItem("sea", -1)], "saes.1.layer"),
    ],
)
def test_sets_that_are_not_saved(library: Library, name: str, items: list[AttachItem], param: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        library.attach_sets.save(name, items)
    assert caught.value.param == param
    assert library.attach_sets.list() == []

"""The model shelf's rows."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest

from engine.errors import ModelAlreadyExists, ModelLocked, ModelNotFound
from engine.library.database import Library
from engine.library.records import EngineKind, ModelRecord, ModelSource, ModelStatus


def new(name: str, **fields: object) -> ModelRecord:
    return ModelRecord(name=name, source=ModelSource.LOCAL, engine=EngineKind.TRANSFORMERS, **fields)  # type: ignore[arg-type]


def test_a_model_comes_back_as_it_was_stored(library: Library) -> None:
    stored = library.models.add(
        ModelRecord(
            name="smol:Q4_1",
            source=ModelSource.DEMO,
            engine=EngineKind.LLAMACPP,
            local_path="/models/smol.gguf",
            repo_id="owner/smol",
            params=134_515_008,
            architecture="llama",
            quantization="Q4",
            gguf_label="Q4_1",
            revision="main",
            pipeline_tag="text-generation",
            context_length=8192,
            disk_size_mb=98.0,
            estimated_memory_mb=117.6,
        )
    )
    found = library.models.get(stored.id)
    assert found == stored
    assert (found.name, found.source, found.engine) == ("smol:Q4_1", ModelSource.DEMO, EngineKind.LLAMACPP)
    assert (found.params, found.disk_size_mb, found.gguf_label) == (134_515_008, 98.0, "Q4_1")
    assert (found.status, found.locked, found.error_message) == (ModelStatus.READY, False, None)
    assert found.created_at.tzinfo is UTC
    assert found.created_at.utcoffset() == timedelta(0)
    assert found.loaded_at is None and found.last_used_at is None


def test_newest_first(library: Library) -> None:
    for name in ("a", "b", "c"):
        library.models.add(new(name))
    assert [model.name for model in library.models.list()] == ["c", "b", "a"]


def test_names_are_exact(library: Library) -> None:
    library.models.add(new("Smol"))
    assert library.models.by_name("Smol") is not None
    assert library.models.by_name("smol") is None
    assert library.models.add(new("smol")).name == "smol"


def test_a_taken_name_is_refused_and_names_the_holder(library: Library) -> None:
    first = library.models.add(new("smol"))
    with pytest.raises(ModelAlreadyExists) as caught:
        library.models.add(new("smol", local_path="/elsewhere"))
    assert caught.value.details == {"existing_model_id": first.id, "existing_name": "smol"}
    assert caught.value.param == "custom_name"
    assert len(library.models.list()) == 1


def test_a_taken_place_is_refused_unless_it_is_loaded_in_another_way(library: Library) -> None:
    first = library.models.add(new("smol", local_path="/models/smol"))
    with pytest.raises(ModelAlreadyExists) as caught:
        library.models.add(new("other", local_path="/models/smol"))
    assert caught.value.details["existing_model_id"] == first.id
    assert caught.value.param == "local_path"
    library.models.add(new("quantised", local_path="/models/smol", quantization="Q8"))


def test_a_name_can_be_changed_but_not_to_a_taken_one(library: Library) -> None:
    first, second = library.models.add(new("a")), library.models.add(new("b"))
    changed = library.models.update(second.id, name="c", context_length=4096)
    assert (changed.name, changed.context_length, changed.created_at) == ("c", 4096, second.created_at)
    assert changed.updated_at >= second.updated_at
    with pytest.raises(ModelAlreadyExists) as caught:
        library.models.update(second.id, name="a")
    assert caught.value.details["existing_model_id"] == first.id
    assert library.models.update(second.id, name="c").name == "c"


@pytest.mark.parametrize("field", ["id", "created_at", "updated_at", "nonsense"])
def test_fields_that_are_not_the_callers_are_refused(library: Library, field: str) -> None:
    model = library.models.add(new("a"))
    with pytest.raises(TypeError, match=field):
        library.models.update(model.id, **{field: 1})


def test_loading_stamps_the_row(library: Library) -> None:
    a, b = library.models.add(new("a")), library.models.add(new("b"))
    assert library.models.last_used() is None
    loading = library.models.set_status(a.id, ModelStatus.LOADING)
    assert loading.status is ModelStatus.LOADING and loading.loaded_at is None
    loaded = library.models.set_status(a.id, ModelStatus.LOADED)
    assert loaded.loaded_at is not None and loaded.loaded_at == loaded.last_used_at
    library.models.touch(b.id)
    last = library.models.last_used()
    assert last is not None and last.name == "b"
    library.models.touch(a.id)
    last = library.models.last_used()
    assert last is not None and last.name == "a"


def test_an_error_keeps_its_message_until_the_next_status(library: Library) -> None:
    model = library.models.add(new("a"))
    assert (
        library.models.set_status(model.id, ModelStatus.ERROR, error_message="no memory").error_message == "no memory"
    )
    assert library.models.set_status(model.id, ModelStatus.READY).error_message is None


def test_only_one_model_is_locked(library: Library) -> None:
    a, b = library.models.add(new("a")), library.models.add(new("b"))
    assert library.models.update(a.id, locked=True).locked
    assert library.models.update(a.id, locked=True).locked
    with pytest.raises(ModelLocked) as caught:
        library.models.update(b.id, locked=True)
    assert caught.value.details == {"locked_model_id": a.id, "locked_model_name": "a"}
    library.models.update(a.id, locked=False)
    assert library.models.update(b.id, locked=True).locked


def test_a_removed_id_is_never_given_out_again(library: Library) -> None:
    library.models.add(new("a"))
    last = library.models.add(new("b"))
    library.models.remove(last.id)
    assert library.models.get(last.id) is None
    assert library.models.add(new("b")).id == last.id + 1


@pytest.mark.parametrize("model_id", [0, -1, 77, 2**63, 10**40])
def test_ids_that_are_not_there(library: Library, model_id: int) -> None:
    assert library.models.get(model_id) is None
    for change in (
        lambda: library.models.remove(model_id),
        lambda: library.models.touch(model_id),
        lambda: library.models.set_status(model_id, ModelStatus.READY),
        lambda: library.models.update(model_id, name="x"),
    ):
        with pytest.raises(ModelNotFound):
            change()


def test_names_that_no_database_can_hold_are_simply_not_there(library: Library) -> None:
    assert library.models.by_name("\ud800") is None


def test_a_restart_puts_right_what_cannot_be_true(library: Library) -> None:
    states = (ModelStatus.LOADING, ModelStatus.LOADED, ModelStatus.DOWNLOADING, ModelStatus.READY, ModelStatus.ERROR)
    for status in states:
        model = library.models.add(new(status.value, status=status))
        if status is ModelStatus.LOADED:
            library.models.update(model.id, locked=True)
    library.models.set_status(5, ModelStatus.ERROR, error_message="broken")
    library.models.reset_after_restart()
    rows = {model.name: model for model in library.models.list()}
    assert rows["loading"].status is ModelStatus.READY
    assert rows["loaded"].status is ModelStatus.READY and not rows["loaded"].locked
    assert rows["downloading"].status is ModelStatus.ERROR
    assert rows["downloading"].error_message == "The download was interrupted when the program ended."
    assert rows["ready"].status is ModelStatus.READY
    assert rows["error"].error_message == "broken"

"""Import of a folder on this machine: by reference, whole or not at all."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.actions.models.importing import import_local_model
from engine.errors import CheckpointInvalid, EngineUnsupported, InvalidParameter, ModelAlreadyExists, ModelNotGenerative
from engine.events import Event, EventBus, ModelsChanged
from engine.library.database import Library
from engine.library.records import EngineKind, ModelSource, ModelStatus

CheckpointMaker = Callable[..., Path]


@pytest.fixture
def bus() -> EventBus:
    return EventBus()


@pytest.fixture
def heard(bus: EventBus) -> list[Event]:
    events: list[Event] = []
    bus.subscribe(events.append)
    return events


@pytest.fixture
def folder(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_checkpoint, tmp_path / "models" / "my tiny")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_becomes_a_row_and_stays_as_it_was(
    library: Library, bus: EventBus, heard: list[Event], folder: Path
) -> None:
    before = contents(folder)
    record = import_local_model(library, bus, folder)
    assert (record.name, record.local_path) == ("my tiny", str(folder))
    assert (record.source, record.engine, record.status) == (
        ModelSource.LOCAL,
        EngineKind.TRANSFORMERS,
        ModelStatus.READY,
    )
    assert (record.architecture, record.params, record.context_length) == ("LlamaForCausalLM", 62_752, 2048)
    assert (record.disk_size_mb, record.estimated_memory_mb) == (0.27, 0.3)
    assert (record.quantization, record.gguf_label, record.repo_id, record.revision) == (None, None, None, None)
    assert record.pipeline_tag == "text-generation" and record.trust_remote_code is False
    assert library.models.list() == [record]
    assert heard == [ModelsChanged()]
    assert contents(folder) == before


def test_a_name_of_ones_own(library: Library, bus: EventBus, folder: Path) -> None:
    assert import_local_model(library, bus, folder, name="org/Tiny (test)").name == "org/Tiny (test)"


@pytest.mark.parametrize("way", ["again", "through a link", "with dots", "under another name"])
def test_the_same_folder_twice(library: Library, bus: EventBus, heard: list[Event], folder: Path, way: str) -> None:
    first = import_local_model(library, bus, folder)
    path, name = folder, None
    if way == "through a link":
        path = folder.parent / "link"
        path.symlink_to(folder)
    elif way == "with dots":
        path = folder / ".." / folder.name
    elif way == "under another name":
        name = "other"
    with pytest.raises(ModelAlreadyExists, match="in the library already, as 'my tiny'") as caught:
        import_local_model(library, bus, path, name=name)
    assert caught.value.details == {"existing_model_id": first.id, "existing_name": "my tiny"}
    assert library.models.list() == [first]
    assert len(heard) == 1


def test_a_taken_name_needs_another(library: Library, bus: EventBus, folder: Path, tmp_path: Path) -> None:
    first = import_local_model(library, bus, folder)
    second = shutil.copytree(folder, tmp_path / "elsewhere" / "my tiny")
    with pytest.raises(ModelAlreadyExists, match="named 'my tiny' already") as caught:
        import_local_model(library, bus, second)
    assert caught.value.details["existing_model_id"] == first.id
    assert caught.value.remedy == "Give this one another name."
    assert import_local_model(library, bus, second, name="second").local_path == str(second)


def test_a_link_keeps_its_own_name(library: Library, bus: EventBus, folder: Path) -> None:
    link = folder.parent / "a link"
    link.symlink_to(folder)
    record = import_local_model(library, bus, link)
    assert (record.name, record.local_path) == ("a link", str(folder))


def test_a_snapshot_of_the_hub_cache_is_called_by_its_repository(
    library: Library, bus: EventBus, folder: Path, tmp_path: Path
) -> None:
    snapshot = tmp_path / "hub" / "models--owner--Tiny-1B" / "snapshots" / "12fd25f77366fa6b3b4b768ec3050bf629380bac"
    shutil.copytree(folder, snapshot)
    record = import_local_model(library, bus, snapshot)
    assert (record.name, record.repo_id, record.source) == ("Tiny-1B", "owner/Tiny-1B", ModelSource.LOCAL)
    assert record.revision == "12fd25f77366fa6b3b4b768ec3050bf629380bac"


def test_an_odd_but_good_path(library: Library, bus: EventBus, folder: Path, tmp_path: Path) -> None:
    odd = Path(shutil.copytree(folder, tmp_path / "dätä 100% 東京\u3000 'x'"))
    record = import_local_model(library, bus, odd)
    assert record.local_path == str(odd)
    assert library.models.list() == [record]


def test_refused_imports_leave_nothing(library: Library, bus: EventBus, heard: list[Event], folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    os.truncate(folder / "model.safetensors", 5000)
    with pytest.raises(CheckpointInvalid) as caught:
        import_local_model(library, bus, folder)
    assert len(caught.value.details["problems"]) == 2
    (folder / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    with pytest.raises(ModelNotGenerative):
        import_local_model(library, bus, folder)
    (folder / "config.json").write_text('{"model_type": "made_up", "architectures": ["MadeUpForCausalLM"]}')
    with pytest.raises(EngineUnsupported):
        import_local_model(library, bus, folder)
    assert library.models.list() == []
    assert heard == []


@pytest.mark.parametrize(
    ("path", "name", "param"),
    [
        ("/etc", None, "local_path"),
        ("relative/folder", None, "local_path"),
        ("~/models/tiny", None, "local_path"),
        ("", None, "local_path"),
        ("/models/\udcff", None, "local_path"),
        ("/models/a\0b", None, "local_path"),
        ("/models/a", "", "custom_name"),
        ("/models/a", "x" * 101, "custom_name"),
        ("/models/a", "two\nlines", "custom_name"),
    ],
)
def test_paths_and_names_that_cannot_be_used(
    library: Library, bus: EventBus, path: str, name: str | None, param: str
) -> None:
    with pytest.raises(InvalidParameter) as caught:
        import_local_model(library, bus, Path(path), name=name)
    assert caught.value.param == param
    caught.value.one_line().encode()


def test_one_of_many_imports_of_a_folder_wins(library: Library, bus: EventBus, folder: Path) -> None:
    gate = threading.Barrier(4)

    def work(number: int) -> None:
        gate.wait(30)
        import_local_model(library, bus, folder, name=f"name {number}")

    with ThreadPoolExecutor(4) as pool:
        raised = [future.exception(60) for future in [pool.submit(work, number) for number in range(4)]]
    assert raised.count(None) == 1
    assert {type(error) for error in raised if error is not None} == {ModelAlreadyExists}
    assert len(library.models.list()) == 1


# --- copies and links -------------------------------------------------------------------------------------------------


def test_a_snapshot_of_links_is_copied_as_files(library: Library, bus: EventBus, folder: Path, tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--owner--Tiny-1B"
    snapshot = repository / "snapshots" / "12fd25f77366fa6b3b4b768ec3050bf629380bac"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        shutil.copy(path, repository / "blobs" / f"{number:040x}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number:040x}")
    record = import_local_model(library, bus, snapshot, copy=True)
    copied = Path(record.local_path or "")
    assert contents(copied) == contents(folder)
    assert not any(path.is_symlink() for path in copied.iterdir())


@pytest.mark.parametrize("name", ["README.md", "model.safetensors", "notes"])
def test_a_link_out_of_the_folder_is_not_copied(
    library: Library, bus: EventBus, heard: list[Event], folder: Path, tmp_path: Path, name: str
) -> None:
    secret = tmp_path / "secret"
    if (folder / name).exists():
        (folder / name).rename(secret)
    else:
        secret.write_text("not for copying")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    with pytest.raises(InvalidParameter) as caught:
        import_local_model(library, bus, folder, copy=True)
    assert caught.value.param == "local_path" and str(secret) in caught.value.message
    assert not (library.path.parent / "models" / "my-tiny").exists()
    assert library.models.list() == [] and heard == []
    # By reference nothing is copied.
    assert import_local_model(library, bus, folder).local_path == str(folder)


def test_a_link_inside_the_folder_is_copied_as_a_file(library: Library, bus: EventBus, folder: Path) -> None:
    (folder / "LICENSE.txt").symlink_to("config.json")
    record = import_local_model(library, bus, folder, copy=True)
    assert contents(Path(record.local_path or "")) == contents(folder)


def test_links_in_a_ring_and_to_nothing_are_no_files(library: Library, bus: EventBus, folder: Path) -> None:
    (folder / "ring").symlink_to("ring")
    (folder / "gone").symlink_to("nothing")
    (folder / "up").symlink_to("..")
    record = import_local_model(library, bus, folder, copy=True)
    copied = {path.name for path in Path(record.local_path or "").iterdir()}
    assert copied == {path.name for path in folder.iterdir()} - {"ring", "gone", "up"}


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="has no devices")
def test_a_link_to_what_never_ends_is_refused(library: Library, bus: EventBus, folder: Path) -> None:
    (folder / "README.md").unlink(missing_ok=True)
    (folder / "README.md").symlink_to("/dev/zero")
    with pytest.raises(CheckpointInvalid, match="no ordinary file"):
        import_local_model(library, bus, folder, copy=True)

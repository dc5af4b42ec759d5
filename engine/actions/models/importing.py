"""Import of a model that is on this machine already: a transformers folder, a GGUF file, or a set it was split into.

By reference its files are read where they lie and never changed; as a copy they lie in the data directory and go with
the row.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from engine.actions.durable_files import refuse_stray_links
from engine.actions.models.model_files import FOLDER, ModelFolder
from engine.counting import in_mb
from engine.errors import CheckpointInvalid, InvalidLocalPath, InvalidParameter, ModelAlreadyExists
from engine.events import EventBus, ModelsChanged
from engine.library.database import Library
from engine.library.records import EngineKind, ModelRecord, ModelSource, ModelStatus
from engine.library.values import is_storable
from engine.models.inspection.checkpoint import CheckpointReport, inspect_checkpoint, refuse_system_folder
from engine.models.inspection.gguf_file import GgufReport, inspect_gguf, label_of, starts_as_gguf, whole_stem
from engine.models.inspection.names import check_custom_name, default_name, hub_snapshot
from engine.models.inspection.quantization import check_stored

_DIGEST = re.compile(r"sha256[-:][0-9a-f]{64}")
MAX_FOUND = 500
"""Files of a folder looked at for GGUFs."""


@dataclass(frozen=True)
class LocalModel:
    """What lies at a path, before it is imported.

    Attributes:
        path: As it was given.
        row: What the library would keep of it.
        files: How many files it has.
        known_as: The name by which the library has it already, or None.
    """

    path: Path
    row: ModelRecord
    files: int
    known_as: str | None


def import_local_model(
    library: Library,
    events: EventBus,
    path: Path,
    *,
    name: str | None = None,
    copy: bool = False,
    quantization: str | None = None,
    trust_remote_code: bool = False,
    check: Callable[[], None] = lambda: None,
) -> ModelRecord:
    """Add the model at ``path`` (absolute; a checkpoint folder, a GGUF file or any part of a set) to the library.

    The files are checked whole first and the row written in one go, so a refused import leaves nothing behind. Blocks
    for the time it takes to read some headers (a second on first use), or to copy: not for the window's own thread.

    Args:
        name: None: the folder's or file's own, a GGUF's with its quantisation behind a colon.
        copy: Copy the files into the data directory.
        quantization: At which level a checkpoint is to be held (FP32, FP16, Q8, Q4, Q2); None: as it is stored. A GGUF
            is what it is.
        check: Called between blocks of a copy; what it raises ends it.

    Raises :class:`InvalidParameter` for a path or name that cannot be used; :class:`InvalidLocalPath` when nothing is
    there; :class:`ModelAlreadyExists`, with ``details['existing_model_id']``, for files or a name the library has; and
    what :func:`engine.models.inspection.checkpoint.inspect_checkpoint` and
    :func:`engine.models.inspection.gguf_file.inspect_gguf` raise;
    :class:`UnsupportedQuantization` for a checkpoint stored in a way that nothing here can read.
    """
    if name is not None:
        check_custom_name(name)
    new, files = _row(path, name, quantization)
    _refuse_same(library, new, path)
    new = replace(new, trust_remote_code=trust_remote_code and new.engine is EngineKind.TRANSFORMERS)
    if copy:
        _refuse_taken(library, new.name)
        if new.engine is EngineKind.TRANSFORMERS:
            # A GGUF's files were each named and found to be what they should; a folder holds whatever it holds.
            refuse_stray_links(files, files[0].parent, "local_path")
        with ModelFolder(library.path.parent / FOLDER, library.state).copied(files, new.name, check) as folder:
            place = folder / files[0].name if new.engine is EngineKind.LLAMACPP else folder
            record = library.models.add(replace(new, local_path=str(place)))
    else:
        record = library.models.add(new)
    events.publish(ModelsChanged())
    return record


def relocated(library: Library, record: ModelRecord, path: Path) -> dict[str, object]:
    """What changes in the row of ``record`` when its files lie at ``path`` from now on.

    They are checked as for an import, and have to be the same model's. Raises what :func:`import_local_model` raises,
    and :class:`CheckpointInvalid` for another model's files.
    """
    gguf = record.engine is EngineKind.LLAMACPP
    new, _files = _row(path, record.name, None if gguf else record.quantization)
    existing = _same(library, new)
    if existing is not None and existing.id != record.id:
        raise _taken(existing, path)
    known = {
        "engine": (record.engine.value, new.engine.value),
        "architecture": (record.architecture, new.architecture),
        "parameters": (record.params, new.params),
        "quantisation": (record.gguf_label, new.gguf_label),
    }
    differs = [what for what, (was, found) in known.items() if was is not None and was != found]
    if differs:
        raise CheckpointInvalid(
            f"{path} holds another model than {record.name!r}: its {' and '.join(differs)} differ.",
            param="local_path",
            details={"path": str(path), "problems": [f"another {what}" for what in differs]},
            remedy=f"Choose the files of {record.name!r}, or import these as a model of their own.",
        )
    return {"local_path": new.local_path, "disk_size_mb": new.disk_size_mb, "has_chat_template": new.has_chat_template}


def files_gone(record: ModelRecord) -> bool:
    """Whether nothing lies any more where the files of a model that was here were."""
    if not record.local_path or record.status is ModelStatus.DOWNLOADING:
        return False
    try:
        return not os.path.exists(record.local_path)
    except (OSError, ValueError):
        return True


def look_at_local_model(library: Library, path: Path) -> LocalModel:
    """What :func:`import_local_model` would add for ``path``; adds nothing. Raises what that raises for the files."""
    new, files = _row(path, None, None)
    existing = _same(library, new)
    return LocalModel(path, new, len(files), None if existing is None else existing.name)


def gguf_in(path: Path) -> Path | None:
    """The GGUF file that ``path`` means: itself, or the only one (or only set) in a folder without a checkpoint.

    Raises :class:`CheckpointInvalid` listing the files when a folder holds several.
    """
    try:
        if path.suffix.lower() == ".gguf" and not path.is_dir():
            return path
        if path.is_file():
            # Ollama keeps its GGUF files under names that say nothing.
            return path if starts_as_gguf(path) else None
        if not path.is_dir() or (path / "config.json").exists():
            return None
        names = sorted(entry.name for entry in os.scandir(path) if entry.name.lower().endswith(".gguf"))[:MAX_FOUND]
    except OSError:
        return None  # what is wrong with the path is said where checkpoints are looked at
    found = [each for each in names if not any(word in each.lower() for word in ("mmproj", "imatrix"))]
    stems = {whole_stem(each) for each in found}
    if not stems:
        return None
    if len(stems) == 1:
        return path / found[0]
    raise CheckpointInvalid(
        f"{path} holds {len(stems)} GGUF models: {', '.join(sorted(stems)[:8])}.",
        param="local_path",
        details={"path": str(path), "problems": ["it holds several models"], "choices": found},
        remedy="Choose one of the files.",
    )


def facts_of_checkpoint(report: CheckpointReport) -> dict[str, object]:
    """The columns of a row that a checkpoint's files fill."""
    return {
        "params": report.params,
        "architecture": report.architecture,
        "pipeline_tag": report.pipeline_tag,
        "context_length": report.context_length,
        "has_chat_template": report.has_chat_template,
        "disk_size_mb": in_mb(report.disk_size_bytes),
        "estimated_memory_mb": in_mb(report.estimated_memory_bytes),
    }


def facts_of_gguf(report: GgufReport) -> dict[str, object]:
    """The columns of a row that a GGUF's header fills."""
    return {
        "params": report.params,
        "architecture": report.architecture,
        "quantization": report.quantization,
        "pipeline_tag": report.pipeline_tag,
        "context_length": report.context_length,
        "has_chat_template": report.has_chat_template,
        "disk_size_mb": in_mb(report.disk_size_bytes),
        "estimated_memory_mb": in_mb(report.estimated_memory_bytes),
    }


# --- steps ------------------------------------------------------------------------------------------------------------


def _row(path: Path, name: str | None, quantization: str | None) -> tuple[ModelRecord, list[Path]]:
    """The row for what lies at ``path``, and its files."""
    _require_usable(path)
    refuse_system_folder(path)
    gguf = gguf_in(path)
    if gguf is None:
        return _checkpoint_row(path, name, quantization)
    new, files = _gguf_row(path, gguf, name)
    if quantization not in (None, new.quantization):
        raise InvalidParameter(
            f"{gguf.name} is a {new.gguf_label} file and stays that; {quantization} cannot be asked of it.",
            param="quantization",
            remedy="Leave it out, or import another file.",
        )
    return new, files


def _gguf_row(path: Path, gguf: Path, name: str | None) -> tuple[ModelRecord, list[Path]]:
    if not gguf.exists():
        raise _nothing_there(path)
    # A file keeps its own name: in a hub cache it is a link to a blob whose name says nothing.
    place = Path(os.path.realpath(gguf.parent)) / gguf.name
    report = inspect_gguf(place)
    snapshot = hub_snapshot(place.parent)
    repo_id, revision = snapshot if snapshot is not None else (None, None)
    stem = whole_stem(report.path.name)
    # A blob's name says nothing, so its header names both; of any other the tag is what its own name says.
    nameless = _DIGEST.fullmatch(stem) is not None
    clean = PurePath((report.name if nameless and report.name else stem) + ".gguf")
    tag = report.label if nameless else label_of(report.path)
    row = ModelRecord(
        name=name if name is not None else default_name(path=clean, gguf_label=tag),
        source=ModelSource.LOCAL,
        engine=EngineKind.LLAMACPP,
        local_path=str(report.path),
        repo_id=repo_id,
        revision=revision,
        gguf_label=report.label,
        **facts_of_gguf(report),  # type: ignore[arg-type]
    )
    return row, list(report.files)


def _checkpoint_row(path: Path, name: str | None, quantization: str | None) -> tuple[ModelRecord, list[Path]]:
    try:
        there = path.exists() or path.is_symlink()
    except (OSError, ValueError):
        there = True  # why it cannot be looked at is said below
    if not there:
        raise _nothing_there(path)
    # The same folder reached through another link is the same model.
    place = Path(os.path.realpath(path))
    report = inspect_checkpoint(place)
    check_stored(place, report.quantization_method)
    snapshot = hub_snapshot(place)
    repo_id, revision = snapshot if snapshot is not None else (None, None)
    own = _folder_name(path, repo_id) if name is None else name
    row = ModelRecord(
        name=own if name is not None or quantization is None else f"{own}:{quantization}",
        source=ModelSource.LOCAL,
        engine=EngineKind.TRANSFORMERS,
        local_path=str(place),
        repo_id=repo_id,
        revision=revision,
        quantization=quantization,
        **facts_of_checkpoint(report),  # type: ignore[arg-type]
    )
    return row, sorted(each for each in place.iterdir() if each.is_file() and not each.name.startswith("."))


def _same(library: Library, new: ModelRecord) -> ModelRecord | None:
    """The model that has the same files at the same level: it is the same one, under whatever name."""
    alike = (new.local_path, new.quantization)
    return next((each for each in library.models.list() if (each.local_path, each.quantization) == alike), None)


def _refuse_same(library: Library, new: ModelRecord, path: Path) -> None:
    existing = _same(library, new)
    if existing is not None:
        raise _taken(existing, path)


def _taken(existing: ModelRecord, path: Path) -> ModelAlreadyExists:
    return ModelAlreadyExists(
        f"{path} is in the library already, as {existing.name!r}.",
        param="local_path",
        details={"existing_model_id": existing.id, "existing_name": existing.name},
        remedy="Use that model, or remove it from the library first.",
    )


def _refuse_taken(library: Library, name: str) -> None:
    """Early, so that nothing is copied in vain; the library has the last word."""
    taken = library.models.by_name(name)
    if taken is not None:
        raise ModelAlreadyExists(
            f"The library has a model named {name!r} already.",
            param="custom_name",
            details={"existing_model_id": taken.id, "existing_name": taken.name},
            remedy="Give this one another name.",
        )


def _folder_name(path: Path, repo_id: str | None) -> str:
    try:
        # The path as it was given, links and all: that is the name the person knows.
        return default_name(repo_id=repo_id, path=Path(os.path.abspath(path)))
    except ValueError as error:
        raise InvalidParameter(
            f"{path} has no name of its own to call the model by.", param="custom_name", remedy="Give the model a name."
        ) from error


def _nothing_there(path: Path) -> InvalidLocalPath:
    return InvalidLocalPath(
        f"{path} cannot be used as a model: there is no such folder.",
        param="local_path",
        details={"path": str(path), "problems": ["there is no such folder"]},
        remedy="Choose the folder that holds the model's config.json and model.safetensors, or a GGUF file.",
    )


def _require_usable(path: Path) -> None:
    if not is_storable(str(path)) or "\0" in str(path):
        raise InvalidParameter(
            "The path holds bytes that are no text, so the library cannot remember it.",
            param="local_path",
            remedy="Rename the folder.",
        )
    if not path.is_absolute():
        raise InvalidParameter(
            f"{path} is not an absolute path.", param="local_path", remedy="Give the whole path of the folder."
        )

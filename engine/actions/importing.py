"""Import of a model that is on this machine already: by reference, so its files are read where they lie and never
changed.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.errors import InvalidParameter, ModelAlreadyExists
from engine.events import EventBus, ModelsChanged
from engine.library.database import Library
from engine.library.records import EngineKind, ModelRecord, ModelSource, NewModel
from engine.library.repositories import is_storable
from engine.models.checkpoint import inspect_checkpoint, refuse_system_folder
from engine.models.names import check_custom_name, default_name, hub_snapshot

MB = 1_000_000


def import_local_model(library: Library, events: EventBus, path: Path, *, name: str | None = None) -> ModelRecord:
    """Add the checkpoint folder ``path`` (absolute) to the library under ``name``, or under its folder's own name.

    The folder is checked whole first and the row written in one go, so a refused import leaves nothing behind. Blocks
    for the time it takes to read some headers (a second on first use): not for the window's own thread.

    Raises :class:`InvalidParameter` for a path or name that cannot be used; :class:`ModelAlreadyExists`, with
    ``details['existing_model_id']``, for a folder or name the library has; and what
    :func:`engine.models.checkpoint.inspect_checkpoint` raises.
    """
    if name is not None:
        check_custom_name(name)
    _require_usable(path)
    refuse_system_folder(path)
    # The same folder reached through another link is the same model.
    place = Path(os.path.realpath(path))
    existing = library.models.by_path(str(place))
    if existing is not None:
        raise ModelAlreadyExists(
            f"{path} is in the library already, as {existing.name!r}.",
            param="local_path",
            details={"existing_model_id": existing.id, "existing_name": existing.name},
            remedy="Use that model, or remove it from the library first.",
        )
    report = inspect_checkpoint(place)
    snapshot = hub_snapshot(place)
    repo_id, revision = snapshot if snapshot is not None else (None, None)
    record = library.models.add(
        NewModel(
            name=name if name is not None else _folder_name(path, repo_id),
            source=ModelSource.LOCAL,
            engine=EngineKind.TRANSFORMERS,
            local_path=str(place),
            repo_id=repo_id,
            params=report.params,
            architecture=report.architecture,
            revision=revision,
            pipeline_tag=report.pipeline_tag,
            context_length=report.context_length,
            disk_size_mb=round(report.disk_size_bytes / MB, 2),
            estimated_memory_mb=round(report.estimated_memory_bytes / MB, 2),
        )
    )
    events.publish(ModelsChanged())
    return record


def _folder_name(path: Path, repo_id: str | None) -> str:
    try:
        # The path as it was given, links and all: that is the name the person knows.
        return default_name(repo_id=repo_id, path=Path(os.path.abspath(path)))
    except ValueError as error:
        raise InvalidParameter(
            f"{path} has no name of its own to call the model by.", param="custom_name", remedy="Give the model a name."
        ) from error


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

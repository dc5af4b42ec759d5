"""``/api/models``: models from the hub or the disk to memory and away again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StrictInt, StrictStr, model_validator
from quart import Quart, Response

from engine.errors import InvalidParameter, ModelNotFound
from engine.public.downloads import DownloadRequest, ModelPreview
from engine.public.library import is_storable
from engine.public.models import (
    MAIN,
    MAX_CUSTOM_NAME,
    MAX_GGUF_FILES,
    MAX_LABEL,
    MAX_REPO_ID,
    MAX_REVISION,
    DiskUse,
    FoundModel,
    LoadEstimate,
    ModelView,
    is_plain_path,
    refuse_system_folder,
)
from server.context import ServerContext
from server.management.envelope import success
from server.management.validation import Body, NoQuery, read_json, read_nothing, read_query
from server.openapi.describe import describe

MAX_LOCAL_PATH = 500
MAX_TOKEN = 255
MAX_ID = 2**63 - 1

_RepoId = Annotated[str, Field(min_length=1, max_length=MAX_REPO_ID)]
_Revision = Annotated[str, Field(min_length=1, max_length=MAX_REVISION)]
_Token = Annotated[str, Field(min_length=1, max_length=MAX_TOKEN)]
_Level = Literal["FP32", "FP16", "Q8", "Q4", "Q2"]


class RegisterModelBody(Body):
    """Where a model comes from; each source has fields of its own."""

    source: Literal["huggingface", "local"]
    repo_id: _RepoId | None = None
    revision: _Revision = MAIN
    local_path: Annotated[str, Field(min_length=1, max_length=MAX_LOCAL_PATH)] | None = None
    copy_files: Annotated[bool, Field(alias="copy")] = False
    quantization: _Level | None = None
    gguf_files: Annotated[list[str], Field(min_length=1, max_length=MAX_GGUF_FILES)] | None = None
    gguf_label: Annotated[str, Field(min_length=1, max_length=MAX_LABEL)] | None = None
    trust_remote_code: bool = False
    hf_token: _Token | None = None
    custom_name: Annotated[str, Field(min_length=1, max_length=MAX_CUSTOM_NAME)] | None = None

    @model_validator(mode="after")
    def _fields_of_the_source(self) -> RegisterModelBody:
        """Each source has fields of its own; those of the other are no harm only while they are absent."""
        theirs = {
            "huggingface": ("local_path",),
            "local": ("repo_id", "hf_token", "gguf_files", "gguf_label"),
        }[self.source]
        needed = "repo_id" if self.source == "huggingface" else "local_path"
        if getattr(self, needed) is None:
            raise ValueError(f"{needed} is needed for a model from {self.source}")
        extra = [name for name in theirs if getattr(self, name) is not None]
        if extra:
            raise ValueError(f"{extra[0]} has no meaning for a model from {self.source}")
        return self


class PreviewModelBody(Body):
    """Which repository to look at."""

    repo_id: _RepoId
    revision: _Revision = MAIN
    hf_token: _Token | None = None


class LoadModelBody(Body):
    """On which card: null or "auto", "all", a number, or a card's uuid."""

    gpu: StrictInt | StrictStr | None = None


class RenameModelBody(Body):
    """The new name."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_CUSTOM_NAME)]


class LocateModelBody(Body):
    """Where the files lie now."""

    local_path: Annotated[str, Field(min_length=1, max_length=MAX_LOCAL_PATH)]


@dataclass(frozen=True)
class ModelsOnDisk:
    """Models that could be imported."""

    models: Sequence[FoundModel]
    total: int


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``; those with a name of their own stand before those with an id."""
    models = context.engine.models

    @app.get("/api/models")
    @describe("List models.", query=NoQuery, data=list[ModelView])
    async def list_models() -> Response:
        read_query(NoQuery)
        return success(await context.quick(models.list))

    @app.post("/api/models")
    @describe(
        "Download a model from the hub, or import one from disk.",
        query=NoQuery,
        body=RegisterModelBody,
        data=ModelView,
        status=202,
        also={201: ModelView},
        errors=(400, 404, 409, 502, 507),
    )
    async def register_model() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, RegisterModelBody)
        if asked.source == "local":
            path = _usable_path(asked.local_path or "")
            imported = await context.load(
                lambda: models.import_local(
                    path,
                    name=asked.custom_name,
                    copy=asked.copy_files,
                    quantization=asked.quantization,
                    trust_remote_code=asked.trust_remote_code,
                )
            )
            return success(imported, 201)
        _check_files(asked.gguf_files)
        wanted = DownloadRequest(
            repo_id=asked.repo_id or "",
            revision=asked.revision,
            quantization=asked.quantization,
            custom_name=asked.custom_name,
            token=asked.hf_token,
            gguf_files=asked.gguf_files,
            gguf_label=asked.gguf_label,
            trust_remote_code=asked.trust_remote_code,
        )
        return success(await context.load(lambda: models.download(wanted)), 202)

    @app.post("/api/models/preview")
    @describe(
        "Look at a repository of the hub: files, sizes, memory.",
        query=NoQuery,
        body=PreviewModelBody,
        data=ModelPreview,
        errors=(400, 404, 502),
    )
    async def preview_model() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, PreviewModelBody)
        return success(await context.load(lambda: models.preview(asked.repo_id, asked.revision, token=asked.hf_token)))

    @app.get("/api/models/on-disk")
    @describe("Models that other programs keep on this machine.", query=NoQuery, data=ModelsOnDisk)
    async def models_on_disk() -> Response:
        read_query(NoQuery)
        found = await context.load(models.find_on_disk)
        return success(ModelsOnDisk(found, len(found)))

    @app.get("/api/models/disk-use")
    @describe("What models and SAEs take on disk.", query=NoQuery, data=DiskUse)
    async def disk_use() -> Response:
        read_query(NoQuery)
        return success(await context.load(models.disk_use))

    _one(app, context)


def _one(app: Quart, context: ServerContext) -> None:
    models = context.engine.models

    @app.get("/api/models/<model_id>")
    @describe("One model.", query=NoQuery, data=ModelView, errors=(404,))
    async def get_model(model_id: str) -> Response:
        read_query(NoQuery)
        return success(await context.quick(lambda: models.get(_id(model_id))))

    @app.get("/api/models/<model_id>/estimate")
    @describe(
        "What loading a model would take, and what is free.", query=NoQuery, data=LoadEstimate, errors=(400, 404, 409)
    )
    async def estimate_model(model_id: str) -> Response:
        read_query(NoQuery)
        return success(await context.load(lambda: models.estimate(_id(model_id))))

    @app.patch("/api/models/<model_id>")
    @describe("Give a model another name.", query=NoQuery, body=RenameModelBody, data=ModelView, errors=(404, 409))
    async def rename_model(model_id: str) -> Response:
        read_query(NoQuery)
        name = (await read_json(context, RenameModelBody)).name
        return success(await context.manage(lambda: models.rename(_id(model_id), name)))

    @app.post("/api/models/<model_id>/locate")
    @describe(
        "Say where the files of a model lie now, after they were moved.",
        query=NoQuery,
        body=LocateModelBody,
        data=ModelView,
        errors=(400, 404, 409),
    )
    async def locate_model(model_id: str) -> Response:
        read_query(NoQuery)
        path = _usable_path((await read_json(context, LocateModelBody)).local_path)
        return success(await context.load(lambda: models.locate(_id(model_id), path)))

    @app.delete("/api/models/<model_id>")
    @describe("Delete a model; files that are ours go with it.", query=NoQuery, errors=(404, 409))
    async def delete_model(model_id: str) -> Response:
        read_query(NoQuery)
        await context.manage(lambda: models.delete(_id(model_id)))
        return success(None)

    @app.post("/api/models/<model_id>/load")
    @describe(
        "Begin to load a model; events tell how it goes on.",
        query=NoQuery,
        body=LoadModelBody,
        body_optional=True,
        data=ModelView,
        status=202,
        errors=(400, 404, 409, 507),
    )
    async def load_model(model_id: str) -> Response:
        read_query(NoQuery)
        gpu = (await read_json(context, LoadModelBody, optional=True)).gpu
        return success(await context.load(lambda: models.load(_id(model_id), gpu)), 202)

    @app.post("/api/models/<model_id>/unload")
    @describe("Let answers finish, then free the model.", query=NoQuery, data=ModelView, errors=(400, 404, 409))
    async def unload_model(model_id: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)
        return success(await context.load(lambda: models.unload(_id(model_id))))

    @app.post("/api/models/<model_id>/lock")
    @describe("Keep requests from loading another model.", query=NoQuery, data=ModelView, errors=(400, 404, 409))
    async def lock_model(model_id: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)
        return success(await context.manage(lambda: models.lock(_id(model_id))))

    @app.post("/api/models/<model_id>/unlock")
    @describe("Let requests load other models again.", query=NoQuery, data=ModelView, errors=(404,))
    async def unlock_model(model_id: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)
        return success(await context.manage(lambda: models.unlock(_id(model_id))))

    @app.post("/api/models/<model_id>/cancel")
    @describe("Stop a download or a load.", query=NoQuery, data=ModelView, errors=(404, 409))
    async def cancel_model(model_id: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)
        return success(await context.quick(lambda: models.cancel(_id(model_id))))


def _id(text: str) -> int:
    """A model's id in an address. Raises :class:`ModelNotFound` for what no id looks like."""
    if text.isascii() and text.isdigit() and len(text) < len(str(MAX_ID)) and int(text) >= 1:
        return int(text)
    raise ModelNotFound(f"No model has the id {text[:40]!r}.", param="model_id", remedy="Ids are whole numbers from 1.")


def _usable_path(text: str) -> Path:
    """Refused before anything of the path is looked at, as a mistake in the request."""
    if "\0" in text:
        raise InvalidParameter("The path holds a zero byte.", param="local_path")
    if not is_storable(text):
        raise InvalidParameter(
            "The path holds characters that are no text.", param="local_path", remedy="Rename the folder."
        )
    path = Path(text)
    if not path.is_absolute():
        raise InvalidParameter(
            f"{text[:200]} is not an absolute path.", param="local_path", remedy="Give the whole path."
        )
    refuse_system_folder(path)
    return path


def _check_files(files: list[str] | None) -> None:
    for index, name in enumerate(files or ()):
        if not is_plain_path(name) or not name.lower().endswith(".gguf"):
            raise InvalidParameter(
                f"{name[:200]!r} is no path of a .gguf file inside a repository.",
                param=f"gguf_files.{index}",
                remedy="Write it as the preview lists it, without '..' and without a leading slash.",
            )

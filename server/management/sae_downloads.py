"""``/api/saes/download``, ``/api/saes/preview`` and ``/api/saes/{id}/cancel``: SAEs from the hub."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from quart import Quart, Response

from engine.errors import NothingToCancel
from engine.public.downloads import MAX_FILE_PATH, SaePreview, SaeStart
from engine.public.library import SaeRecord
from engine.public.models import MAIN, MAX_REPO_ID, MAX_REVISION
from server.context import ServerContext
from server.management.envelope import success
from server.management.validation import Body, NoQuery, read_json, read_nothing, read_query
from server.openapi.describe import describe

MAX_TOKEN = 255

_RepoId = Annotated[str, Field(min_length=1, max_length=MAX_REPO_ID)]
_Revision = Annotated[str, Field(min_length=1, max_length=MAX_REVISION)]
_Token = Annotated[str, Field(min_length=1, max_length=MAX_TOKEN)]


class PreviewSaesBody(Body):
    """Which repository to look at."""

    repository_id: _RepoId
    revision: _Revision = MAIN
    hf_token: _Token | None = None


class DownloadSaeBody(PreviewSaesBody):
    """Which SAE of a repository; left out, the only one there."""

    file_path: Annotated[str, Field(min_length=1, max_length=MAX_FILE_PATH)] | None = None


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""
    engine = context.engine

    @app.post("/api/saes/preview")
    @describe(
        "Look at the SAEs in a repository of the hub.",
        query=NoQuery,
        body=PreviewSaesBody,
        data=SaePreview,
        errors=(400, 404, 502),
    )
    async def preview_saes() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, PreviewSaesBody)
        return success(
            await context.load(
                lambda: engine.sae_downloads.preview(asked.repository_id, asked.revision, token=asked.hf_token)
            )
        )

    @app.post("/api/saes/download")
    @describe(
        "Begin to download an SAE; events tell how it goes on.",
        query=NoQuery,
        body=DownloadSaeBody,
        data=SaeStart,
        status=202,
        also={200: SaeStart},
        errors=(400, 404, 409, 502, 507),
    )
    async def download_sae() -> Response:
        read_query(NoQuery)
        asked = await read_json(context, DownloadSaeBody)
        started = await context.load(
            lambda: engine.sae_downloads.start(
                asked.repository_id,
                revision=asked.revision,
                file_path=asked.file_path,
                token=asked.hf_token,
            )
        )
        return success(started, 202 if started.status == "downloading" else 200)

    @app.post("/api/saes/<sae_id>/cancel")
    @describe("Stop a download.", query=NoQuery, data=SaeRecord, errors=(404, 409))
    async def cancel_download(sae_id: str) -> Response:
        read_query(NoQuery)
        await read_nothing(context)

        def cancel() -> SaeRecord:
            record = engine.saes.get(sae_id)
            if not engine.sae_downloads.cancel(sae_id):
                raise NothingToCancel(
                    f"{record.id!r} is not being downloaded.", details={"status": record.status.value}
                )
            return engine.saes.get(sae_id)

        return success(await context.quick(cancel))

"""``GET /openapi.json``. Built when it is first asked for, once per server."""

from __future__ import annotations

from typing import Any

from quart import Quart, Response

from server import sse
from server.context import ServerContext, version
from server.openapi.describe import describe
from server.openapi.document import build_document


def register(app: Quart, context: ServerContext) -> None:
    """Add the route to ``app``."""
    built: list[bytes] = []

    @app.get("/openapi.json")
    @describe("This API, described as OpenAPI 3.1.", answer=dict[str, Any])
    async def openapi() -> Response:
        if not built:
            built.append(await context.manage(lambda: sse.dump(build_document(app, version()))))
        return Response(built[0], 200, content_type="application/json")

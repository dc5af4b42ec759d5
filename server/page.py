"""The small page at ``/``: where the API is, which model answers, where to look next. It runs no script."""

from __future__ import annotations

from html import escape

from quart import Quart, Response, request

from server.context import ServerContext, version
from server.openapi.describe import HTML, describe

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>miLLM Desktop</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem; }}
code, pre {{ font-family: ui-monospace, monospace; }}
pre {{ padding: .8rem; border: 1px solid #8886; border-radius: .4rem; overflow-x: auto; }}
</style>
</head>
<body>
<h1>miLLM Desktop</h1>
<p>Version {version}. {model}</p>
<p>Give this address to a program that speaks OpenAI's API:</p>
<pre>{address}</pre>
<ul>
<li><a href="/v1/models">/v1/models</a>: the models that answer</li>
<li><a href="/openapi.json">/openapi.json</a>: every route, described as OpenAPI</li>
<li><a href="/metrics">/metrics</a>: figures for Prometheus</li>
<li><a href="/api/health">/api/health</a>: whether the server is up</li>
<li><a href="/api/health/detailed">/api/health/detailed</a>: the model, the queue and its figures</li>
</ul>
</body>
</html>
"""


def register(app: Quart, context: ServerContext) -> None:
    """Add the page to ``app``."""

    @app.get("/")
    @describe("A small page with the address, the model and links.", answer=HTML)
    async def page() -> Response:
        resident = context.engine.shelf.resident
        loading = context.engine.shelf.loading
        if resident is not None:
            model = f"The model <code>{escape(resident.record.name)}</code> answers."
        elif loading is not None:
            model = f"The model <code>{escape(loading.model_name)}</code> is being loaded."
        else:
            model = "No model is loaded; one is loaded when a request names it."
        html = _PAGE.format(
            version=escape(version()), model=model, address=escape(f"{request.scheme}://{request.host}/v1")
        )
        return Response(
            html,
            200,
            {
                "Content-Type": "text/html; charset=utf-8",
                "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
            },
        )

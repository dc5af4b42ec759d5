"""The web application: guards first, then routes, every error in the shape of its surface."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlparse

from quart import Quart, Request, Response, has_request_context, request, websocket
from quart.wrappers import Response as QuartResponse
from werkzeug.exceptions import HTTPException
from werkzeug.exceptions import MethodNotAllowed as WrongMethod
from werkzeug.routing import WebsocketMismatch

from engine.checked import of_kind
from engine.engine import Engine
from engine.errors import InvalidParameter, MillmError, NotFound
from server import dialects, health, page, sse
from server.aliases import AliasDesk
from server.body import LingeringBody, ServerRequest
from server.config import ServerSettings
from server.context import ServerContext
from server.dialects import answer_for
from server.errors import GENERIC_MESSAGE, MethodNotAllowed, PayloadTooLarge
from server.generation.running import GenerationInterrupted
from server.guards import Guards
from server.in_flight import Exchanges, current_exchange
from server.openapi import routes as openapi_routes
from server.openapi.describe import path_template
from server.request_log import RequestLog

log = logging.getLogger(__name__)

EXTENSION = "millm"

Asgi = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

_SLASHES = re.compile("//+")


def create_app(
    engine: Engine, settings: ServerSettings, requests: RequestLog | None = None, aliases: AliasDesk | None = None
) -> Quart:
    """The ASGI application over ``engine``. Its :class:`ServerContext` is in ``app.extensions["millm"]``.

    ``requests`` takes note of each request; ``aliases`` are those of ``settings`` where None.
    """
    app = Quart("server", static_folder=None)
    app.request_class = ServerRequest
    app.config["MAX_CONTENT_LENGTH"] = settings.MAX_BODY_BYTES
    app.config["BODY_TIMEOUT"] = None
    # The default cuts any answer after a minute. How long an answer may take is the client's business.
    app.config["RESPONSE_TIMEOUT"] = None
    exchanges = Exchanges(app.asgi_app, requests)
    app.asgi_app = _readable(_single_slashes(exchanges))  # type: ignore[method-assign, assignment]
    context = ServerContext(engine, settings, exchanges, aliases)
    app.extensions[EXTENSION] = context
    _add_guards(app, settings)
    _add_error_handlers(app)
    for dialect in dialects.DIALECTS:
        dialect.register(app, context)
    health.register(app, context)
    page.register(app, context)
    openapi_routes.register(app, context)
    return app


def context_of(app: Quart) -> ServerContext:
    """The context that :func:`create_app` made."""
    return of_kind(ServerContext, app.extensions[EXTENSION])


def _single_slashes(asgi: Asgi) -> Asgi:
    """``asgi`` behind a door that takes several slashes of a path for one.

    A base URL that ends with a slash is joined to paths that begin with one, and not every client follows the redirect
    that the framework would answer with.
    """

    async def door(scope: dict[str, Any], receive: Any, send: Any) -> None:
        # A target that is a whole URL, as proxies get it, is the framework's to take apart.
        if scope.get("path", "").startswith("/"):
            scope = {**scope, "path": _SLASHES.sub("/", scope["path"])}
        await asgi(scope, receive, send)

    return door


def _readable(asgi: Asgi) -> Asgi:
    """``asgi`` behind a door that blots out what the framework fails on before any guard or handler of ours.

    That is a Host no host can have, by IDNA (an empty label, one of 64 letters): a blank one is refused by the guards
    like any other that is not ours. And it is a target that is neither a path nor a URL: it leads nowhere.
    """

    async def door(scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = scope.get("headers", [])
        if any(name.lower() == b"host" and not _is_host(value) for name, value in headers):
            blotted = [(name, b"" if name.lower() == b"host" else value) for name, value in headers]
            scope = {**scope, "headers": blotted}
        if "path" in scope and not _is_target(scope["path"]):
            scope = {**scope, "path": "/?"}
        await asgi(scope, receive, send)

    return door


def _is_target(path: str) -> bool:
    try:
        return path.startswith("/") or bool(path and urlparse(path).path)
    except ValueError:
        return False


def _is_host(value: bytes) -> bool:
    try:
        value.decode("latin-1").lower().encode("idna")
    except UnicodeError:
        return False
    return True


def _add_guards(app: Quart, settings: ServerSettings) -> None:
    guards = Guards(settings)

    @app.before_request
    async def guard() -> Response | None:
        exchange = current_exchange()
        exchange.route = None if request.url_rule is None else path_template(request.url_rule.rule)
        exchange.check()
        if _two_lengths(request):
            raise InvalidParameter(
                "The request has a Content-Length and a Transfer-Encoding: where it ends cannot be told.",
                remedy="Send one of the two.",
            )
        return guards.check(request)

    @app.before_websocket
    async def guard_websocket() -> None:
        exchange = current_exchange()
        exchange.route = None if websocket.url_rule is None else path_template(websocket.url_rule.rule)
        exchange.check()
        guards.check_websocket(websocket)

    @app.after_request
    async def read_to_the_end(response: QuartResponse) -> QuartResponse:
        whole = not isinstance(request.body, LingeringBody) or await request.body.discard_rest()
        if not whole or _two_lengths(request):
            response.headers["Connection"] = "close"
        return response

    @app.after_request
    async def cors(response: QuartResponse) -> QuartResponse:
        guards.add_cors(request, response)
        return response


def _two_lengths(request: Request) -> bool:
    """Whether two readers of ``request`` may find two ends of it, as smugglers of requests want (RFC 9112 §6.1)."""
    return "Content-Length" in request.headers and "Transfer-Encoding" in request.headers


def _add_error_handlers(app: Quart) -> None:
    @app.errorhandler(MillmError)
    async def refused(error: MillmError) -> Response:
        return await _respond(error)

    @app.errorhandler(GenerationInterrupted)
    async def interrupted(failure: GenerationInterrupted) -> Response:
        return await _respond(failure.error, while_generating=True)

    @app.errorhandler(HTTPException)
    async def routing(error: HTTPException) -> Response | HTTPException:
        if error.code is not None and error.code < 400:
            return error
        response = await _respond(_translated(error))
        if isinstance(error, WrongMethod) and error.valid_methods:
            response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
        return response

    @app.errorhandler(Exception)
    async def unexpected(error: Exception) -> Response:
        log.error("a request failed", exc_info=error)
        return await _respond(MillmError(GENERIC_MESSAGE))


def _translated(error: HTTPException) -> MillmError:
    """An HTTP error that the framework raised, as one of ours."""
    if isinstance(error, WebsocketMismatch) and not has_request_context():
        return InvalidParameter(
            f"{_path()[:200]!r} does not speak WebSocket.", remedy="Send a plain request; events are at /api/events."
        )
    match error.code:
        case 404:
            return NotFound(f"There is nothing at {_path()[:200]!r}.")
        case 405:
            return MethodNotAllowed(f"{_path()[:200]!r} does not take {_method()}.")
        case 413:
            return PayloadTooLarge("The request's body is too long.")
        case code if code is not None and code < 500:
            return InvalidParameter(f"The request could not be read: {error.name}.")
    log.error("the framework failed", exc_info=error)
    return MillmError(GENERIC_MESSAGE)


async def _respond(error: MillmError, *, while_generating: bool = False) -> Response:
    answer = answer_for(error, _path(), while_generating=while_generating)
    notes = current_exchange().notes
    notes.error, notes.param = error.code, error.param
    return Response(sse.dump(answer.body), answer.status, {**answer.headers, "Content-Type": "application/json"})


def _method() -> str:
    """The method asked for; a WebSocket begins with a GET."""
    return request.method if has_request_context() else "GET"


def _path() -> str:
    """The path asked for, by a request or by a WebSocket that was not taken."""
    return request.path if has_request_context() else websocket.path

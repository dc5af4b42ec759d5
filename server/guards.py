"""Who may ask: the host they name, the page they come from, the key they show. Checked before any route is looked at.

A web page the person happens to visit can reach a server on this machine, by plain requests (hence the Origin rule) and
by rebinding its own name to 127.0.0.1 (hence the Host rule). The key guards everything but ``/api/health``.
"""

from __future__ import annotations

import hmac
import ipaddress

from quart import Request, Response, Websocket

from server.config import ServerSettings
from server.errors import HostNotAllowed, InvalidApiKey, OriginNotAllowed
from server.headers import LEASE, LOAD_POLICY, RESPONSE_HEADERS, STRICT

OPEN_PATH = "/api/health"
PREFLIGHT_MAX_AGE_S = 600

_METHODS = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
_REQUEST_HEADERS = ("Authorization", "Content-Type", "X-Api-Key", STRICT, LOAD_POLICY, LEASE)
_MAX_ECHOED = 1024


def is_loopback(host: str) -> bool:
    """Whether listening on ``host`` is reachable from this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def api_key_of(settings: ServerSettings) -> str | None:
    """The key to ask for; a blank one is none."""
    key = (settings.API_KEY or "").strip()
    return key or None


class Guards:
    """The rules of one set of settings."""

    def __init__(self, settings: ServerSettings) -> None:
        self._key = api_key_of(settings)
        self._any_origin = "*" in settings.CORS_ORIGINS
        self._origins = frozenset(_origin(origin) for origin in settings.CORS_ORIGINS)
        self._hosts: frozenset[str] | None = None
        if is_loopback(settings.HOST):
            own = f"[{settings.HOST}]" if ":" in settings.HOST and "[" not in settings.HOST else settings.HOST
            self._hosts = frozenset(host.lower() for host in (*settings.ALLOWED_HOSTS, own))

    def check(self, request: Request) -> Response | None:
        """Raise the refusal of ``request``. A preflight that may pass is answered here: it carries no key."""
        self._check_host(request)
        origin = request.headers.get("Origin")
        if origin is not None:
            self._check_origin(origin)
            if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
                return _preflight(request)
        self._check_key(request)
        return None

    def check_websocket(self, websocket: Websocket) -> None:
        """Raise the refusal of ``websocket``. A page cannot set its headers, so ``?key=`` shows the key there too."""
        self._check_host(websocket)
        origin = websocket.headers.get("Origin")
        if origin is not None:
            self._check_origin(origin)
        self._check_key(websocket, websocket.args.get("key", ""))

    def add_cors(self, request: Request, response: Response) -> None:
        """Let a page on the allow-list read the answer, refusals included."""
        response.headers.add("Vary", "Origin")
        origin = request.headers.get("Origin")
        if origin is not None and self._is_allowed(origin):
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = ", ".join((*RESPONSE_HEADERS, "Retry-After"))

    def _check_host(self, request: Request | Websocket) -> None:
        if self._hosts is None:
            return
        host = _host_name(request.headers.get("Host", ""))
        if host not in self._hosts:
            raise HostNotAllowed(
                "The Host header does not name this server.",
                param="Host",
                details={"allowed_hosts": sorted(self._hosts)},
                remedy=f"Use one of {', '.join(sorted(self._hosts))}, or add the name to ALLOWED_HOSTS.",
            )

    def _check_origin(self, origin: str) -> None:
        if not self._is_allowed(origin):
            raise OriginNotAllowed(
                "Requests from this web page's origin are not answered.",
                param="Origin",
                remedy="Add the origin to CORS_ORIGINS if you trust it.",
            )

    def _is_allowed(self, origin: str) -> bool:
        return self._any_origin or _origin(origin) in self._origins

    def _check_key(self, request: Request | Websocket, *more: str) -> None:
        if self._key is None or request.path == OPEN_PATH:
            return
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        shown = [request.headers.get("X-Api-Key", ""), token.strip() if scheme.lower() == "bearer" else "", *more]
        # Header text is Latin-1 on the wire; all are compared in full, whichever comes first.
        right = [hmac.compare_digest(key.encode("latin-1", "replace"), self._key.encode()) for key in shown]
        if not any(right):
            raise InvalidApiKey(
                "This server wants an API key, and the request carries none or another.",
                remedy="Send it as 'Authorization: Bearer KEY'.",
            )


def _preflight(request: Request) -> Response:
    asked = request.headers.get("Access-Control-Request-Headers", "")
    # Clients add headers of their own (x-stainless-…); an allow-listed page may send any that is a plain token list.
    plain = len(asked) <= _MAX_ECHOED and all(part.strip().replace("-", "").isalnum() for part in asked.split(","))
    return Response(
        b"",
        204,
        {
            "Access-Control-Allow-Methods": _METHODS,
            "Access-Control-Allow-Headers": asked if asked and plain else ", ".join(_REQUEST_HEADERS),
            "Access-Control-Max-Age": str(PREFLIGHT_MAX_AGE_S),
        },
    )


def _origin(text: str) -> str:
    return text.strip().rstrip("/").lower()


def _host_name(value: str) -> str:
    """The name in a Host header, without port and trailing dot; an IPv6 address keeps its brackets."""
    value = value.strip().lower()
    if value.startswith("["):
        return value.partition("]")[0] + "]"
    return value.partition(":")[0].rstrip(".")

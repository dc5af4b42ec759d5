"""Who may ask: the host they name, the page they come from, the key they show. Checked before any route is looked at.

A web page the person happens to visit can reach a server on this machine, by plain requests (hence the Origin rule) and
by rebinding its own name to 127.0.0.1 (hence the Host rule). Its images, scripts and frames make requests without an
Origin; browsers mark those with ``Sec-Fetch-Site``. The key guards everything but ``/api/health`` and its
other names.
"""

from __future__ import annotations

import hmac
import ipaddress
import re

from quart import Request, Response, Websocket

from server.config import ServerSettings, api_key_of, is_loopback
from server.errors import HostNotAllowed, InvalidApiKey, OriginNotAllowed
from server.headers import LEASE, LOAD_POLICY, PROFILE, RESPONSE_HEADERS, STEERING_INTENSITY, STRICT

OPEN_PATHS = ("/api/health", "/health", "/healthz")
"""That the server is up is told without the key."""
PREFLIGHT_MAX_AGE_S = 600

_METHODS = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
_REQUEST_HEADERS = (
    "Authorization",
    "Content-Type",
    "X-Api-Key",
    STRICT,
    LOAD_POLICY,
    LEASE,
    PROFILE,
    STEERING_INTENSITY,
)
_MAX_ECHOED = 1024

_FOREIGN = ("cross-site", "same-site")
"""What browsers say in ``Sec-Fetch-Site`` of a page from another origin; of one site are all ports of this machine."""
_LINKED = ("/", *OPEN_PATHS)
"""Pages for a person, who may come to them by a link on any page."""


class Guards:
    """The rules of one set of settings."""

    def __init__(self, settings: ServerSettings) -> None:
        self._key = api_key_of(settings)
        self._any_origin = "*" in settings.CORS_ORIGINS
        self._origins = frozenset(_origin(origin) for origin in settings.CORS_ORIGINS)
        self._hosts: frozenset[str] | None = None
        if is_loopback(settings.HOST):
            own = f"[{settings.HOST}]" if ":" in settings.HOST and "[" not in settings.HOST else settings.HOST
            self._hosts = frozenset(_host_name(host) or host.lower() for host in (*settings.ALLOWED_HOSTS, own))

    def check(self, request: Request) -> Response | None:
        """Raise the refusal of ``request``. A preflight that may pass is answered here: it carries no key."""
        self._check_host(request)
        origin = request.headers.get("Origin")
        if origin is not None:
            self._check_origin(origin)
            if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
                return _preflight(request)
        self._check_site(request, origin)
        self._check_key(request)
        return None

    def check_websocket(self, websocket: Websocket) -> None:
        """Raise the refusal of ``websocket``. A page cannot set its headers, so ``?key=`` shows the key there too."""
        self._check_host(websocket)
        origin = websocket.headers.get("Origin")
        if origin is not None:
            self._check_origin(origin)
        self._check_site(websocket, origin)
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

    def _check_site(self, request: Request | Websocket, origin: str | None) -> None:
        """Refuse what a foreign page had its browser fetch without naming itself: an image, a script, a frame.

        An allow-listed page names itself by its origin. Following a link to a page for people is no such thing.
        """
        headers = request.headers
        if self._any_origin or origin is not None or headers.get("Sec-Fetch-Site", "").strip().lower() not in _FOREIGN:
            return
        followed = (headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")) == ("navigate", "document")
        if isinstance(request, Request) and request.method == "GET" and followed and request.path in _LINKED:
            return
        raise OriginNotAllowed(
            "Requests that another web page makes without naming its origin are not answered.",
            param="Sec-Fetch-Site",
            remedy="Add the page's origin to CORS_ORIGINS if you trust it, and call from its script.",
        )

    def _is_allowed(self, origin: str) -> bool:
        return self._any_origin or _origin(origin) in self._origins

    def _check_key(self, request: Request | Websocket, *more: str) -> None:
        if self._key is None or request.path in OPEN_PATHS:
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


_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s\[\]:/?#@\\]+)(?::([0-9]{0,5}))?", re.IGNORECASE)


def _origin(text: str) -> str:
    """An origin as browsers write it: in lower case, without the port a scheme has anyway. What is none stays as it is,
    and so is like no other.
    """
    text = text.strip().removesuffix("/").lower()
    scheme, found, host = text.partition("://")
    parts = _HOST.fullmatch(host)
    if not found or parts is None:
        return text
    name, port = parts.groups()
    return f"{scheme}://{name}" if not port or int(port) == _DEFAULT_PORTS.get(scheme) else f"{scheme}://{name}:{port}"


def _host_name(value: str) -> str | None:
    """The name in a Host header, without port and trailing dot; an IPv6 address keeps its brackets.

    None for what is no name with or without a port: taking a part of it for the name would let others choose the rest.
    """
    parts = _HOST.fullmatch(value.strip().lower())
    if parts is None or (parts[2] and int(parts[2]) > 65535):
        return None
    name = parts[1]
    if not name.startswith("["):
        return name.removesuffix(".")
    try:
        return f"[{ipaddress.IPv6Address(name[1:-1]).compressed}]"
    except ValueError:
        return None

"""The settings the API server reads. ``app/settings.py`` composes them with the other packages' into one object."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from server.aliases import checked

SHUTDOWN_GRACE_S = 0.2
"""How long connections may take to say goodbye when the server stops."""


LIVE = frozenset({"MODEL_ALIASES"})
"""Settings that a running server takes over at once."""


class ServerSettings(BaseModel):
    """Address, guards and limits of the server."""

    HOST: str = Field("127.0.0.1", description="Address to listen on; another than loopback needs API_KEY.")
    PORT: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes any free one.")
    API_KEY: str | None = Field(
        None, description="When set, every route but /api/health, /health and /healthz wants it as a bearer token."
    )
    CORS_ORIGINS: list[str] = Field(default_factory=list, description="Browser origins that may call the server.")
    ALLOWED_HOSTS: list[str] = Field(
        default_factory=lambda: ["localhost", "127.0.0.1", "[::1]", "host.docker.internal"],
        description="Host names answered on a loopback bind; guards against DNS rebinding.",
    )
    MAX_BODY_BYTES: int = Field(32 * 1024 * 1024, ge=1024, description="Largest request body.")
    MAX_EVENT_SOCKETS: int = Field(32, ge=0, description="Clients at the event socket at once; past it 503.")
    IGNORE_OFFERED_TOOLS: bool = Field(
        False, description="Answer a chat that offers tools without them; the header says so."
    )
    FIM_RATE_PER_S: float = Field(
        0, ge=0, le=1e6, description="Gaps of texts filled in each second, over a while; more get 429. 0: no limit."
    )
    FIM_BURST: int = Field(20, ge=1, le=1_000_000, description="Gaps that may come at once under FIM_RATE_PER_S.")
    REPORT_CHUNKS: Literal["closing", "separate"] = Field(
        "closing", description="Where a stream tells what steered it: on the last chunk with a choice, or in its own."
    )
    MODEL_ALIASES: Annotated[dict[str, Any], AfterValidator(checked)] = Field(
        default_factory=dict,
        description="Other names of models: name to a model's name, or to an object with model and, where wanted, "
        "profile, steering_intensity and chat_template_kwargs. A name that ends with * stands for every beginning.",
    )
    IGNORED_FIELDS_HEADER_MAX_BYTES: int = Field(1024, ge=64, description="Longest X-miLLM-Ignored-Fields value.")


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

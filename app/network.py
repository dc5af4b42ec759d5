"""The way to the hub as the person set it: a proxy and a token, handed to the libraries through the environment.

``huggingface_hub`` and the demo's fetcher read the usual variables, so that is where a setting goes; what the process
was started with comes back when the setting is emptied. Loopback is never asked through a proxy.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping, MutableMapping
from urllib.parse import urlsplit

log = logging.getLogger(__name__)

PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
DIRECT = "localhost,127.0.0.1,::1"
DIRECT_NAMES = ("NO_PROXY", "no_proxy")
TOKEN_NAME = "HF_TOKEN"
SCHEMES = ("http", "https", "socks5", "socks5h")


def is_proxy(text: str) -> bool:
    """Whether ``text`` reads like a proxy's address."""
    try:
        parts = urlsplit(text)
        return parts.scheme in SCHEMES and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


class Network:
    """Puts proxy and token in force. Thread-safe.

    Args:
        environ: Where they go; the process's own environment when None.
    """

    def __init__(self, environ: MutableMapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._given: Mapping[str, str] = dict(self._environ)
        self._lock = threading.Lock()

    def use(self, proxy: str | None, token: str | None) -> None:
        """Use these from the next request on; None: as the process was started."""
        with self._lock:
            before = {name: self._environ.get(name) for name in PROXY_NAMES}
            for name in PROXY_NAMES:
                self._put(name, proxy or self._given.get(name))
            for name in DIRECT_NAMES:
                given = self._given.get(name)
                self._put(name, ",".join(filter(None, (given, DIRECT))) if proxy else given)
            self._put(TOKEN_NAME, token or self._given.get(TOKEN_NAME))
            moved = before != {name: self._environ.get(name) for name in PROXY_NAMES}
        if moved:
            _forget_connections()

    def _put(self, name: str, value: str | None) -> None:
        if value:
            self._environ[name] = value
        else:
            self._environ.pop(name, None)


def _forget_connections() -> None:
    """The hub's client reads the proxy when it is made; one that is there is made anew at its next use."""
    hub = sys.modules.get("huggingface_hub")
    if hub is not None:
        hub.close_session()
        log.info("connections to the hub are made anew: the proxy has changed")

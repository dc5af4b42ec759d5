"""Finding a port to offer when the configured one is taken. Blocking for milliseconds: for a background thread."""

from __future__ import annotations

import socket

LAST_PORT = 65535
TRIED = 40


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether nothing listens on ``port`` now. Another program may still take it before it is used."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port_after(taken: int) -> int:
    """The next free port above ``taken``, or any free one where the neighbours are all taken."""
    for port in range(taken + 1, min(taken + 1 + TRIED, LAST_PORT + 1)):
        if is_free(port):
            return port
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

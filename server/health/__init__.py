"""Whether the server is well, and what it is doing: ``/api/health*`` and ``/metrics``.

May import: ``engine``, ``server``. Reads the engine and the machine, changes nothing but a breaker that is reset.
"""

from server.health.routes import register

__all__ = ["register"]

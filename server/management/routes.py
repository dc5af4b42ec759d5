"""The surfaces of the management API, put together."""

from __future__ import annotations

from quart import Quart

from server.context import ServerContext
from server.management import (
    circuits,
    clusters,
    events,
    experiments,
    hub,
    models,
    monitoring,
    profiles,
    reading,
    sae_downloads,
    saes,
    sweeps,
)


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""
    events.register(app, context)
    monitoring.register(app, context)
    models.register(app, context)
    hub.register(app, context)
    sae_downloads.register(app, context)
    reading.register(app, context)
    saes.register(app, context)
    profiles.register(app, context)
    clusters.register(app, context)
    circuits.register(app, context)
    sweeps.register(app, context)
    experiments.register(app, context)

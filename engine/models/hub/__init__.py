"""The model hub: listing, reading and fetching files, with a circuit breaker for a hub that does not answer.

May import: ``engine.models.inspection`` and below. Repository names come in, files and typed errors go out.
"""

"""The management API under ``/api``: SAEs, steering, profiles, clusters, circuits, monitoring, and the event socket.

May import: ``engine`` and the shared parts of ``server``; no API dialect. One file per surface.
Requests come in validated; answers go out in the envelope ``{success, data, error}``, exports of documents bare.
"""

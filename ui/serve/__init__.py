"""The page of the group *Serve* and its widgets: the server, who may reach it, what it is asked.

May import: ``ui.context``, ``ui.kit``, ``ui.bridge`` and ``engine``; no other group. Data comes in as events of the
engine and goes out through ``ui.context.services``.
"""

"""The pages of the group *Shelf* and their widgets: models and SAEs, on disk and to be fetched.

May import: ``ui.context``, ``ui.kit``, ``ui.bridge`` and ``engine``; no other group. Data comes in as events of the
engine and goes out as calls on it.
"""

"""The pages of the group *Steer* and their widgets: steering by hand, profiles, clusters, circuits, sweeps.

May import: ``ui.context``, ``ui.kit``, ``ui.bridge`` and ``engine``; no other group. Data comes in as events of the
engine and goes out as calls on it.
"""

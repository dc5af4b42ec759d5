"""The pages of the group *Talk* and their widgets: home, chat, records.

May import: ``ui.context``, ``ui.kit``, ``ui.bridge`` and ``engine``; no other group. Data comes in as events of the
engine and goes out as calls on it.
"""

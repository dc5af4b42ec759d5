"""The page of the group *Program* and its widgets: settings, tokens, the choice of the data folder.

May import: ``ui.context``, ``ui.kit``, ``ui.bridge`` and ``engine``; no other group. Settings come in and go out
through ``ui.context.services``.
"""
